//! The parts of a service's report that evidence is in.

use cloister_aci::report::Nonce;
use cloister_aci::session::Evidence;
use cloister_verifier::Collateral;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::custody::Custody;
use super::provenance::Provenance;

/// A report, as far as it is looked at beside its binding.
#[derive(Debug, Deserialize)]
pub(super) struct Report {
    pub(super) attestation: Attestation,
}

#[derive(Debug, Deserialize)]
pub(super) struct Attestation {
    /// `tdx`; nothing else is judged.
    pub(super) tee_type: String,
    #[serde(default)]
    pub(super) source_provenance: Option<Provenance>,
    pub(super) evidence: MachineEvidence,
}

/// Evidence of a machine.
#[derive(Debug, Deserialize)]
pub(super) struct MachineEvidence {
    /// TDX quote, hex.
    pub(super) quote: String,
    /// What the quote was made over, 128 hex digits; said twice, so compared.
    #[serde(default)]
    pub(super) quote_report_data: String,
    /// JSON text.
    pub(super) event_log: String,
    /// JSON text.
    #[serde(default)]
    pub(super) vm_config: String,
    /// The exact compose document.
    pub(super) app_compose: String,
    /// Who gave the keys.
    pub(super) key_custody: Custody,
}

/// Everything that a later verifier needs beside the trust roots.
#[derive(Serialize)]
struct Seen<'a> {
    collateral: Option<&'a Collateral>,
    nonce: String,
    report: &'a RawValue,
}

/// The report as it came, with the nonce that it answers and what the vendor said about the platform.
pub(super) fn seen(
    report: &[u8],
    nonce: &Nonce,
    collateral: Option<&Collateral>,
) -> Result<Evidence, serde_json::Error> {
    let seen = Seen { collateral, nonce: nonce.to_string(), report: serde_json::from_slice(report)? };
    Ok(Evidence::new("application/json", &serde_json::to_vec(&seen)?))
}
