use std::fmt;

use cloister_kms_api::{AppKeyResponse, FormerKeys, SecretHex};
use zeroize::Zeroizing;

/// Roots that a KMS can hold keys of at the same time; more are no answer of a KMS.
const MAX_FORMER: usize = 64;

/// Why the answer of a KMS cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidKeys {
    /// A key or signature of another length than it must have.
    #[error("the KMS sent a {0} of a wrong length")]
    Length(&'static str),
    /// Former roots that are not older than the current one, or not in order.
    #[error("the KMS sent former keys out of order")]
    Order,
}

/// Keys of the application and this CVM under one version of the root.
pub(crate) struct RootedKeys {
    root_version: u32,
    disk_key: Zeroizing<[u8; 32]>,
    env_key: Zeroizing<[u8; 32]>,
    k256_key: Zeroizing<[u8; 32]>,
    k256_signature: [u8; 65],
}

/// All keys that the KMS released: those under its current root, and those under former roots that are not
/// retired yet.
pub(crate) struct AppKeys {
    current: RootedKeys,
    former: Vec<RootedKeys>,
}

impl RootedKeys {
    /// Version of the root that the keys come from; 1 is the first.
    pub(crate) const fn root_version(&self) -> u32 {
        self.root_version
    }

    /// Opens the data disk.
    pub(crate) fn disk_key(&self) -> &[u8; 32] {
        &self.disk_key
    }

    /// X25519 secret that opens the environment.
    pub(crate) fn env_key(&self) -> &[u8; 32] {
        &self.env_key
    }

    /// secp256k1 secret from which the application's own keys are derived.
    pub(crate) fn k256_key(&self) -> &[u8; 32] {
        &self.k256_key
    }

    /// The root's recoverable signature (r ‖ s ‖ recovery id) over the public side of
    /// [`k256_key`](Self::k256_key).
    pub(crate) const fn k256_signature(&self) -> &[u8; 65] {
        &self.k256_signature
    }
}

impl AppKeys {
    /// Takes over what a KMS answered.
    pub(crate) fn from_answer(answer: &AppKeyResponse) -> Result<Self, InvalidKeys> {
        let current = RootedKeys {
            root_version: answer.root_version,
            disk_key: secret(&answer.disk_crypt_key, "disk key")?,
            env_key: secret(&answer.env_crypt_key, "environment key")?,
            k256_key: secret(&answer.k256_key, "secp256k1 key")?,
            k256_signature: signature(answer.k256_signature.as_ref())?,
        };
        let former = answer.former.iter().map(RootedKeys::former).collect::<Result<Vec<_>, _>>()?;
        let versions = || std::iter::once(&current).chain(&former).map(RootedKeys::root_version);
        let descend = versions().zip(versions().skip(1)).all(|(newer, older)| newer > older);
        if former.len() > MAX_FORMER || !descend {
            return Err(InvalidKeys::Order);
        }
        Ok(Self { current, former })
    }

    /// Keys under the current root.
    pub(crate) const fn current(&self) -> &RootedKeys {
        &self.current
    }

    /// Keys under former roots, newest first.
    pub(crate) fn former(&self) -> &[RootedKeys] {
        &self.former
    }

    /// Keys under one version of the root; `None` where the KMS released none.
    pub(crate) fn of_version(&self, root_version: u32) -> Option<&RootedKeys> {
        std::iter::once(&self.current).chain(&self.former).find(|keys| keys.root_version == root_version)
    }
}

impl RootedKeys {
    fn former(keys: &FormerKeys) -> Result<Self, InvalidKeys> {
        Ok(Self {
            root_version: keys.root_version,
            disk_key: secret(&keys.disk_crypt_key, "former disk key")?,
            env_key: secret(&keys.env_crypt_key, "former environment key")?,
            k256_key: secret(&keys.k256_key, "former secp256k1 key")?,
            k256_signature: signature(keys.k256_signature.as_ref())?,
        })
    }
}

fn secret(bytes: &SecretHex, name: &'static str) -> Result<Zeroizing<[u8; 32]>, InvalidKeys> {
    let bytes: &[u8; 32] = bytes.as_ref().try_into().map_err(|_| InvalidKeys::Length(name))?;
    Ok(Zeroizing::new(*bytes))
}

fn signature(bytes: &[u8]) -> Result<[u8; 65], InvalidKeys> {
    bytes.try_into().map_err(|_| InvalidKeys::Length("signature"))
}

impl fmt::Debug for RootedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RootedKeys").field("root_version", &self.root_version).finish_non_exhaustive()
    }
}

impl fmt::Debug for AppKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppKeys")
            .field("current", &self.current)
            .field("former", &self.former)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use cloister_kms_api::Hex;

    use super::*;

    /// Bytes that differ by kind of key and version.
    fn filled<const N: usize>(kind: u8, version: u32) -> [u8; N] {
        let mut bytes = [kind; N];
        // Not in the first byte: X25519 leaves out some bits of it.
        bytes[1] = u8::try_from(version).unwrap();
        bytes
    }

    /// What a KMS answers whose roots have these versions, newest first.
    pub(crate) fn answer(versions: &[u32]) -> AppKeyResponse {
        let former = versions[1..].iter().map(|version| FormerKeys {
            root_version: *version,
            disk_crypt_key: filled::<32>(0xD0, *version).into(),
            env_crypt_key: filled::<32>(0xE0, *version).into(),
            k256_key: filled::<32>(0x20, *version).into(),
            k256_signature: Hex::from(filled::<65>(0x50, *version)),
        });
        AppKeyResponse {
            ca_cert: String::new(),
            disk_crypt_key: filled::<32>(0xD0, versions[0]).into(),
            env_crypt_key: filled::<32>(0xE0, versions[0]).into(),
            k256_key: filled::<32>(0x20, versions[0]).into(),
            k256_signature: Hex::from(filled::<65>(0x50, versions[0])),
            gateway_app_id: String::new(),
            tproxy_app_id: String::new(),
            os_image_hash: Hex::from([0xE6; 32]),
            root_version: versions[0],
            former: former.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_every_version_that_was_released() {
        let keys = AppKeys::from_answer(&testing::answer(&[3, 2, 1])).unwrap();
        assert_eq!(keys.current().root_version(), 3);
        assert_eq!(keys.former().len(), 2);
        assert_eq!(keys.of_version(1).unwrap().disk_key(), &{
            let mut key = [0xD0; 32];
            key[1] = 1;
            key
        });
        assert!(keys.of_version(4).is_none());
    }

    #[test]
    fn refuses_what_no_kms_sends() {
        let refused = |change: &dyn Fn(&mut AppKeyResponse)| {
            let mut answer = testing::answer(&[2, 1]);
            change(&mut answer);
            AppKeys::from_answer(&answer).unwrap_err()
        };
        assert_eq!(
            refused(&|answer| answer.disk_crypt_key = vec![1; 31].into()),
            InvalidKeys::Length("disk key")
        );
        assert_eq!(
            refused(&|answer| answer.former[0].env_crypt_key = vec![1; 33].into()),
            InvalidKeys::Length("former environment key")
        );
        assert_eq!(
            refused(&|answer| answer.k256_signature = vec![1; 64].into()),
            InvalidKeys::Length("signature")
        );
        assert_eq!(refused(&|answer| answer.former[0].root_version = 2), InvalidKeys::Order);
    }

    #[test]
    fn tells_no_key_when_printed() {
        let keys = AppKeys::from_answer(&testing::answer(&[2, 1])).unwrap();
        insta::assert_debug_snapshot!(keys);
    }
}
