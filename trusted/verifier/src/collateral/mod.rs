//! What a vendor says about its platforms, needed to judge a quote: fetched, kept fresh, handed out.

mod cache;
mod check;
mod fetcher;
mod pccs;
mod source;
mod validity;

use dcap_qvl::QuoteCollateralV3;
use serde::{Deserialize, Serialize};

pub use cache::{CacheError, CollateralCache, CollateralSources};
pub use pccs::{Pccs, PccsError};
pub use source::{CollateralError, CollateralKey, CollateralSource, FetchFuture, InProcess, PckCa, Update};

/// Signed lists and revocation lists that go with a quote. Nothing in it is believed before a quote was
/// verified with it.
///
/// In JSON, bytes are hex; the member names are those that public verifiers use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collateral {
    /// PEM chain of the authority that issued `pck_crl`.
    pub pck_crl_issuer_chain: String,
    /// Certificates that the root revoked, DER.
    #[serde(with = "hex::serde")]
    pub root_ca_crl: Vec<u8>,
    /// Platform certificates that were revoked, DER.
    #[serde(with = "hex::serde")]
    pub pck_crl: Vec<u8>,
    /// PEM chain of the signer of `tcb_info`.
    pub tcb_info_issuer_chain: String,
    /// Exact JSON text of the TCB info.
    pub tcb_info: String,
    /// ECDSA P-256 signature over it, r ‖ s, 64 bytes.
    #[serde(with = "hex::serde")]
    pub tcb_info_signature: Vec<u8>,
    /// PEM chain of the signer of `qe_identity`.
    pub qe_identity_issuer_chain: String,
    /// Exact JSON text of the quoting enclave's identity.
    pub qe_identity: String,
    /// ECDSA P-256 signature over it, r ‖ s, 64 bytes.
    #[serde(with = "hex::serde")]
    pub qe_identity_signature: Vec<u8>,
    /// PEM chain of the platform's certificate; when present it is used instead of the one in the quote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pck_certificate_chain: Option<String>,
}

impl Collateral {
    /// Bytes over all members.
    #[must_use]
    pub fn size(&self) -> usize {
        [
            self.pck_crl_issuer_chain.len(),
            self.root_ca_crl.len(),
            self.pck_crl.len(),
            self.tcb_info_issuer_chain.len(),
            self.tcb_info.len(),
            self.tcb_info_signature.len(),
            self.qe_identity_issuer_chain.len(),
            self.qe_identity.len(),
            self.qe_identity_signature.len(),
            self.pck_certificate_chain.as_ref().map_or(0, String::len),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }
}

impl From<&Collateral> for QuoteCollateralV3 {
    fn from(collateral: &Collateral) -> Self {
        Self {
            pck_crl_issuer_chain: collateral.pck_crl_issuer_chain.clone(),
            root_ca_crl: collateral.root_ca_crl.clone(),
            pck_crl: collateral.pck_crl.clone(),
            tcb_info_issuer_chain: collateral.tcb_info_issuer_chain.clone(),
            tcb_info: collateral.tcb_info.clone(),
            tcb_info_signature: collateral.tcb_info_signature.clone(),
            qe_identity_issuer_chain: collateral.qe_identity_issuer_chain.clone(),
            qe_identity: collateral.qe_identity.clone(),
            qe_identity_signature: collateral.qe_identity_signature.clone(),
            pck_certificate_chain: collateral.pck_certificate_chain.clone(),
        }
    }
}
