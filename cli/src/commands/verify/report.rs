//! What people see of an appraisal.

use std::fmt::Write as _;

use cloister_verifier::appraisal::{Appraisal, Claim, ClaimId, Outcome};
use jiff::Timestamp;

use super::trust::Notes;
use crate::failure::{Exit, Failure};
use crate::output::{Output, Tone, printable};

/// Longest value that is shown to people, in characters; programs get all of it.
const MAX_SHOWN: usize = 200;

/// Prints the claims.
pub(super) fn show(output: &Output, appraisal: &Appraisal) {
    if output.json {
        output.document(&serde_json::to_value(appraisal).unwrap_or_default());
        return;
    }
    let width = ClaimId::ALL.iter().map(|id| id.as_str().len()).max().unwrap_or_default();
    let mut text = String::new();
    for claim in &appraisal.claims {
        let (mark, tone) = match claim.outcome {
            Outcome::Holds => ("✓", Tone::Good),
            Outcome::Fails => ("✗", Tone::Bad),
            Outcome::NotChecked if claim.required => ("?", Tone::Bad),
            Outcome::NotChecked => ("-", Tone::Busy),
        };
        let id = claim.id.as_str();
        let _ = writeln!(
            text,
            "{} {id:width$}  {}",
            output.painted(mark, tone),
            shown(&claim.sentence, usize::MAX)
        );
        for fact in &claim.evidence {
            let (name, value) = (shown(&fact.name, MAX_SHOWN), shown(&fact.value, MAX_SHOWN));
            let _ = writeln!(text, "  {:width$}    {name}: {value}", "");
        }
    }
    output.data(&text);
}

/// One line without control characters, cut when it is long.
fn shown(text: &str, limit: usize) -> String {
    let line = printable(text).replace(['\n', '\t'], " ");
    match line.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

fn ids(appraisal: &Appraisal, which: impl Fn(&Claim) -> bool) -> String {
    let ids: Vec<_> =
        appraisal.claims.iter().filter(|claim| which(claim)).map(|claim| claim.id.as_str()).collect();
    ids.join(", ")
}

/// The last word on evidence that is accepted.
pub(super) fn conclusion(appraisal: &Appraisal) -> String {
    let kind = if appraisal.hardware { "verified" } else { "verified, but there is NO HARDWARE PROTECTION" };
    let open = ids(appraisal, |claim| claim.outcome == Outcome::NotChecked);
    if open.is_empty() { kind.to_owned() } else { format!("{kind}; not compared: {open}") }
}

/// The failure that the command ends with, when the evidence is not accepted.
pub(super) fn failure(
    appraisal: &Appraisal,
    notes: &Notes,
    recorded: bool,
    captured_at: Timestamp,
) -> Option<Failure> {
    if appraisal.verified {
        return None;
    }
    let fails = ids(appraisal, |claim| claim.outcome == Outcome::Fails);
    let open = ids(appraisal, |claim| claim.required && claim.outcome == Outcome::NotChecked);
    let outcome = |id| appraisal.claim(id).map(|claim| claim.outcome);
    if fails.is_empty() && outcome(ClaimId::Signature) == Some(Outcome::NotChecked) {
        let failure =
            Failure::new(Exit::Unreachable, "the evidence could not be judged: see signature above");
        return Some(failure.hint("name a collateral service that can be reached: --pccs URL"));
    }
    let message = if fails.is_empty() {
        format!("the evidence is not enough: {open} could not be checked")
    } else {
        format!("the evidence is refused: {fails}")
    };
    let mut failure = Failure::new(Exit::Unverified, message);
    for (id, hint) in HINTS {
        if outcome(id) == Some(Outcome::Fails) {
            failure = failure.hint(hint);
        }
    }
    if outcome(ClaimId::Signature) == Some(Outcome::Fails) {
        if !notes.development_root && !notes.production {
            failure = failure.hint(
                "for a development cloud, name its root: --development-root FILE or eval \"$(cloister env)\"",
            );
        }
        if recorded {
            failure = failure.hint(format!(
                "what vendors sign expires; judge as of another time, such as that of the recording, if you know \
                 it from elsewhere: --at {captured_at}"
            ));
        }
    }
    if outcome(ClaimId::Boot) == Some(Outcome::NotChecked) && fails.is_empty() {
        failure = failure.hint("give the registers that the machine must have: --registers FILE");
    }
    Some(failure)
}

/// What to do when a claim fails.
const HINTS: [(ClaimId, &str); 7] = [
    (ClaimId::Certificate, "somebody may sit between you and the CVM: do not send it secrets"),
    (ClaimId::Freshness, "the evidence is of another occasion: ask again"),
    (ClaimId::Tcb, "if you accept this state of the platform, say so: --accept-tcb STATUS"),
    (ClaimId::Boot, "the machine did not boot the image that its node claims: do not use it"),
    (ClaimId::Compose, "compare with the document that you deployed: --compose FILE takes it byte for byte"),
    (ClaimId::AppId, "check the app id: cloister cvms list"),
    (ClaimId::OsImage, "check the image: its hash is the SHA-256 of its sha256sum.txt"),
];
