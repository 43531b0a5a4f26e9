//! The hash of a guest image in a directory.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use cloister_app_compose::OsImageHash;
use sha2::{Digest as _, Sha256};

use crate::failure::Failure;
use crate::files::read_text;

/// Longest list of files, in bytes.
const MAX_LIST_BYTES: u64 = 64 * 1024;
const LIST: &str = "sha256sum.txt";

/// SHA-256 of the image's list of files, after each file was compared with it.
pub(super) fn hash(directory: &Path) -> Result<OsImageHash, Failure> {
    let list = read_text(&directory.join(LIST), MAX_LIST_BYTES)
        .map_err(|failure| failure.hint("--image takes the directory of one guest image"))?;
    let malformed = || Failure::usage(format!("{LIST} in {} is malformed", directory.display()));
    for line in list.lines() {
        let (expected, name) = line.split_once("  ").ok_or_else(malformed)?;
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(malformed());
        }
        let path = directory.join(name);
        if hash_file(&path)? != expected {
            let message = format!("{} is not the file that {LIST} lists", path.display());
            return Err(Failure::usage(message).hint("get or build the image again"));
        }
    }
    Ok(OsImageHash::from_bytes(Sha256::digest(&list).into()))
}

fn hash_file(path: &PathBuf) -> Result<String, Failure> {
    let mut hasher = Sha256::new();
    File::open(path)
        .and_then(|mut file| {
            let mut buffer = vec![0; 1 << 16];
            loop {
                let count = io::Read::read(&mut file, &mut buffer)?;
                match buffer.get(..count) {
                    None | Some([]) => return Ok(()),
                    Some(part) => hasher.update(part),
                }
            }
        })
        .map_err(|error| Failure::usage(format!("cannot read {}", path.display())).caused_by(error))?;
    Ok(hex::encode(hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_the_hash_of_its_list_while_its_files_are_those_listed() {
        let directory = tempfile::tempdir().unwrap();
        let line = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
            format!("{}  {name}\n", hex::encode(Sha256::digest(text)))
        };
        let list = line("kernel", "kernel") + &line("initrd", "initrd");
        std::fs::write(directory.path().join(LIST), &list).unwrap();
        let expected: [u8; 32] = Sha256::digest(&list).into();
        assert_eq!(hash(directory.path()).unwrap().as_bytes(), &expected);

        std::fs::write(directory.path().join("kernel"), "kernal").unwrap();
        assert!(hash(directory.path()).unwrap_err().message.contains("kernel"));
        std::fs::write(directory.path().join(LIST), format!("{}  ../x\n", "0".repeat(64))).unwrap();
        assert!(hash(directory.path()).unwrap_err().message.contains("malformed"));
    }
}
