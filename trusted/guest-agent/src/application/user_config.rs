//! The deployer's configuration: unmeasured, and known to the node. The agent does not read it; the application
//! finds it in its project directory, under the names that the public platform gives it.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;

const FILE: &str = "user_config";
const ALIAS_DIRECTORY: &str = ".host-shared";
const ALIAS: &str = ".user-config";
/// Programs of containers read it whoever they run as: it is no secret from anybody in the guest.
const MODE: u32 = 0o644;

/// Puts `contents` into the project directory, or takes away what an earlier boot left there.
pub(super) fn leave(project: &Path, contents: Option<&[u8]>) -> io::Result<()> {
    let file = project.join(FILE);
    let alias = project.join(ALIAS_DIRECTORY).join(ALIAS);
    // Links and leftovers go first, so that nothing is written through them.
    let removed = remove(&alias).and_then(|()| remove(&file));
    let Some(contents) = contents else {
        return match removed {
            // The application's own files are no leftovers, and in nobody's way.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => other,
        };
    };
    removed?;
    fs::OpenOptions::new().write(true).create_new(true).mode(MODE).open(&file)?.write_all(contents)?;
    fs::create_dir_all(project.join(ALIAS_DIRECTORY))?;
    symlink(Path::new("..").join(FILE), alias)
}

fn remove(file: &Path) -> io::Result<()> {
    let removed = match fs::remove_file(file) {
        // The engine makes one of what a compose file binds while it is not there.
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => fs::remove_dir(file),
        other => other,
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn is_found_under_both_names_for_as_long_as_it_is_given() {
        let project = tempfile::tempdir().unwrap();
        let names = ["user_config", ".host-shared/.user-config"].map(|name| project.path().join(name));
        leave(project.path(), None).unwrap();
        for contents in [&b"{}"[..], b"no JSON \xff"] {
            leave(project.path(), Some(contents)).unwrap();
            for name in &names {
                assert_eq!(fs::read(name).unwrap(), contents, "{}", name.display());
                assert_eq!(fs::metadata(name).unwrap().permissions().mode() & 0o777, 0o644);
            }
        }
        leave(project.path(), None).unwrap();
        assert!(names.iter().all(|name| fs::symlink_metadata(name).is_err()));
    }

    #[test]
    fn a_directory_that_the_engine_made_in_its_place_stops_no_boot() {
        let project = tempfile::tempdir().unwrap();
        let name = project.path().join(FILE);
        fs::create_dir(&name).unwrap();
        leave(project.path(), Some(b"{}")).unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"{}");
        fs::remove_file(&name).unwrap();
        fs::create_dir(&name).unwrap();
        fs::write(name.join("own"), "kept").unwrap();
        leave(project.path(), None).unwrap();
        assert_eq!(fs::read(name.join("own")).unwrap(), b"kept");
    }

    #[test]
    fn nothing_is_written_through_a_link_that_was_left_there() {
        let project = tempfile::tempdir().unwrap();
        let elsewhere = project.path().join("elsewhere");
        fs::write(&elsewhere, "untouched").unwrap();
        symlink(&elsewhere, project.path().join(FILE)).unwrap();
        leave(project.path(), Some(b"{}")).unwrap();
        assert_eq!(fs::read(elsewhere).unwrap(), b"untouched");
    }
}
