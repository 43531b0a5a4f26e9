//! Identifiers that are fixed-length hex on every wire.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Sha256;
use sha3::{Digest as _, Keccak256};

/// A text that is not the hex form of an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} must be {digits} hex digits, with or without 0x")]
pub struct InvalidHexId {
    kind: &'static str,
    digits: usize,
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Wraps raw bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            /// The raw bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = InvalidHexId;

            /// Accepts upper and lower case and a leading `0x`.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let digits = text.strip_prefix("0x").unwrap_or(text);
                let mut bytes = [0u8; $bytes];
                hex::decode_to_slice(digits, &mut bytes)
                    .map_err(|_| InvalidHexId { kind: $kind, digits: $bytes * 2 })?;
                Ok(Self(bytes))
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidHexId;

            fn try_from(text: String) -> Result<Self, InvalidHexId> {
                text.parse()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hex_id!(
    /// Identity of an application: 20 bytes, stable over its updates.
    AppId, 20, "app_id"
);
hex_id!(
    /// Identity of one CVM of an application: 20 bytes, made by the guest at first boot.
    InstanceId, 20, "instance_id"
);
hex_id!(
    /// SHA-256 of the exact bytes of an app-compose document.
    ComposeHash, 32, "compose_hash"
);
hex_id!(
    /// SHA-256 over the file list of a guest image; names the image that a CVM boots.
    OsImageHash, 32, "os_image_hash"
);

impl ComposeHash {
    /// Hashes the exact bytes of a document.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl AppId {
    /// The identity of an application that was given none: the first 20 bytes of the hash.
    #[must_use]
    pub fn from_compose_hash(hash: &ComposeHash) -> Self {
        Self(leading(&hash.0))
    }

    /// The address of the contract that `wallet` would create with its transaction number `nonce`:
    /// Keccak-256 over the RLP list of both, without its first 12 bytes. Gives every application of a
    /// workspace an identity that nobody else can take.
    #[must_use]
    pub fn from_wallet(wallet: &[u8; 20], nonce: u64) -> Self {
        let hash: [u8; 32] = Keccak256::digest(rlp_pair(wallet, nonce)).into();
        let mut id = [0; 20];
        id.iter_mut().zip(hash.iter().skip(12)).for_each(|(to, from)| *to = *from);
        Self(id)
    }
}

impl InstanceId {
    /// The identity that a guest gives itself from the random seed of its first boot.
    #[must_use]
    pub fn derive(seed: &[u8], app_id: &AppId) -> Self {
        let hash: [u8; 32] = Sha256::new().chain_update(seed).chain_update(app_id.0).finalize().into();
        Self(leading(&hash))
    }
}

fn leading(hash: &[u8; 32]) -> [u8; 20] {
    std::array::from_fn(|index| hash.get(index).copied().unwrap_or_default())
}

/// RLP of the list of an address and a number; at most 30 bytes, hence a one-byte list header.
fn rlp_pair(address: &[u8; 20], number: u64) -> Vec<u8> {
    let mut payload = vec![0x80 + 20];
    payload.extend_from_slice(address);
    let digits: Vec<u8> = number.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
    match digits.as_slice() {
        [small @ ..=0x7f] => payload.push(*small),
        digits => {
            // At most eight digits.
            payload.extend(u8::try_from(digits.len()).map(|length| 0x80 + length));
            payload.extend_from_slice(digits);
        }
    }
    let mut list = Vec::with_capacity(payload.len() + 1);
    list.extend(u8::try_from(payload.len()).map(|length| 0xc0 + length));
    list.append(&mut payload);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_prefix_and_case_and_prints_lower_case() {
        let id: AppId = "0x6F809B3214EB9A69571AD008289D9551FA9A4272".parse().unwrap();
        assert_eq!(id.to_string(), "6f809b3214eb9a69571ad008289d9551fa9a4272");
    }

    #[test]
    fn refuses_other_lengths_and_digits() {
        for text in ["", "0x", "6f", "zz809b3214eb9a69571ad008289d9551fa9a4272"] {
            assert!(text.parse::<AppId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn derivations_match_the_published_vectors() {
        let hash: ComposeHash =
            "6f809b3214eb9a69571ad008289d9551fa9a4272ffa8f7ad7440e5177d2fec85".parse().unwrap();
        let app_id = AppId::from_compose_hash(&hash);
        assert_eq!(app_id.to_string(), "6f809b3214eb9a69571ad008289d9551fa9a4272");
        let seed: [u8; 20] = std::array::from_fn(|index| u8::try_from(index).unwrap());
        let instance_id = InstanceId::derive(&seed, &app_id);
        assert_eq!(instance_id.to_string(), "836a333a23811140f86b94c3c8a7cb0deef0a6d5");
    }

    #[test]
    fn wallet_ids_match_the_published_vectors() {
        let wallet: AppId = "6ac7ea33f8831ea9dcc53393aaa88b25a785dbf0".parse().unwrap();
        for (nonce, id) in [
            (0, "cd234a471b72ba2f1ccf0a70fcaba648a5eecd8d"),
            (1, "343c43a37d37dff08ae8c4a11544c718abb4fcf8"),
            (2, "f778b86fa74e846c4f0a1fbd1335fe81c00a0c91"),
            (200, "eb7facd118466c9acbcb4ee964a0ac0b0b2ef256"),
        ] {
            assert_eq!(AppId::from_wallet(wallet.as_bytes(), nonce).to_string(), id, "{nonce}");
        }
    }
}
