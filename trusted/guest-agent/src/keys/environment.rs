//! The environment that the deployer sealed to the application: opened, and kept openable when the KMS
//! changes its root.
//!
//! The node keeps the blob that the deployer sent and hands it over at each boot. Once the root under which
//! it was sealed is retired it cannot be opened any more; so what was opened by a former key is sealed to
//! the current one, and that copy lies on the encrypted data disk under the name of the blob it replaces.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use cloister_sealed_env::{
    Environment, InvalidEnvironment, OpenError, SealError, open, public_key, seal_bytes,
};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::{AppKeys, RootedKeys};

/// Directory on the data disk.
const COPIES: &str = "sealed-environment";

/// Why an application does not get its environment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvironmentError {
    #[error(
        "an environment was given, but the application has no key provider that could open it; set kms_enabled to true or deploy without environment"
    )]
    NoProvider,
    #[error(
        "the environment cannot be opened; seal it to the key that the KMS gives for this application and deploy again"
    )]
    Open(#[source] OpenError),
    #[error("the environment is not usable")]
    Contents(#[from] InvalidEnvironment),
    #[error("the environment cannot be sealed again")]
    Seal(#[from] SealError<io::Error>),
    #[error("the data disk does not take the environment that was sealed again")]
    Disk(#[from] io::Error),
}

/// Opens a sealed environment. `data` is the encrypted data disk; afterwards it holds a copy under the
/// current root if the blob itself is under a former one, and no copies of other blobs.
pub(crate) fn unseal(
    blob: Option<&[u8]>,
    keys: Option<&AppKeys>,
    data: &Path,
    random: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
) -> Result<Environment, EnvironmentError> {
    let Some(keys) = keys else {
        return match blob {
            None => Ok(Environment::default()),
            Some(_) => Err(EnvironmentError::NoProvider),
        };
    };
    let copies = data.join(COPIES);
    let Some(blob) = blob else {
        remove_others(&copies, None)?;
        return Ok(Environment::default());
    };
    let copy = copies.join(hex::encode(Sha256::digest(blob)));
    let plain = match open(keys.current().env_key(), blob) {
        Ok(plain) => {
            remove_others(&copies, None)?;
            plain
        }
        Err(error) => {
            let kept = fs::read(&copy).ok().and_then(|kept| open_by_any(keys, &kept));
            let (plain, by_current) =
                kept.or_else(|| open_by_any(keys, blob)).ok_or(EnvironmentError::Open(error))?;
            if !by_current {
                let sealed = seal_bytes(&public_key(keys.current().env_key()), &plain, random)?;
                write(&copy, &sealed)?;
            }
            remove_others(&copies, Some(&copy))?;
            plain
        }
    };
    Ok(Environment::parse(&plain)?)
}

/// The contents, and whether the current key opened it.
fn open_by_any(keys: &AppKeys, blob: &[u8]) -> Option<(Zeroizing<Vec<u8>>, bool)> {
    let by = |keys: &RootedKeys| open(keys.env_key(), blob).ok();
    let current = by(keys.current()).map(|plain| (plain, true));
    current.or_else(|| keys.former().iter().find_map(by).map(|plain| (plain, false)))
}

/// Written aside and renamed, so that a power cut leaves the whole copy or what was there before.
fn write(copy: &Path, sealed: &[u8]) -> io::Result<()> {
    let directory = copy.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let new: PathBuf = copy.with_extension("new");
    let mut out = File::create(&new)?;
    out.write_all(sealed)?;
    out.sync_all()?;
    fs::rename(&new, copy)?;
    File::open(directory)?.sync_all()
}

fn remove_others(copies: &Path, kept: Option<&Path>) -> io::Result<()> {
    let entries = match fs::read_dir(copies) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if Some(path.as_path()) != kept {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
