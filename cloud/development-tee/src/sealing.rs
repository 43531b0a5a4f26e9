//! What seals a process's own secrets to the platform that it runs on.

use std::fmt;
use std::path::Path;

use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

use crate::TeeError;
use crate::files::read_or_create;

const FILE: &str = "sealing";
const KEY_BYTES: usize = 32;
/// Separates these keys from everything else that may come from such a secret one day.
const SALT: &[u8] = b"cloister development platform sealing key v1";
/// Longest path or purpose, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 256;

/// The secret of a platform from which sealing keys come. It belongs to the platform, not to a version of
/// the software on it: a newer executable opens what an older one sealed. Has no readable form.
pub(crate) struct SealingSecret(Zeroizing<[u8; KEY_BYTES]>);

impl fmt::Debug for SealingSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealingSecret").finish_non_exhaustive()
    }
}

/// Length of what is derived.
struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

impl SealingSecret {
    /// Loads the secret kept in `dir`, or makes one there, readable by its owner only: hardware would keep
    /// it in the processor.
    pub(crate) fn load_or_create(dir: &Path) -> Result<Self, TeeError> {
        let generate = || {
            let mut secret = Zeroizing::new([0; KEY_BYTES]);
            SystemRandom::new().fill(secret.as_mut_slice())?;
            Ok(hex::encode(secret.as_slice()))
        };
        let text = Zeroizing::new(read_or_create(&dir.join(FILE), generate)?);
        let mut secret = Zeroizing::new([0; KEY_BYTES]);
        hex::decode_to_slice(text.as_str(), secret.as_mut_slice())
            .map_err(|_| TeeError::Malformed("the file with the platform's sealing secret is damaged"))?;
        Ok(Self(secret))
    }

    /// The key of a path and a purpose, each at most 256 bytes long.
    pub(crate) fn key(&self, path: &str, purpose: &str) -> Result<Zeroizing<[u8; KEY_BYTES]>, TeeError> {
        let mut info = Vec::new();
        for name in [path, purpose] {
            let length = u16::try_from(name.len()).ok().filter(|_| name.len() <= MAX_NAME_BYTES);
            let length = length.ok_or(TeeError::Malformed("the name of a sealing key is too long"))?;
            // The length goes first, so that no two pairs of names make the same text.
            info.extend(length.to_be_bytes());
            info.extend(name.as_bytes());
        }
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        let secret = Salt::new(HKDF_SHA256, SALT).extract(self.0.as_slice());
        secret.expand(&[&info], Length)?.fill(key.as_mut_slice())?;
        Ok(key)
    }
}
