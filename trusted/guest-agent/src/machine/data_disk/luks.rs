//! cryptsetup, working on a header in memory.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use cloister_luks_header::{DiskHead, HEADER_BYTES, Header, cryptsetup};
use tokio::process::Command;
use zeroize::Zeroizing;

use super::DataDiskError;
use crate::machine::disks::Disk;
use crate::output::{CommandError, Running};

/// The device of decrypted blocks, as the device mapper names it.
const DEVICE_NAME: &str = "data";
pub(super) const DEVICE: &str = "/dev/mapper/data";
const SCRATCH: &str = "data-disk-header";

/// The header that cryptsetup works on. Removed when this is dropped.
pub(super) struct Scratch {
    path: String,
}

impl Scratch {
    /// Puts a header into `directory`, which is in memory; without one, room for it.
    pub(super) fn new(directory: &Path, header: Option<&Header>) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let file = directory.join(SCRATCH);
        fs::write(&file, header.map_or_else(|| vec![0; HEADER_BYTES], Header::image))?;
        Ok(Self { path: file.to_string_lossy().into_owned() })
    }

    /// Makes a new volume key under `key`. The disk itself is not written.
    pub(super) async fn format(
        &self,
        disk: &Disk,
        seed: &[u8; cloister_luks_header::SEED_BYTES],
        key: &[u8; 32],
    ) -> Result<(), DataDiskError> {
        let device = disk.device.to_string_lossy();
        let arguments = cryptsetup::format(&self.path, &device, seed);
        run(&arguments, &[key]).await.map_err(DataDiskError::Encrypt)
    }

    /// Makes the device of decrypted blocks; false if the key is another.
    pub(super) async fn open(&self, disk: &Disk, key: &[u8; 32]) -> Result<bool, DataDiskError> {
        let device = disk.device.to_string_lossy();
        right_key(run(&cryptsetup::open(&self.path, &device, DEVICE_NAME), &[key]).await)
    }

    /// Puts the volume key under `current` in place of `former`; false if it was not under that.
    pub(super) async fn change_key(
        &self,
        former: &[u8; 32],
        current: &[u8; 32],
    ) -> Result<bool, DataDiskError> {
        right_key(run(&cryptsetup::change_key(&self.path), &[former, current]).await)
    }

    /// The header as it is now, checked like one from a disk.
    pub(super) fn header(&self) -> Result<Box<Header>, DataDiskError> {
        let bytes = fs::read(&self.path).map_err(DataDiskError::Scratch)?;
        match cloister_luks_header::survey(&bytes).map_err(DataDiskError::Header)? {
            DiskHead::Header(header) => Ok(header),
            DiskHead::Blank => Err(DataDiskError::Foreign),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It ends with the machine at the latest, and holds nothing that the disk does not.
        let _ = fs::remove_file(Path::new(&self.path));
    }
}

/// Runs cryptsetup with keys on its standard input: an argument or a file could be seen by others. LUKS
/// takes texts, so each is its 64 hexadecimal digits.
async fn run(arguments: &[String], keys: &[&[u8; 32]]) -> Result<(), CommandError> {
    let mut command = Command::new("cryptsetup");
    command.args(arguments);
    let (reader, mut writer) =
        io::pipe().map_err(|source| CommandError::Run { program: "cryptsetup".to_owned(), source })?;
    for key in keys {
        let mut digits = Zeroizing::new([0; 64]);
        // Both lengths are fixed, and a new pipe holds a page.
        let _ = hex::encode_to_slice(key, digits.as_mut());
        writer
            .write_all(digits.as_ref())
            .map_err(|source| CommandError::Run { program: "cryptsetup".to_owned(), source })?;
    }
    drop(writer);
    Running::start_with(&mut command, reader)?.finish(|_| ()).await
}

fn right_key(result: Result<(), CommandError>) -> Result<bool, DataDiskError> {
    match result {
        Ok(()) => Ok(true),
        Err(CommandError::Failed { status, .. }) if status.code() == Some(cryptsetup::WRONG_KEY) => Ok(false),
        Err(error) => Err(DataDiskError::Open(error)),
    }
}
