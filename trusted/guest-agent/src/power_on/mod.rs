//! From the kernel's first user process to the real root file system.

mod cgroups;
mod command_line;
mod modules;
mod mounts;
mod root_disk;

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, mount, mount_move};

const MODULES: &str = "/modules";
const NEW_ROOT: &str = "/root";

/// Why a guest does not come up at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PowerOnError {
    #[error("cannot mount {target}")]
    Mount { target: &'static str, source: io::Error },
    #[error("the kernel command line is unusable")]
    CommandLine(#[source] command_line::CommandLineError),
    #[error(transparent)]
    Modules(#[from] modules::ModuleError),
    #[error("the root disk is unusable")]
    RootDisk(#[source] root_disk::RootDiskError),
    #[error("the root file system is not the one that the kernel command line names, or cannot be read")]
    RootContent(#[source] io::Error),
    #[error("cannot switch on control groups")]
    ControlGroups(#[source] io::Error),
    #[error("cannot move to the root file system")]
    Switch(#[source] io::Error),
}

/// Leaves the initial RAM disk for the real root and mounts what every program expects there.
pub(crate) fn enter_root() -> Result<(), PowerOnError> {
    mounts::mount_all(&mounts::KERNEL)?;
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let promise = command_line::RootPromise::parse(&line).map_err(PowerOnError::CommandLine)?;
    modules::load_all(Path::new(MODULES))?;
    let disk = root_disk::verified(&promise).map_err(PowerOnError::RootDisk)?;
    mount(&disk, NEW_ROOT, "erofs", MountFlags::RDONLY, None)
        .map_err(|error| PowerOnError::RootContent(error.into()))?;
    switch_root().map_err(PowerOnError::Switch)?;
    mounts::mount_all(&mounts::ROOT)?;
    mounts::populate().map_err(|source| PowerOnError::Mount { target: "/var", source })?;
    cgroups::switch_on().map_err(PowerOnError::ControlGroups)
}

/// Makes the mounted root the root of everything, and frees the memory of the initial RAM disk.
fn switch_root() -> io::Result<()> {
    for tree in ["dev", "proc", "sys"] {
        mount_move(format!("/{tree}"), format!("{NEW_ROOT}/{tree}"))?;
    }
    fs::remove_dir_all(MODULES)?;
    fs::remove_file("/init")?;
    rustix::process::chdir(NEW_ROOT)?;
    mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    rustix::process::chdir("/")?;
    Ok(())
}
