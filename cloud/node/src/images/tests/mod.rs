//! The image store and its mirror from outside: archives in, HTTP out.

mod archives;
mod import;
mod mirror;

use std::path::Path;

use crate::images::{AppImages, Limits};

/// Limits for a test: nothing is kept free on the disk of the machine that runs it.
fn limits() -> Limits {
    Limits { disk_reserve: 0, ..Limits::default() }
}

fn open(dir: &Path) -> AppImages {
    AppImages::open(dir, limits()).unwrap()
}
