//! The walk over a Nitro document: such a machine has no log, its image is its application.

use cloister_app_compose::OsImageHash;
use cloister_evidence::report_data::{ReportData, padded};
use jiff::Timestamp;

use super::claim::{Appraisal, Claim, ClaimId, Subject};
use super::input::{Connection, Evidence, Expectations};
use super::{certificate, quote};
use crate::{VerifiedNitro, Verifier, VerifyError};

/// Judges a document at a time.
pub(super) fn appraise(
    verifier: &Verifier,
    document: Result<Vec<u8>, VerifyError>,
    evidence: &Evidence,
    expectations: &Expectations,
    at: Timestamp,
) -> Appraisal {
    let verdict = document.and_then(|document| verifier.nitro(&document, at));
    let (signature, proven) = signature(&verdict, expectations);
    let user_data = proven.and_then(covered);
    let image = proven.and_then(|of| of.image_hash).map(OsImageHash::from_bytes);
    let mut claims = vec![
        connection(&evidence.connection, at),
        quote::freshness(user_data.as_ref(), &evidence.document.report_data, expectations.nonce.as_ref()),
        signature,
        Claim::not_checked(ClaimId::Tcb, "This platform does not say how well patched it is."),
        debug(&verdict, proven),
    ];
    claims.extend(booted(image, proven, expectations));
    claims.extend(absent(expectations));
    let subject = proven.map(|of| Subject {
        app_id: None,
        compose_hash: None,
        instance_id: None,
        os_image_hash: image,
        device_id: Some(hex::encode(of.device_id)),
    });
    let hardware = proven.is_some_and(|of| of.trust_root.is_hardware());
    Appraisal::new(claims, hardware, at, subject)
}

/// What a document was made over: its user data, padded. Without any it covers nothing, not even zeros.
pub(super) fn covered(document: &VerifiedNitro) -> Option<ReportData> {
    document.user_data.as_deref().filter(|data| !data.is_empty()).and_then(padded)
}

/// Certificates with evidence are those of other platforms: none is bound to this document.
fn connection(connection: &Connection, at: Timestamp) -> Claim {
    match connection {
        Connection::Attested(_) | Connection::Recorded(_) => Claim::fails(
            ClaimId::Certificate,
            "The certificate carries evidence of another platform than the document.",
        ),
        other => certificate::judge(other, None, None, None, at),
    }
}

/// Judges who signed the document; what is said about the enclave takes what this proves.
fn signature<'a>(
    verdict: &'a Result<VerifiedNitro, VerifyError>,
    expectations: &Expectations,
) -> (Claim, Option<&'a VerifiedNitro>) {
    let id = ClaimId::Signature;
    let verified = match verdict {
        Ok(verified) => verified,
        Err(error) => {
            let sentence = format!("The document is refused: {}.", quote::chain(error));
            return (Claim::fails(id, sentence).required(), None);
        }
    };
    let root = verified.trust_root;
    let refused = !root.is_hardware() && expectations.production;
    let claim = if root.is_hardware() {
        let sentence =
            format!("A Nitro security module signed the document: its certificates lead to the {root}.");
        Claim::holds(id, sentence)
    } else if refused {
        let sentence = format!(
            "The document is signed under the {root}, behind which no hardware stands, and hardware is demanded."
        );
        Claim::fails(id, sentence)
    } else {
        let sentence = "The document is signed under a development root: NO HARDWARE PROTECTION. Whoever holds \
                        its key can forge all of this.";
        Claim::holds(id, sentence)
    };
    let claim = claim
        .fact("trust root", root)
        .fact("module", &verified.module_id)
        .fact("made at", verified.timestamp);
    (claim.required(), (!refused).then_some(verified))
}

fn debug(verdict: &Result<VerifiedNitro, VerifyError>, proven: Option<&VerifiedNitro>) -> Claim {
    let id = ClaimId::Debug;
    let claim = match (verdict, proven) {
        (_, Some(_)) => {
            Claim::holds(id, "The enclave does not run in debug mode: its registers are measured.")
        }
        (Err(VerifyError::Debug), _) => {
            Claim::fails(id, "The enclave runs in debug mode: its host can read its memory.")
        }
        _ => Claim::not_checked(
            id,
            "Whether the enclave runs in debug mode is unknown without a valid document.",
        ),
    };
    claim.required()
}

/// Boot and image are one thing here.
fn booted(
    image: Option<OsImageHash>,
    proven: Option<&VerifiedNitro>,
    expectations: &Expectations,
) -> [Claim; 2] {
    let judge = |id, name: &str| {
        let claim = match (image, expectations.os_image_hash) {
            (Some(image), Some(expected)) if image == expected => {
                Claim::holds(id, format!("The {name} is the expected one."))
            }
            (Some(_), Some(expected)) => {
                Claim::fails(id, format!("The {name} is not the expected one.")).fact("expected", expected)
            }
            (Some(_), None) => Claim::not_checked(id, format!("The {name} is reported, not compared.")),
            (None, _) => Claim::not_checked(id, format!("The {name} is unknown.")),
        };
        claim.maybe("SHA-256 of PCR0 to PCR2", image).required()
    };
    let pcrs = proven.map(|of| &of.pcrs);
    let boot = judge(ClaimId::Boot, "enclave that was started");
    let boot = pcrs
        .into_iter()
        .flatten()
        .filter(|(index, _)| **index < 3)
        .fold(boot, |claim, (index, value)| claim.fact(format!("PCR{index}"), value));
    [boot, judge(ClaimId::OsImage, "image")]
}

/// Claims about what such a machine does not have; an expectation of it cannot be met.
fn absent(expectations: &Expectations) -> impl Iterator<Item = Claim> {
    let expected = [
        (ClaimId::EventLog, false),
        (ClaimId::EventNames, false),
        (ClaimId::Compose, expectations.compose.is_some()),
        (ClaimId::AppId, expectations.app_id.is_some()),
        (ClaimId::InstanceId, expectations.instance_id.is_some()),
        (ClaimId::KeyProvider, expectations.key_provider_id.is_some()),
        (ClaimId::ApplicationEvents, false),
    ];
    expected.into_iter().map(|(id, expected)| {
        let claim = Claim::not_checked(
            id,
            "The evidence of this platform says nothing of it: its image is all there is.",
        );
        if expected { claim.required() } else { claim }
    })
}
