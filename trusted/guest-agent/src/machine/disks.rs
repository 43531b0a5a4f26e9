//! Block devices, found by the serial that the node gave them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const BLOCK_DEVICES: &str = "/sys/block";
/// The unit in which the kernel tells sizes, whatever the device's own sector size is.
const SECTOR_BYTES: u64 = 512;

/// A whole block device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// Device node.
    pub(crate) device: PathBuf,
    /// Size in bytes.
    pub(crate) bytes: u64,
}

/// Why there is no such disk.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    #[error("cannot list block devices")]
    List(#[source] io::Error),
    #[error("no block device has the serial {0}")]
    Missing(String),
    #[error("two block devices have the serial {0}")]
    Ambiguous(String),
}

/// Finds the disk with a serial.
pub(crate) fn find(serial: &str) -> Result<Disk, DiskError> {
    find_in(Path::new(BLOCK_DEVICES), serial)
}

fn find_in(block_devices: &Path, serial: &str) -> Result<Disk, DiskError> {
    let entries = fs::read_dir(block_devices).map_err(DiskError::List)?;
    let mut matching = entries.flatten().filter(|entry| {
        fs::read_to_string(entry.path().join("serial")).is_ok_and(|text| text.trim() == serial)
    });
    let entry = matching.next().ok_or_else(|| DiskError::Missing(serial.to_owned()))?;
    if matching.next().is_some() {
        return Err(DiskError::Ambiguous(serial.to_owned()));
    }
    let sectors = fs::read_to_string(entry.path().join("size")).map_err(DiskError::List)?;
    let sectors: u64 = sectors.trim().parse().map_err(|_| DiskError::Missing(serial.to_owned()))?;
    Ok(Disk {
        device: Path::new("/dev").join(entry.file_name()),
        bytes: sectors.saturating_mul(SECTOR_BYTES),
    })
}

/// Sets how far the kernel reads on, in KiB, where a program reads a file of the block device with this device node.
pub(crate) fn set_read_ahead(device: &Path, kib: u32) -> io::Result<()> {
    set_read_ahead_in(Path::new(BLOCK_DEVICES), device, kib)
}

fn set_read_ahead_in(block_devices: &Path, device: &Path, kib: u32) -> io::Result<()> {
    let name = device.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    fs::write(block_devices.join(name).join("queue/read_ahead_kb"), kib.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_by_serial_only_when_it_is_unique() {
        let sys = tempfile::tempdir().unwrap();
        for (name, serial) in [("vda", "one"), ("vdb", "two"), ("vdc", "two")] {
            let disk = sys.path().join(name);
            fs::create_dir(&disk).unwrap();
            fs::write(disk.join("serial"), serial).unwrap();
            fs::write(disk.join("size"), "8\n").unwrap();
        }
        fs::create_dir(sys.path().join("loop0")).unwrap();
        let found = find_in(sys.path(), "one").unwrap();
        assert_eq!(found, Disk { device: "/dev/vda".into(), bytes: 4096 });
        assert!(matches!(find_in(sys.path(), "two"), Err(DiskError::Ambiguous(_))));
        assert!(matches!(find_in(sys.path(), "three"), Err(DiskError::Missing(_))));
    }

    #[test]
    fn read_ahead_is_set_for_the_device_alone_and_only_where_there_is_one() {
        let sys = tempfile::tempdir().unwrap();
        let setting = |name: &str| sys.path().join(name).join("queue/read_ahead_kb");
        for name in ["dm-0", "dm-1"] {
            fs::create_dir_all(sys.path().join(name).join("queue")).unwrap();
            fs::write(setting(name), "128").unwrap();
        }
        set_read_ahead_in(sys.path(), Path::new("/dev/dm-0"), 2048).unwrap();
        assert_eq!(fs::read_to_string(setting("dm-0")).unwrap(), "2048");
        assert_eq!(fs::read_to_string(setting("dm-1")).unwrap(), "128");
        assert!(set_read_ahead_in(sys.path(), Path::new("/dev/dm-2"), 2048).is_err());
        assert!(set_read_ahead_in(sys.path(), Path::new("/"), 2048).is_err());
    }
}
