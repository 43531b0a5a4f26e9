//! Measurement registers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha384};

/// A SHA-384 digest or the value of a register that accumulates them: 48 bytes, lower-case hex in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Measurement([u8; 48]);

/// A text that is not a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a measurement must be 96 hex digits, with or without 0x")]
pub struct InvalidMeasurement;

impl Measurement {
    /// What a register holds before anything was measured into it.
    pub const ZERO: Self = Self([0; 48]);

    /// Wraps raw bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 48]) -> Self {
        Self(bytes)
    }

    /// The raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 48] {
        &self.0
    }

    /// SHA-384 of `bytes`.
    #[must_use]
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha384::digest(bytes).into())
    }

    /// The register's value after `digest` was measured into it: SHA-384(register ‖ digest).
    #[must_use]
    pub fn extended_by(&self, digest: &Self) -> Self {
        let mut hasher = Sha384::new();
        hasher.update(self.0);
        hasher.update(digest.0);
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Measurement({self})")
    }
}

impl FromStr for Measurement {
    type Err = InvalidMeasurement;

    /// Accepts upper and lower case and a leading `0x`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let mut bytes = [0; 48];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| InvalidMeasurement)?;
        Ok(Self(bytes))
    }
}

impl Serialize for Measurement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Measurement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The measurement registers of a trust domain: MRTD, which covers its first memory, and RTMR 0 to 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    /// Firmware.
    pub mrtd: Measurement,
    /// Configuration of the virtual machine.
    pub rtmr0: Measurement,
    /// Kernel.
    pub rtmr1: Measurement,
    /// Command line and initial RAM disk.
    pub rtmr2: Measurement,
    /// Runtime events: application, identity, keys.
    pub rtmr3: Measurement,
}

impl Registers {
    /// RTMR 0 to 3 in order.
    #[must_use]
    pub const fn rtmrs(&self) -> [&Measurement; 4] {
        [&self.rtmr0, &self.rtmr1, &self.rtmr2, &self.rtmr3]
    }
}
