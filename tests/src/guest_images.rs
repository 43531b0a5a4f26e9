//! Guest images for journeys, made from a real one: other versions, other kinds, and ones that do not boot.
//!
//! Large files are hard links where the file system allows it, so an image costs a second and no space. Put them
//! into a directory of the test's own and start the cloud with it: a node offers an image as soon as it is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Replaces the file `$2` of the image `$1` by `$3`, and says so in everything that names and covers it; `$4` is its
/// member of `measurement.json`.
const REPLACE: &str = r#"
    set -euo pipefail
    cd "$1"
    rm "$2"
    mv "$3" "$2"
    old=$(sed -n "s/.*\"$4\": *\"\([0-9a-f]*\)\".*/\1/p" measurement.json)
    sed -i "s/$old/$(sha384sum "$2" | cut -d' ' -f1)/" measurement.json
    sha256sum $(awk '{ print $2 }' sha256sum.txt) >sums
    mv sums sha256sum.txt
    sha256sum sha256sum.txt | cut -d' ' -f1 >digest.txt
"#;

/// The image in `images` that a CVM gets whose request names none: development images first, then the newest.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn newest(images: &Path) -> PathBuf {
    let entries = fs::read_dir(images).expect("a directory of guest images");
    let mut found: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("digest.txt").is_file())
        .collect();
    found.sort_by_key(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let numbers: Vec<u32> = name.split(['-', '.']).filter_map(|part| part.parse().ok()).collect();
        (name.contains("-dev-"), numbers)
    });
    found.pop().expect("a guest image; `make image` makes it")
}

/// The same content under another version, with an `os_image_hash` of its own: `into/cloister-<version>`.
///
/// # Panics
///
/// If it cannot be made.
#[must_use]
pub fn another_version(of: &Path, into: &Path, version: &str) -> PathBuf {
    let image = into.join(format!("cloister-{version}"));
    variant(of, &image, &["--kind", "production", "--version", version]);
    image
}

/// The development variant: `into/cloister-dev-<version>`.
///
/// # Panics
///
/// If it cannot be made.
#[must_use]
pub fn development(of: &Path, into: &Path, version: &str) -> PathBuf {
    let image = into.join(format!("cloister-dev-{version}"));
    variant(of, &image, &["--kind", "development", "--version", version]);
    image
}

/// An intact image by all its hashes, whose kernel finds no initial RAM disk: it panics after a few seconds, and
/// the VM ends.
///
/// # Panics
///
/// If it cannot be made.
#[must_use]
pub fn that_never_boots(of: &Path, into: &Path, version: &str) -> PathBuf {
    changed(of, into, version, "initrd.img", "initrd", |_| b"no initial RAM disk".to_vec())
}

/// The same with one byte more at the end of its kernel, which boots all the same and is measured otherwise.
///
/// # Panics
///
/// If it cannot be made.
#[must_use]
pub fn with_another_kernel(of: &Path, into: &Path, version: &str) -> PathBuf {
    changed(of, into, version, "vmlinuz", "kernel", |mut kernel| {
        kernel.push(0);
        kernel
    })
}

/// Another version with another file, which a node that looks at the same time sees as a whole or not at all.
fn changed(
    of: &Path,
    into: &Path,
    version: &str,
    file: &str,
    member: &str,
    change: impl FnOnce(Vec<u8>) -> Vec<u8>,
) -> PathBuf {
    let aside = into.join(".changing");
    fs::create_dir_all(&aside).expect("a directory aside");
    let changing = another_version(of, &aside, version);
    let contents = change(fs::read(changing.join(file)).expect("a file of the image"));
    replace(&changing, file, member, &contents);
    let image = into.join(format!("cloister-{version}"));
    fs::rename(changing, &image).expect("the image moves to its place");
    image
}

fn variant(of: &Path, image: &Path, more: &[&str]) {
    let mut command = Command::new(crate::paths::workspace().join("images/variant.sh"));
    let status = command.arg("--of").arg(of).arg("--output").arg(image).args(more).status();
    assert!(status.expect("images/variant.sh runs").success(), "{} is made", image.display());
}

fn replace(image: &Path, file: &str, member: &str, contents: &[u8]) {
    // Aside first: the file may be a hard link to that of the original.
    fs::write(image.join("new"), contents).expect("room for another file");
    let status =
        Command::new("bash").args(["-c", REPLACE, "bash"]).arg(image).args([file, "new", member]).status();
    assert!(status.expect("bash runs").success(), "{} gets another {file}", image.display());
}
