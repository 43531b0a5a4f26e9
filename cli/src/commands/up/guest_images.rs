//! Where the guest images are.

use std::path::{Path, PathBuf};

use crate::failure::{Exit, Failure};
use crate::parts::node::default_guest_images;

/// The file that names an image in its directory.
const NAME_FILE: &str = "digest.txt";

/// The directory with guest images: the given one, or that of the cloud. Fails when it holds none.
pub(crate) fn find(given: Option<PathBuf>, data_dir: &Path) -> Result<PathBuf, Failure> {
    let directory = given.unwrap_or_else(|| default_guest_images(data_dir));
    if holds_an_image(&directory) {
        return Ok(directory);
    }
    Err(Failure::new(Exit::NotFound, format!("there is no guest image in {}", directory.display()))
        .hint("make one (in the source tree): make image")
        .hint("or say where one is: cloister up --guest-images DIR"))
}

fn holds_an_image(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.path().join(NAME_FILE).is_file())
}
