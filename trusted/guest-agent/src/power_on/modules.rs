//! The kernel modules in the initial RAM disk.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::system::finit_module;

/// Why modules could not be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModuleError {
    #[error("cannot read the list of kernel modules")]
    List(#[source] io::Error),
    #[error("cannot load the kernel module {name}")]
    Load { name: String, source: io::Error },
}

/// Loads the modules that the file `order` in `directory` lists, in that order.
pub(super) fn load_all(directory: &Path) -> Result<(), ModuleError> {
    let list = fs::read_to_string(directory.join("order")).map_err(ModuleError::List)?;
    names(&list).try_for_each(|name| {
        load(&directory.join(name)).map_err(|source| ModuleError::Load { name: name.to_owned(), source })
    })
}

/// File names in a list: one per line, empty lines do not count.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.lines().map(str::trim).filter(|name| !name.is_empty())
}

fn load(file: &Path) -> io::Result<()> {
    match finit_module(File::open(file)?, c"", 0) {
        // Built in, or already there. Hardware that a module drives may be absent.
        Ok(()) | Err(Errno::EXIST | Errno::NODEV) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_names_in_order() {
        assert_eq!(names("b.ko\n\n a.ko \n").collect::<Vec<_>>(), ["b.ko", "a.ko"]);
        assert_eq!(names("").count(), 0);
    }
}
