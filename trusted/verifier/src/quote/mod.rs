//! SGX and TDX quotes.

mod envelope;
mod known;
mod verify;

use std::fmt;
use std::sync::Arc;

use cloister_evidence::{Measurement, Registers};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Collateral, TcbStatus, TrustRoot};

pub(crate) use envelope::Envelope;
pub use envelope::MAX_QUOTE_BYTES;
pub(crate) use known::KnownPlatforms;
pub(crate) use verify::verify;

/// Kind of protected machine that a quote speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tee {
    /// An SGX enclave.
    Sgx,
    /// A TDX trust domain.
    Tdx,
}

impl Tee {
    /// As in addresses of collateral services.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sgx => "sgx",
            Self::Tdx => "tdx",
        }
    }
}

impl fmt::Display for Tee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sgx => "SGX",
            Self::Tdx => "TDX",
        })
    }
}

/// Identity of an SGX enclave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enclave {
    /// Measurement of its code.
    pub mr_enclave: [u8; 32],
    /// Hash of its signer's key.
    pub mr_signer: [u8; 32],
    /// Product number by the signer.
    pub isv_prod_id: u16,
    /// Security version by the signer.
    pub isv_svn: u16,
}

/// A quote whose signatures hold up to a trusted root. What its TCB status and measurements are worth is
/// for a [`Policy`](crate::Policy) to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedQuote {
    /// Who vouches in the end.
    pub trust_root: TrustRoot,
    /// Kind of machine.
    pub tee: Tee,
    /// Version of the quote's layout: 3, 4 or 5.
    pub version: u16,
    /// Status of platform, module and quoting enclave together; never [`TcbStatus::Revoked`].
    pub tcb_status: TcbStatus,
    /// Security advisories that apply to the platform.
    pub advisory_ids: Vec<String>,
    /// When the vendor published the platform's TCB level, UNIX seconds.
    pub tcb_date: i64,
    /// Number of the vendor's evaluation that judged the platform.
    pub tcb_evaluation: u32,
    /// Platform provisioning id: names the machine.
    pub ppid: [u8; 16],
    /// SHA-256 of `ppid`.
    pub device_id: [u8; 32],
    /// Family, model, stepping, platform and custom SKU.
    pub fmspc: [u8; 6],
    /// Measurement registers; TDX only.
    pub registers: Option<Registers>,
    /// MRCONFIGID; zeros for SGX.
    pub mr_config_id: Measurement,
    /// MROWNER; zeros for SGX.
    pub mr_owner: Measurement,
    /// MROWNERCONFIG; zeros for SGX.
    pub mr_owner_config: Measurement,
    /// TD attributes; zeros for SGX.
    pub td_attributes: [u8; 8],
    /// Enclave identity; SGX only.
    pub enclave: Option<Enclave>,
    /// The bytes that the quote was made over.
    pub report_data: [u8; 64],
    /// What the vendor said about the platform.
    pub collateral: Arc<Collateral>,
    /// When the newest part of that was issued, certificates and revocation lists included.
    pub issued_at: Timestamp,
    /// When the first part of that ends, certificates and revocation lists included.
    pub valid_until: Timestamp,
    /// The time that was taken for now.
    pub verified_at: Timestamp,
}
