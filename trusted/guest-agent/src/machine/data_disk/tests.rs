//! What is judged without a device mapper: files stand for disks.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::encrypted::reseal;
use super::luks::Scratch;
use super::*;

const SEED: [u8; 20] = [0xc1; 20];

struct Disks(tempfile::TempDir);

impl Disks {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A disk of 32 MiB that begins with `bytes` at `offset`.
    fn with(&self, offset: usize, bytes: &[u8]) -> Disk {
        let mut head = vec![0; HEADER_BYTES];
        head[offset..][..bytes.len()].copy_from_slice(bytes);
        let device = self.0.path().join("disk");
        fs::write(&device, head).unwrap();
        File::options().write(true).open(&device).unwrap().set_len(32 << 20).unwrap();
        Disk { device, bytes: 32 << 20 }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// The first copy of a header that this system made, with a good checksum.
fn header() -> Vec<u8> {
    let mut copy = include_bytes!("../../../../luks-header/fuzz/seeds/header/made").to_vec();
    copy.resize(16 << 10, 0);
    copy[448..512].fill(0);
    let sum = Sha256::digest(&copy);
    copy[448..480].copy_from_slice(&sum);
    copy
}

#[tokio::test]
async fn neither_kind_of_disk_is_taken_for_the_other() {
    let disks = Disks::new();
    let told = async |offset: usize, bytes: &[u8]| {
        let disk = disks.with(offset, bytes);
        let as_plain = match contents(&disk).unwrap() {
            Contents::Blank => "blank".to_owned(),
            Contents::Ext4 { .. } => "plain".to_owned(),
            Contents::Unknown => format!("{:?}", what_else(&disk)),
        };
        let before = fs::read(&disk.device).unwrap();
        let device: PathBuf = disk.device.clone();
        let as_encrypted = EncryptedDisk::on(disk).await.map(|_| "usable").map_err(|error| {
            let text = format!("{error:?}");
            text.split('(').next().unwrap().to_owned()
        });
        assert_eq!(fs::read(device).unwrap(), before, "a disk that is looked at is written");
        (as_plain, as_encrypted)
    };
    let refused = |as_plain: &str, error: &str| (as_plain.to_owned(), Err(error.to_owned()));
    assert_eq!(told(0, &[]).await, ("blank".to_owned(), Ok("usable")));
    assert_eq!(told(0, &header()).await, ("Encrypted".to_owned(), Ok("usable")));
    let mut ext4 = [0; 0x40];
    ext4[0x38..0x3A].copy_from_slice(&[0x53, 0xEF]);
    assert_eq!(told(1024, &ext4).await, refused("plain", "NotEncrypted"));
    assert_eq!(told(0, b"LUKS\xba\xbe\x00\x01").await, refused("Encrypted", "Header"));
    let mut without_cipher = header();
    let at = without_cipher.windows(3).position(|word| word == b"xts").unwrap();
    without_cipher[at] = b'y';
    without_cipher[448..512].fill(0);
    let sum = Sha256::digest(&without_cipher);
    without_cipher[448..480].copy_from_slice(&sum);
    assert_eq!(told(0, &without_cipher).await, refused("Encrypted", "Header"));
    assert_eq!(told(0, b"hsqs").await, refused("Foreign", "Foreign"));
}

#[tokio::test]
async fn the_instance_is_that_of_the_header_and_a_new_one_on_a_blank_disk() {
    let disks = Disks::new();
    let seed = async |bytes: &[u8]| EncryptedDisk::on(disks.with(0, bytes)).await.unwrap().seed();
    assert_eq!(seed(&header()).await, seed(&header()).await);
    assert_ne!(seed(&[]).await, seed(&[]).await);
}

#[tokio::test]
async fn only_keys_that_were_released_open_a_header() {
    let disks = Disks::new();
    let disk = disks.with(0, &[]);
    let (first, second, stranger) = ([1; 32], [2; 32], [9; 32]);
    let scratch = Scratch::new(disks.path(), None).unwrap();
    match scratch.format(&disk, &SEED, &first).await {
        Err(DataDiskError::Encrypt(CommandError::Run { .. })) => {
            eprintln!("SKIPPED: which keys open a header: cryptsetup is not installed");
            return;
        }
        made => made.unwrap(),
    }
    let made = scratch.header().unwrap();
    // A disk of another application or instance: no key of this one opens it, and it stays as it is.
    let strange = DiskKeys { current: &second, former: &[stranger, [0; 32]] };
    assert!(matches!(reseal(&scratch, strange).await, Err(DataDiskError::WrongKey)));
    let none = DiskKeys { current: &second, former: &[] };
    assert!(matches!(reseal(&scratch, none).await, Err(DataDiskError::WrongKey)));
    assert_eq!(scratch.header().unwrap(), made);
    // One of this application, under a former root.
    let rotated = DiskKeys { current: &second, former: &[stranger, first] };
    assert_eq!(reseal(&scratch, rotated).await.unwrap(), 1);
    let resealed = scratch.header().unwrap();
    assert_eq!((resealed.seed(), resealed == made), (SEED, false));
    // The former key is of no use any more.
    let again = DiskKeys { current: &stranger, former: &[first] };
    assert!(matches!(reseal(&scratch, again).await, Err(DataDiskError::WrongKey)));
    // Nothing of it reaches the disk by itself.
    assert!(fs::read(&disk.device).unwrap().iter().all(|byte| *byte == 0));
}
