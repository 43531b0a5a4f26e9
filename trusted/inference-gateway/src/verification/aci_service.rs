//! Verification of a confidential inference service, from its report to the keys that TLS may end at.

use std::collections::BTreeMap;

use cloister_aci::report::{Bound, Nonce, bound};
use cloister_aci::session::{Claim, ClaimSource, ClaimStatus, Claims, Fact};
use cloister_evidence::{AppInfo, AttestationDocument, EventLog};
use cloister_verifier::appraisal::{
    Appraisal, Claim as Judged, ClaimId, Connection, Evidence, Expectations, Nonce as MadeOver, Outcome,
    appraise,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::evidence::{MachineEvidence, Report, seen};
use super::finding::{Finding, Pins};
use super::provenance::{self, Provenance};
use super::reason::Reason;
use super::target::{Accepted, Target};
use super::{Trust, custody, fetch};

const VERIFIER_ID: &str = "aci-service/v2";
/// The only kind of machine whose evidence is judged.
const TEE_TYPE: &str = "tdx";
/// Claims without which nothing is verified. What the machine booted is not among them: the registers of hardware
/// can only be compared with values that somebody looked up.
const NEEDED: [ClaimId; 5] =
    [ClaimId::Signature, ClaimId::Freshness, ClaimId::Debug, ClaimId::EventLog, ClaimId::EventNames];

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
        document: machine(&attestation.evidence),
        // Whom the connection ended at is for the pins to say.
        connection: Connection::Terminated,
    };
    let appraised = appraise(&verifier, &evidence, &expectations(trust, &bound)).await;
    let tcb = judge(&appraised.appraisal)?;
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
    let by = acceptance(accepted, &subject, &provenance, &attestation.evidence.app_compose)?;
    let root =
        custody::root_of(&attestation.evidence.key_custody, &bound.keyset, &app_id, &accepted.kms_roots)?;
    let pins = pins(&bound, target)?;

    let hardware = appraised.appraisal.hardware;
    let known =
        Known { subject: &subject, bound: &bound, measured: &measured, provenance: &provenance, root: &root };
    Ok(Finding {
        verifier_id: VERIFIER_ID.to_owned(),
        identity: Some(known.identity()),
        pins,
        claims: Claims { extra: known.facts(&appraised.appraisal, &tcb), ..claims(hardware, &tcb, by) },
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

fn machine(evidence: &MachineEvidence) -> AttestationDocument {
    AttestationDocument {
        quote: Some(evidence.quote.clone()),
        event_log: evidence.event_log.clone(),
        report_data: evidence.quote_report_data.clone(),
        vm_config: evidence.vm_config.clone(),
        app_compose: Some(evidence.app_compose.clone()),
        ..AttestationDocument::default()
    }
}

fn expectations(trust: &Trust, bound: &Bound) -> Expectations {
    let mut report_data = [0; 64];
    report_data.iter_mut().zip(bound.report_data).for_each(|(to, from)| *to = from);
    Expectations {
        nonce: Some(MadeOver::Own(report_data)),
        production: trust.is_production(),
        ..Expectations::default()
    }
}

/// The platform's state in its vendor's words, if the evidence holds. An old platform is no failure: it is a claim
/// that is refuted, for whoever reads the session.
fn judge(appraisal: &Appraisal) -> Result<String, Reason> {
    let fails = |claim: &&Judged| claim.outcome == Outcome::Fails && claim.id != ClaimId::Tcb;
    let lacks = |claim: &&Judged| claim.outcome != Outcome::Holds;
    let needed = NEEDED.into_iter().filter_map(|id| appraisal.claim(id));
    // What fails says more than what could not be looked at because of it.
    if let Some(claim) = appraisal.claims.iter().find(fails).or_else(|| needed.clone().find(lacks)) {
        return Err(Reason::new(&claim.sentence));
    }
    if needed.count() < NEEDED.len() {
        return Err("the evidence was not judged in full".into());
    }
    let status = appraisal.claim(ClaimId::Tcb).and_then(|claim| {
        claim.evidence.iter().find(|fact| fact.name == "status").map(|fact| fact.value.clone())
    });
    status.ok_or_else(|| "the state of the platform is unknown".into())
}

fn measured(event_log: &str) -> Result<AppInfo, Reason> {
    let log = EventLog::parse(event_log).map_err(|error| error.to_string())?;
    Ok(AppInfo::from_event_log(&log).map_err(|error| error.to_string())?)
}

/// Why the software is one that the operator accepts.
#[derive(Debug, Clone, Copy)]
enum By {
    Subject,
    Images,
}

fn acceptance(
    accepted: &Accepted,
    subject: &str,
    provenance: &Provenance,
    app_compose: &str,
) -> Result<By, Reason> {
    if accepted.subjects.iter().any(|one| one == subject) {
        return Ok(By::Subject);
    }
    let is_named =
        provenance.image_digest.as_ref().is_some_and(|digest| accepted.image_digests.contains(digest));
    if is_named && provenance::runs_only(app_compose, &accepted.image_digests) {
        return Ok(By::Images);
    }
    Err("the measured application is not an accepted one".into())
}

/// The keys that TLS to the upstream's host may end at.
fn pins(bound: &Bound, target: &Target) -> Result<Pins, Reason> {
    let host = target.base_url.host_str().unwrap_or_default().trim_end_matches('.');
    let keys = bound.keyset.tls_public_keys.iter();
    let of_host = keys.filter(|key| key.domain.as_ref().is_none_or(|name| name.eq_ignore_ascii_case(host)));
    Pins::from_hex(of_host.map(|key| key.spki_sha256.as_str()))
        .ok_or_else(|| "the keyset ties no TLS key to the upstream's host".into())
}

fn claim(status: ClaimStatus, source: ClaimSource, reason: impl Into<String>) -> Claim {
    Claim { reason: Some(reason.into()), source: Some(source), status }
}

fn claims(hardware: bool, tcb: &str, by: By) -> Claims {
    let (source, reason) = if hardware {
        (ClaimSource::HardwareProven, "a TDX quote was verified up to its vendor's root")
    } else {
        (
            ClaimSource::OperatorAsserted,
            "only a development root of the operator vouches: no hardware protects this",
        )
    };
    let is_current = if tcb == "UpToDate" { ClaimStatus::Asserted } else { ClaimStatus::Refuted };
    let software = match by {
        By::Subject => "the measured application is one that the operator accepts",
        By::Images => "the measured compose document runs nothing but images that the operator accepts",
    };
    Claims {
        tee_attested: claim(ClaimStatus::Asserted, source, reason),
        tcb_up_to_date: claim(
            is_current,
            ClaimSource::VerifierDerived,
            format!("the vendor calls the platform {tcb}"),
        ),
        serving_software_known_good: claim(ClaimStatus::Asserted, ClaimSource::VerifierDerived, software),
        ..Claims::default()
    }
}

/// What was verified, to be told.
struct Known<'a> {
    subject: &'a str,
    bound: &'a Bound,
    measured: &'a AppInfo,
    provenance: &'a Provenance,
    root: &'a str,
}

impl Known<'_> {
    fn identity(&self) -> Value {
        json!({
            "subject": self.subject,
            "compose_hash": self.measured.compose_hash.map(|hash| hex::encode(hash.as_bytes())),
            "instance_id": self.measured.instance_id.map(|id| hex::encode(id.as_bytes())),
            "workload_keyset_digest": self.bound.digest,
        })
    }

    fn facts(&self, appraisal: &Appraisal, tcb: &str) -> BTreeMap<String, Fact> {
        let of_signature = |name: &str| {
            let claim = appraisal.claim(ClaimId::Signature)?;
            claim.evidence.iter().find(|fact| fact.name == name).map(|fact| fact.value.clone())
        };
        let of_tcb = |name: &str| {
            let claim = appraisal.claim(ClaimId::Tcb)?;
            claim.evidence.iter().find(|fact| fact.name == name).map(|fact| fact.value.clone())
        };
        let texts = [
            ("tee_type", Some(TEE_TYPE.to_owned())),
            ("trust_root", of_signature("trust root")),
            ("tcb_status", Some(tcb.to_owned())),
            ("tcb_advisories", of_tcb("advisories")),
            ("app_id", self.measured.app_id.map(|id| hex::encode(id.as_bytes()))),
            ("compose_hash", self.measured.compose_hash.map(|hash| hex::encode(hash.as_bytes()))),
            ("os_image_hash", self.measured.os_image_hash.map(|hash| hex::encode(hash.as_bytes()))),
            ("instance_id", self.measured.instance_id.map(|id| hex::encode(id.as_bytes()))),
            ("kms_root_public_key", Some(self.root.to_owned())),
            ("workload_keyset_digest", Some(self.bound.digest.clone())),
            ("source_repo_url", self.provenance.repo_url.clone()),
            ("source_repo_commit", self.provenance.repo_commit.clone()),
            ("source_image_digest", self.provenance.image_digest.clone()),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Fact::Text(text?))));
        texts.chain([("hardware".to_owned(), Fact::Flag(appraisal.hardware))]).collect()
    }
}
