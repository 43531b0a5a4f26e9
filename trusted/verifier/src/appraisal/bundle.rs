//! Evidence in one file, to be judged later and elsewhere without a network.

use cloister_evidence::AttestationDocument;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Collateral;

/// Version of the format.
const VERSION: u32 = 1;

/// Largest file, in bytes.
pub const MAX_BUNDLE_BYTES: usize = 64 << 20;

/// Everything that a verifier needs but the trust roots, which it must have from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// 1.
    version: u32,
    /// When the evidence was received, by the clock of whoever recorded it. Nothing proves it, so it is
    /// shown and never used as the time to judge at.
    pub captured_at: Timestamp,
    /// The nonce that the evidence was asked for with, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// PEM chain of the TLS certificate that the connection ended at, leaf first, when it carries evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_chain: Option<String>,
    /// What was answered.
    pub document: AttestationDocument,
    /// The vendor's signed statements about the platform, for TDX quotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collateral: Option<Collateral>,
}

/// A file that is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum InvalidBundle {
    /// It is too large.
    #[error("the bundle is larger than {MAX_BUNDLE_BYTES} bytes")]
    TooLarge,
    /// It is not the JSON object that it should be.
    #[error("the bundle is not of the form that is written by --save-bundle")]
    Json(#[source] serde_json::Error),
    /// It was written by a later program.
    #[error("the bundle has version {0}; this program reads version {VERSION}")]
    Version(u32),
}

impl Bundle {
    /// A bundle of what was received at `captured_at`.
    #[must_use]
    pub const fn new(captured_at: Timestamp, document: AttestationDocument) -> Self {
        Self {
            version: VERSION,
            captured_at,
            nonce: None,
            certificate_chain: None,
            document,
            collateral: None,
        }
    }

    /// Reads a file.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidBundle> {
        if bytes.len() > MAX_BUNDLE_BYTES {
            return Err(InvalidBundle::TooLarge);
        }
        let bundle: Self = serde_json::from_slice(bytes).map_err(InvalidBundle::Json)?;
        if bundle.version != VERSION {
            return Err(InvalidBundle::Version(bundle.version));
        }
        Ok(bundle)
    }

    /// The file.
    pub fn to_json(&self) -> Result<Vec<u8>, InvalidBundle> {
        serde_json::to_vec_pretty(self).map_err(InvalidBundle::Json)
    }
}
