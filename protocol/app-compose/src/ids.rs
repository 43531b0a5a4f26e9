//! Identifiers that are fixed-length hex on every wire.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
}
