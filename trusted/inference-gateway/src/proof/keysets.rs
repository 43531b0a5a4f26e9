//! Keyset documents on disk. They are public; who has a receipt finds its keyset here when another one serves.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use cloister_aci::Keyset;

/// Most documents that are kept; the oldest go first.
const MAX_KEPT: usize = 1024;
/// Longest document, in bytes.
const MAX_BYTES: u64 = 1 << 20;
const SUFFIX: &str = ".json";

/// The documents of one gateway, in a directory of their own.
#[derive(Debug)]
pub(super) struct Keysets(PathBuf);

impl Keysets {
    /// In this directory, which is made when absent.
    pub(super) fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }

    /// Keeps a document; it is on the disk when this returns.
    pub(super) fn keep(&self, keyset: &Keyset) -> io::Result<()> {
        let digest = keyset.digest();
        let path = self.path(hex_of(&digest).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?);
        let unfinished = path.with_extension("new");
        let mut file = File::create(&unfinished)?;
        file.write_all(keyset.canonical().as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        File::open(&self.0)?.sync_all()?;
        self.forget_oldest()
    }

    /// The document with a digest, `sha256:…` or the 64 hex digits alone.
    pub(super) fn document(&self, digest: &str) -> io::Result<Option<String>> {
        let Some(hex) = hex_of(digest) else { return Ok(None) };
        match read(&self.path(hex)) {
            Ok(text) if cloister_aci::sha256(text.as_bytes()) == format!("sha256:{hex}") => Ok(Some(text)),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every document that can be read.
    pub(super) fn all(&self) -> io::Result<Vec<Keyset>> {
        let mut all = Vec::new();
        for path in self.paths()? {
            all.extend(read(&path).ok().and_then(|text| serde_json::from_str::<Keyset>(&text).ok()));
        }
        Ok(all)
    }

    fn forget_oldest(&self) -> io::Result<()> {
        let mut paths = self.paths()?;
        paths.sort_by_cached_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok());
        let surplus = paths.len().saturating_sub(MAX_KEPT);
        paths.iter().take(surplus).try_for_each(fs::remove_file)
    }

    fn paths(&self) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.0)?.collect::<io::Result<Vec<_>>>()?;
        let is_document = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == "json");
        Ok(entries.into_iter().map(|entry| entry.path()).filter(is_document).collect())
    }

    fn path(&self, hex: &str) -> PathBuf {
        self.0.join(format!("{hex}{SUFFIX}"))
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// The digits of a digest; nothing else becomes a file name.
fn hex_of(digest: &str) -> Option<&str> {
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    let is_hex = hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then_some(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyset(not_after: u64) -> Keyset {
        Keyset {
            e2ee_public_keys: Vec::new(),
            not_after,
            receipt_signing_keys: Vec::new(),
            subject: None,
            tls_public_keys: Vec::new(),
        }
    }

    #[test]
    fn documents_are_found_by_their_digest_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let keysets = Keysets::open(dir.path().join("keysets")).unwrap();
        keysets.keep(&keyset(1)).unwrap();
        keysets.keep(&keyset(1)).unwrap();
        let digest = keyset(1).digest();
        assert_eq!(keysets.document(&digest).unwrap(), Some(keyset(1).canonical()));
        assert_eq!(keysets.document(&digest["sha256:".len()..]).unwrap(), Some(keyset(1).canonical()));
        fs::write(dir.path().join("secret.json"), "x").unwrap();
        for unknown in ["", "../secret", "sha256:../secret", &digest.to_uppercase(), &keyset(2).digest()] {
            assert_eq!(keysets.document(unknown).unwrap(), None, "{unknown}");
        }
        assert_eq!(Keysets::open(dir.path().join("keysets")).unwrap().all().unwrap(), [keyset(1)]);
        // A document that somebody changed is none.
        let path = keysets.path(&digest["sha256:".len()..]);
        fs::write(path, keyset(3).canonical()).unwrap();
        assert_eq!(keysets.document(&digest).unwrap(), None);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let keysets = Keysets::open(dir.path().to_owned()).unwrap();
        for number in 0..MAX_KEPT {
            fs::write(keysets.path(&format!("{number:064x}")), "x").unwrap();
        }
        keysets.keep(&keyset(1)).unwrap();
        assert_eq!(keysets.paths().unwrap().len(), MAX_KEPT);
        assert!(keysets.document(&keyset(1).digest()).unwrap().is_some());
    }
}
