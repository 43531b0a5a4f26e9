//! Quotes that anybody may have verified, and the list of registered platforms.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Request of `POST /attestations/verify` as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifyQuoteRequest {
    /// The quote in hex; `0x` may stand in front, white space around.
    pub hex: String,
}

/// Request of `POST /attestations/verify` as a form: one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerifyQuoteForm {
    /// The quote, its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Binary)]
    pub file: Option<Vec<u8>>,
    /// The quote in hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hex: Option<String>,
}

/// Header of a quote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuoteHeader {
    /// 3, 4 or 5.
    pub version: u16,
    /// Type of the attestation key; 2 is ECDSA P-256.
    pub ak_type: u16,
    /// 0 for SGX, 129 for TDX.
    pub tee_type: u32,
    /// Who made the quoting enclave, `0x` and 32 hex digits.
    pub qe_vendor: String,
    /// `0x` and 40 hex digits.
    pub user_data: String,
}

/// What a quote says about its machine: hex with `0x`, `tee_tcb_svn` without. Members that an SGX quote
/// does not have are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuoteBody {
    /// Security versions of the TEE, 16 bytes.
    pub tee_tcb_svn: String,
    /// Measurement of the TDX module, 48 bytes.
    pub mrseam: String,
    /// Its signer, 48 bytes.
    pub mrsignerseam: String,
    /// Its attributes, 8 bytes.
    pub seamattributes: String,
    /// Attributes of the machine, 8 bytes.
    pub tdattributes: String,
    /// Extended features, 8 bytes.
    pub xfam: String,
    /// Measurement of the machine's first contents, 48 bytes.
    pub mrtd: String,
    /// Configuration that the host named, 48 bytes.
    pub mrconfig: String,
    /// Owner that the host named, 48 bytes.
    pub mrowner: String,
    /// Its configuration, 48 bytes.
    pub mrownerconfig: String,
    /// Runtime register 0, 48 bytes.
    pub rtmr0: String,
    /// Runtime register 1, 48 bytes.
    pub rtmr1: String,
    /// Runtime register 2, 48 bytes.
    pub rtmr2: String,
    /// Runtime register 3, 48 bytes.
    pub rtmr3: String,
    /// What the machine had quoted, 64 bytes.
    pub reportdata: String,
}

/// A parsed quote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParsedQuote {
    /// Header.
    pub header: QuoteHeader,
    /// PEM chain of the platform's certificate.
    pub cert_data: String,
    /// Body.
    pub body: QuoteBody,
    /// Whether it was verified.
    pub verified: bool,
}

/// What a quote is verified with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuoteCollateral {
    /// PEM.
    pub pck_crl_issuer_chain: String,
    /// Hex of DER.
    pub root_ca_crl: String,
    /// Hex of DER.
    pub pck_crl: String,
    /// PEM.
    pub tcb_info_issuer_chain: String,
    /// JSON text.
    pub tcb_info: String,
    /// Hex.
    pub tcb_info_signature: String,
    /// PEM.
    pub qe_identity_issuer_chain: String,
    /// JSON text.
    pub qe_identity: String,
    /// Hex.
    pub qe_identity_signature: String,
}

/// Who runs the machine that a quote came from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeProvider {
    /// Whether it is a registered platform.
    pub proof_of_cloud: bool,
    /// Platform identity of a verified quote, hex; empty otherwise.
    pub ppid: String,
    /// The provider that the registration names; empty otherwise.
    pub provider: String,
}

/// Result of verifying a quote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "the interface's format")]
pub struct QuoteVerification {
    /// The checksum.
    pub id: String,
    /// Whether the quote was made by a genuine platform under the trust root named below. How current the
    /// platform is, `tcb_status` says.
    pub success: bool,
    /// Whether the platform is registered as standing in a vetted facility.
    pub proof_of_cloud: bool,
    /// The quote.
    pub quote: ParsedQuote,
    /// SHA-256 of the quote's bytes, hex.
    pub checksum: String,
    /// Whether the quote can be downloaded.
    pub can_download: bool,
    /// When it first came.
    pub uploaded_at: Timestamp,
    /// When it was verified.
    pub verified_at: Timestamp,
    /// What it was verified with; empty texts when there was none.
    pub quote_collateral: QuoteCollateral,
    /// Who runs its machine.
    pub node_provider: NodeProvider,
    /// Why it was not verified; empty when it was.
    pub reasons: Vec<String>,
    /// The root of trust in plain words; null when it was not verified.
    pub trust_root: Option<String>,
    /// Whether that root stands for protection by hardware; a development root does not.
    pub is_hardware: bool,
    /// Intel's word for how current the platform is; null when it was not verified.
    pub tcb_status: Option<String>,
    /// Intel's advisories that concern the platform.
    pub advisory_ids: Vec<String>,
}

/// A stored quote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoredQuote {
    /// The quote.
    #[serde(flatten)]
    pub quote: ParsedQuote,
    /// SHA-256 of the quote's bytes, hex.
    pub checksum: String,
    /// Whether the quote can be downloaded.
    pub can_download: bool,
    /// When it first came.
    pub uploaded_at: Timestamp,
}

/// A quote in the list of recent ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecentQuote {
    /// SHA-256 of the quote's bytes, hex.
    pub checksum: String,
    /// 1 when it was verified, else 0.
    pub verified: i64,
    /// When it first came.
    pub created_at: Timestamp,
}

/// State of the list of registered platforms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlatformListState {
    /// Whether the installation has a list at all.
    pub configured: bool,
    /// Where it is read from.
    pub source: Option<String>,
    /// The minisign public key that signs it.
    pub signer: Option<String>,
    /// Whether there is a list that has not expired.
    pub usable: bool,
    /// Its serial number.
    pub serial: Option<i64>,
    /// When it was issued.
    pub issued_at: Option<Timestamp>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// Platforms in it, revoked ones included.
    pub platforms: usize,
    /// When it was last looked at.
    pub read_at: Option<Timestamp>,
    /// Why that failed.
    pub error: Option<String>,
}
