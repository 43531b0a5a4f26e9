//! Where the things under test are.

use std::path::{Path, PathBuf};

/// The root of the source tree.
#[must_use]
pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Directory of guest images: `CLOISTER_GUEST_IMAGES`, or where `make image` puts them.
#[must_use]
pub fn guest_images() -> PathBuf {
    std::env::var_os("CLOISTER_GUEST_IMAGES")
        .map_or_else(|| workspace().join("target/guest-images"), Into::into)
}

/// The example application, with its image archive made by `make image`.
#[must_use]
pub fn hello() -> PathBuf {
    workspace().join("examples/hello")
}

/// The container image with the published guest SDK, made by `make test`.
#[must_use]
pub fn guest_sdk() -> PathBuf {
    workspace().join("target/guest-sdk.tar")
}

/// The example of a gateway in a CVM.
#[must_use]
pub fn confidential_inference() -> PathBuf {
    workspace().join("examples/confidential-inference")
}

/// The container image with the `cloister` program, made by `make test`.
#[must_use]
pub fn cloister_image() -> PathBuf {
    workspace().join("target/cloister.tar")
}

/// A program of this workspace, built beside the running test.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let found = this.ancestors().skip(1).take(2).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} is not built beside {}; run `make test`", this.display()))
}
