//! A gateway's report: the keys that it names, and the machine whose evidence they are bound to.

use cloister_aci::report::{Bound, Nonce, bound};
use cloister_evidence::{AttestationDocument, VersionedAttestation};
use cloister_verifier::Verifier;
use cloister_verifier::appraisal::{
    Appraisal, Connection, Evidence, Expectations, Nonce as Challenge, appraise,
};
use serde_json::Value;

use super::refused;
use crate::commands::verify::expectations::ExpectationArgs;
use crate::failure::Failure;

/// What was found of a report.
pub(super) struct Judged {
    /// Its machine.
    pub(super) appraisal: Appraisal,
    /// Its keys, which are worth what the machine is.
    pub(super) bound: Bound,
}

impl Judged {
    /// The application that the evidence measured, as keysets name it.
    pub(super) fn subject(&self) -> Option<String> {
        let app_id = self.appraisal.subject.as_ref().and_then(|subject| subject.app_id);
        app_id.map(|app_id| format!("app-id:0x{app_id}"))
    }
}

/// A nonce to ask for a report with: the one that was given, or random.
pub(super) fn nonce(expectations: &ExpectationArgs) -> Result<Nonce, Failure> {
    let nonce = hex::encode(expectations.nonce_or_fresh()?);
    nonce.parse().map_err(|_| Failure::usage("--nonce must be 16 or 32 bytes in hex"))
}

/// The keys that a report names, bound to the nonce that it was asked for with.
pub(super) fn keys(report: &Value, nonce: Option<&Nonce>) -> Result<Bound, Failure> {
    bound(report, nonce).map_err(|error| refused("the report does not bind its keys").caused_by(error))
}

/// Judges the machine: its evidence, which came over such a connection, has to carry these keys.
pub(super) async fn judge(
    report: &Value,
    bound: Bound,
    connection: Connection,
    verifier: &Verifier,
    mut expectations: Expectations,
) -> Result<Judged, Failure> {
    let mut quoted = [0; 64];
    quoted.iter_mut().zip(bound.report_data).for_each(|(to, from)| *to = from);
    expectations.nonce = Some(Challenge::Own(quoted));
    let evidence = Evidence { document: evidence(report)?, connection };
    let appraisal = appraise(verifier, &evidence, &expectations).await.appraisal;
    Ok(Judged { appraisal, bound })
}

/// What the report says that the software comes from; nothing proves it.
pub(super) fn source(report: &Value) -> Option<&Value> {
    report.pointer("/attestation/source_provenance")
}

/// What the report shows of its machine, in the form that verifiers of machines take.
fn evidence(report: &Value) -> Result<AttestationDocument, Failure> {
    let evidence = report.pointer("/attestation/evidence");
    let text = |name: &str| evidence.and_then(|evidence| evidence.get(name)?.as_str()).map(ToOwned::to_owned);
    if evidence.is_none() {
        return Err(refused("the report has no evidence"));
    }
    let (quote, attestation) = (text("quote"), text("attestation"));
    let said = report.pointer("/attestation/tee_type").and_then(Value::as_str);
    // What cannot be read is for the appraisal to refuse.
    if !is_of_kind(said, quote.as_deref(), attestation.as_deref()) {
        return Err(refused("the report's evidence is of another kind of machine than it says (tee_type)"));
    }
    Ok(AttestationDocument {
        quote,
        event_log: text("event_log").unwrap_or_default(),
        report_data: text("quote_report_data").unwrap_or_default(),
        vm_config: text("vm_config").unwrap_or_default(),
        attestation,
        app_compose: text("app_compose"),
        ..AttestationDocument::default()
    })
}

/// Whether evidence is of the kind of machine that is said, as far as its form tells that.
fn is_of_kind(said: Option<&str>, quote: Option<&str>, attestation: Option<&str>) -> bool {
    let bytes = attestation.and_then(|text| hex::decode(text.strip_prefix("0x").unwrap_or(text)).ok());
    match bytes.and_then(|bytes| VersionedAttestation::decode(&bytes).ok()) {
        Some(versioned) => said.is_some() && said == versioned.evidence.tee_type(),
        None => quote.is_none() || said == Some("tdx"),
    }
}
