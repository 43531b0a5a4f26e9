//! Verification of a confidential inference service, from its report to the keys that TLS may end at.

use cloister_aci::report::{Bound, Nonce, bound};
use cloister_evidence::{AppInfo, AttestationDocument, EventLog};
use cloister_verifier::appraisal::{
    Connection, Evidence, Expectations, ExpectedRegisters, Nonce as MadeOver, appraise,
};
use serde::Deserialize;

use super::claims::Known;
use super::evidence::{MachineEvidence, Report, seen};
use super::finding::{Finding, Pins};
use super::reason::Reason;
use super::software::acceptance;
use super::target::{Accepted, Target};
use super::{Trust, custody, fetch, machine};

/// Begin of the names of the gateway's own verifiers, which no other may take.
pub(super) const FAMILY: &str = "aci-service";
const VERIFIER_ID: &str = "aci-service/v2";
/// The only kind of machine whose evidence is judged.
pub(super) const TEE_TYPE: &str = "tdx";

/// Asks a service for evidence and judges it. `now` tells seconds since the Unix epoch.
pub(super) async fn verify(
    trust: &Trust,
    target: &Target,
    accepted: &Accepted,
    now: impl Fn() -> u64,
) -> Result<Finding, Reason> {
    let nonce = nonce().ok_or("there is no randomness for a nonce")?;
    let bytes = fetch::report(target, &nonce).await?;
    let document = cloister_aci::parse(&bytes).map_err(|_| "the upstream's report cannot be read")?;
    let bound = bound(&document, Some(&nonce)).map_err(|error| error.to_string())?;
    let report = Report::deserialize(&document).map_err(|_| "the upstream's report lacks evidence")?;
    let Report { attestation } = report;

    if attestation.tee_type != TEE_TYPE {
        return Err("the evidence is of a kind of machine that is not judged here".into());
    }
    let verifier = trust
        .verifier(accepted.pccs_url.as_ref())
        .map_err(|_| "the evidence cannot be judged: no collateral service")?;
    let evidence = Evidence {
        document: document_of(&attestation.evidence),
        // For the pins to say.
        connection: Connection::JudgedElsewhere,
    };
    let boot = machine::shown_boot(&attestation.evidence.quote, accepted);
    let appraised = appraise(&verifier, &evidence, &expectations(trust, &bound, boot)).await;
    let appraisal = &appraised.appraisal;
    let tcb = machine::judge(appraisal, boot, accepted)?;
    if bound.keyset.not_after <= now() {
        return Err("the keyset has ended".into());
    }
    let provenance =
        attestation.source_provenance.ok_or("the report does not say where the software comes from")?;
    provenance.check()?;
    let measured = measured(&attestation.evidence.event_log)?;
    let app_id = measured.app_id.ok_or("the machine measured no application")?;
    let subject = format!("app-id:0x{}", hex::encode(app_id.as_bytes()));
    if bound.keyset.subject.as_ref().is_some_and(|said| *said != subject) {
        return Err("the keyset is of another application than the machine measured".into());
    }
    machine::check_key_provider(&measured, accepted)?;
    let by = acceptance(accepted, &subject, &provenance, &attestation.evidence.app_compose)?;
    let root =
        custody::root_of(&attestation.evidence.key_custody, &bound.keyset, &app_id, &accepted.kms_roots)?;
    let pins = pins(&bound, target)?;

    let known = Known {
        appraisal,
        bound: &bound,
        by,
        measured: &measured,
        provenance: &provenance,
        root: &root,
        subject: &subject,
        tcb: &tcb,
    };
    Ok(Finding {
        verifier_id: VERIFIER_ID.to_owned(),
        identity: Some(known.identity()),
        pins,
        claims: known.claims(),
        evidence: seen(&bytes, &nonce, appraised.collateral.as_deref())
            .map_err(|_| "the evidence cannot be kept")?,
        not_after: Some(bound.keyset.not_after),
    })
}

fn nonce() -> Option<Nonce> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).ok()?;
    hex::encode(random).parse().ok()
}

fn document_of(evidence: &MachineEvidence) -> AttestationDocument {
    AttestationDocument {
        quote: Some(evidence.quote.clone()),
        event_log: evidence.event_log.clone(),
        report_data: evidence.quote_report_data.clone(),
        vm_config: evidence.vm_config.clone(),
        app_compose: Some(evidence.app_compose.clone()),
        ..AttestationDocument::default()
    }
}

fn expectations(trust: &Trust, bound: &Bound, boot: Option<ExpectedRegisters>) -> Expectations {
    let mut report_data = [0; 64];
    report_data.iter_mut().zip(bound.report_data).for_each(|(to, from)| *to = from);
    Expectations {
        nonce: Some(MadeOver::Own(report_data)),
        production: trust.is_production(),
        registers: boot.unwrap_or_default(),
        ..Expectations::default()
    }
}

fn measured(event_log: &str) -> Result<AppInfo, Reason> {
    let log = EventLog::parse(event_log).map_err(|error| error.to_string())?;
    Ok(AppInfo::from_event_log(&log).map_err(|error| error.to_string())?)
}

/// The keys that TLS to the upstream's host may end at.
fn pins(bound: &Bound, target: &Target) -> Result<Pins, Reason> {
    let of_host = bound.keyset.tls_keys_of(target.base_url.host_str().unwrap_or_default());
    Pins::from_hex(of_host.map(|key| key.spki_sha256.as_str()))
        .ok_or_else(|| "the keyset ties no TLS key to the upstream's host".into())
}
