//! From the kernel's first user process to the real root file system.

mod cgroups;
mod command_line;
mod modules;
mod mounts;

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, mount, mount_move};

use crate::machine::disks::{self, DiskError};
use cloister_guest_channel::ROOT_DISK_SERIAL;

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
    #[error("no root file system")]
    RootDisk(#[source] DiskError),
    #[error("the root disk has {found} bytes, but the kernel command line promises {expected}")]
    RootSize { found: u64, expected: u64 },
    #[error("cannot switch on control groups")]
    ControlGroups(#[source] io::Error),
    #[error("cannot move to the root file system")]
    Switch(#[source] io::Error),
}

/// Leaves the initial RAM disk for the real root and mounts what every program expects there.
///
/// The root file system's hash stands on the measured command line. Here only its size is compared: a
/// guest cannot hash the whole disk on every boot, and what it hashed could change afterwards. Binding
/// each block that is read to the hash is the task of dm-verity.
pub(crate) fn enter_root() -> Result<(), PowerOnError> {
    mounts::mount_all(&mounts::KERNEL)?;
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let promised = command_line::RootPromise::parse(&line).map_err(PowerOnError::CommandLine)?;
    modules::load_all(Path::new(MODULES))?;
    let disk = disks::find(ROOT_DISK_SERIAL).map_err(PowerOnError::RootDisk)?;
    if disk.bytes != promised.bytes {
        return Err(PowerOnError::RootSize { found: disk.bytes, expected: promised.bytes });
    }
    mount(&disk.device, NEW_ROOT, "erofs", MountFlags::RDONLY, None)
        .map_err(|error| PowerOnError::Mount { target: NEW_ROOT, source: error.into() })?;
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
