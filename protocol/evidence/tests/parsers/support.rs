//! Test data and damage.

use std::fmt::Debug;
use std::path::PathBuf;

/// The public test data, file by file; `None`, and a loud word, where it is not to be had.
pub(crate) fn published(file: &str) -> Option<Vec<u8>> {
    let root = std::env::var_os("CLOISTER_TESTDATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/testdata")),
        PathBuf::from,
    );
    let path = root.join("tdx").join(file);
    if !root.is_dir() {
        eprintln!("SKIPPED: no test data at {}; name its folder in CLOISTER_TESTDATA", root.display());
        return None;
    }
    Some(std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// A published quote, as bytes; those of old platforms are hex digits in a file.
pub(crate) fn published_bytes(file: &str) -> Option<Vec<u8>> {
    let bytes = published(file)?;
    if file.contains("_old_") {
        Some(hex::decode(String::from_utf8(bytes).unwrap().trim()).unwrap())
    } else {
        Some(bytes)
    }
}

/// Flips bits of every byte: each damaged input must be refused, or say something else.
pub(crate) fn every_flip_shows<T: PartialEq + Debug>(valid: &[u8], parse: impl Fn(&[u8]) -> Option<T>) {
    let original = parse(valid).expect("the undamaged input parses");
    for index in 0..valid.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut damaged = valid.to_vec();
            damaged[index] ^= mask;
            assert_ne!(parse(&damaged).as_ref(), Some(&original), "byte {index} ^ {mask:#x}");
        }
    }
}

/// Cuts the input at every length: each must be refused.
pub(crate) fn every_truncation_fails<T: Debug>(valid: &[u8], parse: impl Fn(&[u8]) -> Option<T>) {
    for length in 0..valid.len() {
        let parsed = parse(&valid[..length]);
        assert!(parsed.is_none(), "{length} of {} bytes gave {parsed:?}", valid.len());
    }
}
