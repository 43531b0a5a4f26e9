//! Values of requests that have a form of their own.

use std::fmt;

use cloister_app_compose::decode::{self, Decode, Reader};
use jiff::{Timestamp, civil, tz};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Fewest bytes of a sealed environment: public key, nonce, tag and something between.
pub const MIN_SEALED_BYTES: usize = 61;
/// Most bytes of a sealed environment.
pub const MAX_SEALED_BYTES: usize = 256 * 1024;

/// Kinds of key management services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KmsType {
    /// Off chain.
    Phala,
    /// Owned by contracts on Ethereum.
    Ethereum,
    /// Owned by contracts on Base.
    Base,
    /// From before kinds existed.
    Legacy,
}

impl Decode for KmsType {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        let text = String::decode(value, reader)?;
        // Public clients write the name in capitals.
        let kind = match text.to_ascii_lowercase().as_str() {
            "phala" => Some(Self::Phala),
            "ethereum" => Some(Self::Ethereum),
            "base" => Some(Self::Base),
            "legacy" => Some(Self::Legacy),
            _ => None,
        };
        if kind.is_none() {
            reader.fault("enum", "Input should be 'phala', 'ethereum', 'base' or 'legacy'");
        }
        kind
    }
}

/// An instant: RFC 3339, or without an offset as UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instant(pub Timestamp);

impl std::str::FromStr for Instant {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let naive = || -> Option<Timestamp> {
            Some(text.parse::<civil::DateTime>().ok()?.to_zoned(tz::TimeZone::UTC).ok()?.timestamp())
        };
        text.parse().ok().or_else(naive).map(Self).ok_or("Input should be a valid datetime")
    }
}

impl Decode for Instant {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        decode::parsed(value, reader)
    }
}

/// Reads identifiers that only the request gives a type, through [`std::str::FromStr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed<T>(pub T);

impl<T> Decode for Parsed<T>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        decode::parsed(value, reader).map(Self)
    }
}

/// Like [`Parsed`]; an empty text stands for nothing, as some clients write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Optional<T>(pub Option<T>);

impl<T> Decode for Optional<T>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        if value.as_str() == Some("") {
            return Some(Self(None));
        }
        decode::parsed(value, reader).map(|value| Self(Some(value)))
    }
}

/// A device: SHA-256 of its platform's provisioning id, or what a contract knows as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceId(pub [u8; 32]);

/// A text that cannot be a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("device id must have 64 hex digits")]
pub struct InvalidDeviceId;

impl std::str::FromStr for DeviceId {
    type Err = InvalidDeviceId;

    fn from_str(text: &str) -> Result<Self, InvalidDeviceId> {
        let mut bytes = [0; 32];
        let digits = text.strip_prefix("0x").unwrap_or(text);
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| InvalidDeviceId)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A sealed environment: hex of what only the application's key opens.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedEnv(String);

impl fmt::Debug for SealedEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} sealed bytes]", self.0.len() / 2)
    }
}

/// A text that cannot be a sealed environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("encrypted_env must be hex of {MIN_SEALED_BYTES} to {MAX_SEALED_BYTES} bytes")]
pub struct InvalidSealedEnv;

impl SealedEnv {
    /// Lower-case hex without `0x`.
    #[must_use]
    pub fn as_hex(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for SealedEnv {
    type Err = InvalidSealedEnv;

    fn from_str(text: &str) -> Result<Self, InvalidSealedEnv> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let wellformed = (2 * MIN_SEALED_BYTES..=2 * MAX_SEALED_BYTES).contains(&digits.len())
            && digits.len().is_multiple_of(2)
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if wellformed { Ok(Self(digits.to_ascii_lowercase())) } else { Err(InvalidSealedEnv) }
    }
}
