//! What a service's machine has to prove: what it booted, and whom it has its keys from.
//!
//! Everything that a machine measures about its application is the word of what it booted. With other software the
//! same public events can be measured, the same documents shown and the same custody told; with accepted software
//! they are true. That it got the application's keys it measures, too: otherwise anybody could have it run another
//! document under the application's name.

use cloister_evidence::{AppInfo, Quote};
use cloister_verifier::appraisal::{Appraisal, Claim, ClaimId, ExpectedRegisters, Outcome};

use super::reason::Reason;
use super::target::Accepted;

/// What machines call a key management service.
const KMS: &str = "kms";
/// Claims without which nothing is verified. What runs is among them only because what was booted is: nothing else
/// makes the machine's own words about it true.
const NEEDED: [ClaimId; 7] = [
    ClaimId::Signature,
    ClaimId::Freshness,
    ClaimId::Debug,
    ClaimId::Boot,
    ClaimId::EventLog,
    ClaimId::EventNames,
    ClaimId::Compose,
];

/// The accepted boot that a quote shows, with which it is then demanded; `None` if it shows none. The quote, in hex,
/// need not be a valid one.
pub(super) fn shown_boot(quote: &str, accepted: &Accepted) -> Option<ExpectedRegisters> {
    let bytes = hex::decode(quote).ok()?;
    let shown = Quote::parse(&bytes).ok()?.td_report()?.registers();
    let shown = ExpectedRegisters {
        mrtd: Some(shown.mrtd),
        rtmr0: Some(shown.rtmr0),
        rtmr1: Some(shown.rtmr1),
        rtmr2: Some(shown.rtmr2),
    };
    accepted.boot_registers.iter().copied().find(|boot| *boot == shown)
}

/// The platform's state in its vendor's words, if the evidence holds and the boot is accepted: it is the one that was
/// shown and demanded, or that of an accepted image. An old platform is no failure: it is a claim that is refuted, for
/// whoever reads the session.
pub(super) fn judge(
    appraisal: &Appraisal,
    boot: Option<ExpectedRegisters>,
    accepted: &Accepted,
) -> Result<String, Reason> {
    let fails = |claim: &&Claim| claim.outcome == Outcome::Fails && claim.id != ClaimId::Tcb;
    let lacks = |claim: &&Claim| claim.outcome != Outcome::Holds;
    let needed = NEEDED.into_iter().filter_map(|id| appraisal.claim(id));
    // What fails says more than what could not be looked at because of it.
    if let Some(claim) = appraisal.claims.iter().find(fails).or_else(|| needed.clone().find(lacks)) {
        return Err(Reason::new(&claim.sentence));
    }
    if needed.count() < NEEDED.len() {
        return Err("the evidence was not judged in full".into());
    }
    if boot.is_none() {
        check_image(appraisal, accepted)?;
    }
    fact(appraisal, ClaimId::Tcb, "status").ok_or_else(|| "the state of the platform is unknown".into())
}

/// Whether the image that a machine's description and its registers lead to is an accepted one. Holds on evidence
/// whose boot was judged only, and only development platforms lead to an image.
fn check_image(appraisal: &Appraisal, accepted: &Accepted) -> Result<(), Reason> {
    let image = fact(appraisal, ClaimId::Boot, "os_image_hash");
    if image.is_some_and(|image| accepted.os_image_hashes.contains(&image)) {
        Ok(())
    } else {
        Err("the machine booted nothing that is accepted".into())
    }
}

/// Whether the machine measured that an accepted KMS gave it the application's keys.
pub(super) fn check_key_provider(measured: &AppInfo, accepted: &Accepted) -> Result<(), Reason> {
    let provider = measured.key_provider.as_ref().filter(|provider| provider.name == KMS);
    let is_accepted = provider.is_some_and(|provider| {
        accepted.key_providers.iter().any(|one| one.eq_ignore_ascii_case(&provider.id))
    });
    if is_accepted { Ok(()) } else { Err("the machine has its keys from no accepted KMS".into()) }
}

/// A value that a claim rests on.
pub(super) fn fact(appraisal: &Appraisal, claim: ClaimId, name: &str) -> Option<String> {
    let facts = &appraisal.claim(claim)?.evidence;
    facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.clone())
}
