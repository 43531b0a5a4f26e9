//! The quote itself: who signed it, in which state, and over what.

use cloister_evidence::Registers;
use cloister_evidence::report_data::ReportData;

use super::claim::{Claim, ClaimId};
use super::input::{Expectations, Nonce};
use crate::{VerifiedQuote, VerifyError};

/// A quote of a virtual machine whose signatures are good. Everything that is said about the machine takes
/// one of these, so that nothing holds on unverified data.
#[derive(Debug)]
pub(super) struct ProvenQuote<'a> {
    pub(super) verified: &'a VerifiedQuote,
    pub(super) registers: Registers,
}

/// What came of a quote's verification.
pub(super) type Verdict = Result<VerifiedQuote, VerifyError>;

/// Judges who signed the quote.
pub(super) fn signature<'a>(
    verdict: &'a Verdict,
    expectations: &Expectations,
) -> (Claim, Option<ProvenQuote<'a>>) {
    let id = ClaimId::Signature;
    let verified = match verdict {
        Ok(verified) => verified,
        Err(error) if is_unavailable(error) => {
            let sentence = format!("The quote was not verified: {}.", chain(error));
            return (Claim::not_checked(id, sentence).required(), None);
        }
        Err(error) => {
            let sentence = format!("The quote is refused: {}.", chain(error));
            return (Claim::fails(id, sentence).required(), None);
        }
    };
    let root = verified.trust_root;
    let Some(registers) = verified.registers else {
        let sentence = "The quote is one of an SGX enclave, which says nothing about a virtual machine.";
        return (Claim::fails(id, sentence).fact("trust root", root).required(), None);
    };
    let claim = if root.is_hardware() {
        let sentence = format!("Genuine TDX hardware signed the quote: its certificates lead to the {root}.");
        Claim::holds(id, sentence)
    } else if expectations.production {
        let sentence = format!(
            "The quote is signed under the {root}, behind which no hardware stands, and hardware is demanded."
        );
        Claim::fails(id, sentence)
    } else {
        let sentence = "The quote is signed under a development root: NO HARDWARE PROTECTION. Whoever runs the \
                        machine can read its memory and forge all of this.";
        Claim::holds(id, sentence)
    };
    let refused = !root.is_hardware() && expectations.production;
    let claim = claim
        .fact("trust root", root)
        .fact("platform (FMSPC)", hex::encode(verified.fmspc))
        .fact("device id (SHA-256 of the PPID)", hex::encode(verified.device_id));
    (claim.required(), (!refused).then_some(ProvenQuote { verified, registers }))
}

/// Judges the state of the platform.
pub(super) fn tcb(quote: Option<&ProvenQuote<'_>>, expectations: &Expectations) -> Claim {
    let id = ClaimId::Tcb;
    let Some(ProvenQuote { verified, .. }) = quote else {
        return Claim::not_checked(id, "The state of the platform is unknown without a valid quote.")
            .required();
    };
    let status = verified.tcb_status;
    let denied: Vec<_> =
        verified.advisory_ids.iter().filter(|id| expectations.denied_advisories.contains(*id)).collect();
    let claim = if !expectations.accepted_tcb.contains(&status) {
        Claim::fails(id, format!("The platform is {status}, which is not accepted."))
    } else if denied.is_empty() {
        Claim::holds(id, format!("The platform is {status}."))
    } else {
        Claim::fails(id, "The platform is subject to a security advisory that is not accepted.")
    };
    let accepted: Vec<_> = expectations.accepted_tcb.iter().map(ToString::to_string).collect();
    let claim = claim.fact("status", status).fact("accepted", accepted.join(", "));
    let list = |ids: Vec<&String>| ids.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let advisories = Some(&verified.advisory_ids).filter(|ids| !ids.is_empty());
    let claim = claim.maybe("advisories", advisories.map(|ids| list(ids.iter().collect())));
    claim.maybe("not accepted", (!denied.is_empty()).then(|| list(denied))).required()
}

/// Judges whether the machine can be debugged.
pub(super) fn debug(verdict: &Verdict, quote: Option<&ProvenQuote<'_>>) -> Claim {
    let id = ClaimId::Debug;
    let claim = match (verdict, quote) {
        (Err(VerifyError::Debug), _) => {
            Claim::fails(id, "The machine runs in debug mode: its host can read and change its memory.")
        }
        (Ok(_), Some(quote)) => Claim::holds(id, "The machine does not run in debug mode.")
            .fact("td_attributes", hex::encode(quote.verified.td_attributes)),
        _ => {
            Claim::not_checked(id, "Whether the machine runs in debug mode is unknown without a valid quote.")
        }
    };
    claim.required()
}

/// Judges what the evidence was made over, with what its sender says about that.
pub(super) fn freshness(proven: Option<&ReportData>, said: &str, nonce: Option<&Nonce>) -> Claim {
    let id = ClaimId::Freshness;
    let Some(actual) = proven else {
        let claim = Claim::not_checked(id, "Nothing that is valid says what the evidence was made over.");
        return if matches!(nonce, Some(Nonce::Own(_))) { claim.required() } else { claim };
    };
    let actual_hex = hex::encode(actual);
    if !said.is_empty() && !said.trim_start_matches("0x").eq_ignore_ascii_case(&actual_hex) {
        let sentence = "The document says that the evidence was made over something else than it was.";
        return Claim::fails(id, sentence).fact("report data", actual_hex).fact("said", said);
    }
    let claim = match nonce {
        None => Claim::not_checked(
            id,
            "No nonce was given: the evidence may be of any time in which its certificates were valid.",
        ),
        Some(Nonce::Own(expected)) if expected == actual => {
            Claim::holds(id, "The evidence was made for this question: it covers the nonce.").required()
        }
        Some(Nonce::Recorded(expected)) if expected == actual => Claim::not_checked(
            id,
            "The evidence covers the nonce that was recorded with it; how fresh it was, only whoever chose that \
             nonce knows.",
        ),
        Some(Nonce::Own(expected) | Nonce::Recorded(expected)) => {
            let sentence = "The evidence was made for another question: it does not cover the nonce.";
            Claim::fails(id, sentence).fact("nonce", hex::encode(expected))
        }
    };
    claim.fact("report data", actual_hex)
}

/// An error with its causes, without a full stop.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text.trim_end_matches('.').to_owned()
}

/// Whether the quote could not be judged, rather than was judged and refused.
pub(super) const fn is_unavailable(error: &VerifyError) -> bool {
    matches!(error, VerifyError::Collateral(_) | VerifyError::Busy | VerifyError::Interrupted)
}
