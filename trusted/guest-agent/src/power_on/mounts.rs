//! File systems that the kernel offers, and where programs expect them.

use std::ffi::CStr;
use std::fs;
use std::io;

use rustix::mount::{MountFlags, mount};

use super::PowerOnError;

/// A file system without a device.
pub(super) struct Mount {
    kind: &'static str,
    target: &'static str,
    flags: MountFlags,
    options: Option<&'static CStr>,
}

const NO_PROGRAMS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);
const NO_DEVICES: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// In the initial RAM disk; moved along into the real root.
pub(super) const KERNEL: [Mount; 3] = [
    Mount { kind: "proc", target: "/proc", flags: NO_PROGRAMS, options: None },
    Mount { kind: "sysfs", target: "/sys", flags: NO_PROGRAMS, options: None },
    Mount { kind: "devtmpfs", target: "/dev", flags: MountFlags::NOSUID, options: Some(c"mode=0755") },
];

/// On the read-only root: everything that must be writable, for one boot only. Evidence of TDX and SEV-SNP
/// is asked for on the configuration file system.
pub(super) const ROOT: [Mount; 9] = [
    Mount { kind: "tmpfs", target: "/run", flags: NO_DEVICES, options: Some(c"mode=0755") },
    Mount { kind: "tmpfs", target: "/tmp", flags: NO_DEVICES, options: Some(c"mode=1777") },
    Mount { kind: "tmpfs", target: "/root", flags: NO_DEVICES, options: Some(c"mode=0700") },
    Mount { kind: "tmpfs", target: "/var", flags: NO_DEVICES, options: Some(c"mode=0755") },
    Mount { kind: "configfs", target: "/sys/kernel/config", flags: NO_PROGRAMS, options: None },
    Mount { kind: "cgroup2", target: "/sys/fs/cgroup", flags: NO_PROGRAMS, options: None },
    Mount { kind: "devpts", target: "/dev/pts", flags: MountFlags::NOSUID, options: Some(c"gid=5,mode=620") },
    Mount { kind: "tmpfs", target: "/dev/shm", flags: NO_DEVICES, options: Some(c"mode=1777") },
    Mount { kind: "mqueue", target: "/dev/mqueue", flags: NO_PROGRAMS, options: None },
];

const VAR_DIRECTORIES: [&str; 4] = ["/var/cache", "/var/lib", "/var/log", "/var/tmp"];

/// Names under which programs look for what lies elsewhere.
const LINKS: [(&str, &str); 6] = [
    ("/var/run", "/run"),
    ("/var/lock", "/run"),
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// Fills the fresh file systems of [`ROOT`] with the names that programs expect.
pub(super) fn populate() -> io::Result<()> {
    VAR_DIRECTORIES.iter().try_for_each(fs::create_dir_all)?;
    LINKS.iter().try_for_each(|(link, target)| std::os::unix::fs::symlink(target, link))
}

/// Mounts in order, making mount points on the device file system where they are missing.
pub(super) fn mount_all(mounts: &[Mount]) -> Result<(), PowerOnError> {
    mounts.iter().try_for_each(|entry| {
        let target = entry.target;
        entry.mount().map_err(|source| PowerOnError::Mount { target, source })
    })
}

impl Mount {
    fn mount(&self) -> io::Result<()> {
        if self.target.starts_with("/dev/") {
            fs::create_dir_all(self.target)?;
        }
        Ok(mount(self.kind, self.target, self.kind, self.flags, self.options)?)
    }
}
