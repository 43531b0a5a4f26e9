//! Images from hostile and honest senders.

mod archive;
mod check;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use cloister_app_compose::OsImageHash;
use cloister_evidence::{ImageMeasurement, Measurement};
use sha2::{Digest, Sha256};

use crate::*;

const CMDLINE: &str = "quiet cloister.rootfs_blocks=1";

/// The files of an image that the list covers.
fn files() -> BTreeMap<&'static str, Vec<u8>> {
    let metadata = serde_json::json!({
        "name": "cloister-0.1.0", "version": "0.1.0", "is_dev": true, "bios": "bios.bin", "kernel": "vmlinuz",
        "initrd": "initrd.img", "rootfs": "rootfs.erofs", "cmdline": CMDLINE,
    });
    let mut files = BTreeMap::from([
        ("bios.bin", b"firmware".to_vec()),
        ("vmlinuz", b"kernel".to_vec()),
        ("initrd.img", b"initrd".to_vec()),
        ("rootfs.erofs", b"root".to_vec()),
        (METADATA, metadata.to_string().into_bytes()),
    ]);
    measure(&mut files);
    files
}

/// Makes `measurement.json` anew.
fn measure(files: &mut BTreeMap<&'static str, Vec<u8>>) {
    let of = |name: &str| Measurement::of(&files[name]);
    let measurement = ImageMeasurement {
        firmware: of("bios.bin"),
        kernel: of("vmlinuz"),
        initrd: of("initrd.img"),
        cmdline: CMDLINE.to_owned(),
    };
    files.insert(MEASUREMENT, serde_json::to_vec(&measurement).unwrap());
}

/// The list of these files.
fn list<'a>(files: impl IntoIterator<Item = (&'a &'static str, &'a Vec<u8>)>) -> String {
    let line = |(name, bytes): (&&str, &Vec<u8>)| format!("{}  {name}\n", hex::encode(Sha256::digest(bytes)));
    files.into_iter().map(line).collect()
}

/// Writes the files, and a list that covers them all; the image's hash.
fn write(dir: &Path, files: &BTreeMap<&'static str, Vec<u8>>) -> OsImageHash {
    for (name, bytes) in files {
        fs::write(dir.join(name), bytes).unwrap();
    }
    let sums = list(files);
    fs::write(dir.join(CHECKSUMS), &sums).unwrap();
    OsImageHash::from_bytes(Sha256::digest(sums).into())
}

#[test]
fn names_that_mean_the_same_everywhere() {
    for name in ["vmlinuz", "a_b-1.txt", &"n".repeat(128)] {
        assert!(is_plain(name), "{name}");
    }
    for name in ["", ".", "..", ".hidden", "a/b", "/a", "a b", "a\0", "ä", &"n".repeat(129)] {
        assert!(!is_plain(name), "{name}");
    }
}
