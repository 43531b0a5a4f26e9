//! The CVM's identity among those of its application.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use cloister_app_compose::{AppId, InstanceId};
use sha2::{Digest as _, Sha256};

const SEED_FILE: &str = "instance-seed";
const SEED_BYTES: usize = 20;

/// What tells CVMs of one application apart: random, public, made on a disk's first boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InstanceSeed(pub(crate) [u8; SEED_BYTES]);

impl InstanceSeed {
    /// A new one.
    pub(crate) fn random() -> io::Result<Self> {
        let mut seed = [0; SEED_BYTES];
        getrandom::fill(&mut seed).map_err(io::Error::from)?;
        Ok(Self(seed))
    }

    /// The first 20 bytes of SHA-256 over seed and app id.
    pub(crate) fn instance_id(&self, app: &AppId) -> InstanceId {
        let digest: [u8; 32] =
            Sha256::new().chain_update(self.0).chain_update(app.as_bytes()).finalize().into();
        let mut id = [0; 20];
        id.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        InstanceId::from_bytes(id)
    }
}

/// The identity of a CVM whose data disk is not encrypted: its seed is made on the first boot and kept in
/// `data`.
pub(crate) fn instance_id(data: &Path, app: &AppId) -> io::Result<InstanceId> {
    let file = data.join(SEED_FILE);
    let seed = match fs::read(&file) {
        Ok(bytes) => InstanceSeed(bytes.try_into().map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "the seed of the instance id is damaged")
        })?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_seed(&file)?,
        Err(error) => return Err(error),
    };
    Ok(seed.instance_id(app))
}

/// Written aside and renamed, so that a power cut leaves the whole seed or none.
fn make_seed(file: &Path) -> io::Result<InstanceSeed> {
    let seed = InstanceSeed::random()?;
    let new = file.with_extension("new");
    let mut out = fs::File::create(&new)?;
    out.write_all(&seed.0)?;
    out.sync_all()?;
    fs::rename(new, file)?;
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: &str = "6f809b3214eb9a69571ad008289d9551fa9a4272";

    #[test]
    fn derives_as_the_platform_does() {
        let seed = InstanceSeed(std::array::from_fn(|i| u8::try_from(i).unwrap()));
        let id = seed.instance_id(&APP.parse().unwrap());
        assert_eq!(id.to_string(), "836a333a23811140f86b94c3c8a7cb0deef0a6d5");
    }

    #[test]
    fn stays_the_same_over_boots_and_refuses_a_damaged_seed() {
        let data = tempfile::tempdir().unwrap();
        let app = APP.parse().unwrap();
        let first = instance_id(data.path(), &app).unwrap();
        assert_eq!(instance_id(data.path(), &app).unwrap(), first);
        fs::write(data.path().join(SEED_FILE), "short").unwrap();
        assert!(instance_id(data.path(), &app).is_err());
    }
}
