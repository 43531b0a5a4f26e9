//! What cryptsetup is told. Keys never stand in arguments: it reads them from its standard input.

use crate::{HEADER_BYTES, PAYLOAD_OFFSET, SEED_BYTES};

/// Status with which cryptsetup ends when the key opens no key slot.
pub const WRONG_KEY: i32 = 2;

pub(crate) const SUBSYSTEM: &str = "cloister-data";
pub(crate) const CIPHER: &str = "aes-xts-plain64";
/// Two AES-256 keys, as XTS takes.
pub(crate) const KEY_BYTES: u32 = 64;
/// Costs an emulated CPU less than SHA-256, which takes twice as many rounds to split a key.
pub(crate) const HASH: &str = "sha512";
/// The least that LUKS2 allows. Iterations make guessing passwords expensive; a key of 256 random bits
/// cannot be guessed, and an emulated guest would wait for each.
pub(crate) const ITERATIONS: u32 = 1000;
/// Larger sectors cost less per byte, and file systems write blocks of this size anyway.
pub(crate) const SECTOR_BYTES: u32 = 4096;
/// Hexadecimal digits of a key of 32 bytes, which are what LUKS takes as the passphrase.
const PASSPHRASE_BYTES: usize = 64;

/// Makes a header in the file `header` of [`HEADER_BYTES`] zeros, for the disk `device`, which it does not
/// write to. Reads the passphrase from standard input.
#[must_use]
pub fn format(header: &str, device: &str, seed: &[u8; SEED_BYTES]) -> Vec<String> {
    let keyslots = HEADER_BYTES - 2 * crate::COPY_BYTES;
    let mut arguments = words(&["luksFormat", "--type=luks2", "--key-file=-", "--luks2-metadata-size=16k"]);
    arguments.extend([
        format!("--header={header}"),
        format!("--offset={}", PAYLOAD_OFFSET / 512),
        format!("--cipher={CIPHER}"),
        format!("--key-size={}", KEY_BYTES * 8),
        format!("--sector-size={SECTOR_BYTES}"),
        format!("--luks2-keyslots-size={keyslots}"),
        format!("--label={}", hex::encode(seed)),
        format!("--subsystem={SUBSYSTEM}"),
    ]);
    arguments.extend(derivation());
    arguments.push(device.to_owned());
    arguments
}

/// Opens the disk `device` by the header in a file, as `/dev/mapper/<name>`. Reads the passphrase from
/// standard input.
#[must_use]
pub fn open(header: &str, device: &str, name: &str) -> Vec<String> {
    let mut arguments = words(&["open", "--type=luks2", "--key-file=-"]);
    arguments.extend([format!("--header={header}"), device.to_owned(), name.to_owned()]);
    arguments.extend(common());
    arguments
}

/// Replaces the key in the header in a file. Reads the passphrases from standard input, former and new,
/// without anything between them.
#[must_use]
pub fn change_key(header: &str) -> Vec<String> {
    let mut arguments = words(&["luksChangeKey", "--type=luks2", "--key-file=-"]);
    arguments.extend([
        format!("--keyfile-size={PASSPHRASE_BYTES}"),
        format!("--new-keyfile-size={PASSPHRASE_BYTES}"),
    ]);
    arguments.extend(derivation());
    arguments.extend([header.to_owned(), "-".to_owned()]);
    arguments
}

fn derivation() -> Vec<String> {
    let mut arguments = common();
    arguments.push("--pbkdf=pbkdf2".to_owned());
    arguments.push(format!("--pbkdf-force-iterations={ITERATIONS}"));
    arguments.push(format!("--hash={HASH}"));
    arguments
}

/// The header is a file of its caller's alone, so there is nobody to lock out.
fn common() -> Vec<String> {
    words(&["--batch-mode", "--disable-locks"])
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
