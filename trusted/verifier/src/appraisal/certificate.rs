//! Whom the connection ended at.

use cloister_evidence::report_data::of_tls_key;
use jiff::Timestamp;

use super::claim::{Claim, ClaimId};
use super::events::{self, ProvenEvents};
use super::input::{AttestedCertificate, Connection};
use super::quote::{ProvenQuote, Verdict, chain, is_unavailable};

const ID: ClaimId = ClaimId::Certificate;

/// Judges the connection. `verdict` is that on the certificate's own quote, `quote` and `events` are those
/// of the document that came over the connection.
pub(super) fn judge(
    connection: &Connection,
    verdict: Option<&Verdict>,
    quote: Option<&ProvenQuote<'_>>,
    events: Option<&ProvenEvents>,
    at: Timestamp,
) -> Claim {
    let (certificate, seen) = match connection {
        Connection::None => {
            return Claim::not_checked(ID, "The evidence comes from files: there was no connection.");
        }
        Connection::Terminated => {
            return Claim::not_checked(
                ID,
                "The connection ended at a key that no evidence is bound to, such as that of the operator's \
                 ingress, so it proves nothing by itself. The evidence that came over it is judged on its own.",
            );
        }
        Connection::JudgedElsewhere => {
            return Claim::not_checked(
                ID,
                "No certificate carries this evidence: whom a connection ended at is said by the keys that the \
                 evidence binds.",
            );
        }
        Connection::Unattested(reason) => {
            let sentence =
                format!("The connection did not end inside the CVM: {}.", reason.trim_end_matches('.'));
            return Claim::fails(ID, sentence);
        }
        Connection::Attested(certificate) => (certificate, "The connection ended inside this CVM"),
        Connection::Recorded(certificate) => (certificate, "The recorded connection ended inside this CVM"),
    };
    if at < certificate.not_before || at > certificate.not_after {
        return Claim::fails(ID, "The certificate is not valid at this time.")
            .fact("valid from", certificate.not_before)
            .fact("valid until", certificate.not_after);
    }
    let verified = match verdict {
        Some(Ok(verified)) => verified,
        Some(Err(error)) if is_unavailable(error) => {
            let sentence = format!("The evidence in the certificate was not verified: {}.", chain(error));
            return Claim::not_checked(ID, sentence).required();
        }
        Some(Err(error)) => {
            let sentence = format!("The evidence in the certificate is refused: {}.", chain(error));
            return Claim::fails(ID, sentence);
        }
        None => return Claim::fails(ID, "The certificate carries no quote."),
    };
    let expected = of_tls_key(&certificate.public_key_info);
    if verified.report_data != expected {
        return Claim::fails(ID, "The evidence in the certificate was made for another key.")
            .fact("report data of the certificate's quote", hex::encode(verified.report_data))
            .fact("hash of the certificate's key", hex::encode(expected));
    }
    let Some((quote, events)) = quote.zip(events) else {
        let sentence = "The certificate's key is bound to evidence, but it cannot be compared with that of the \
                        document, which is not valid.";
        return Claim::not_checked(ID, sentence).required();
    };
    let certified = verified.registers.map(|registers| ProvenQuote { verified, registers });
    match certified
        .ok_or("is not of a virtual machine")
        .and_then(|own| same(certificate, &own, quote, events))
    {
        Ok(()) => {
            let sentence =
                format!("{seen}: the certificate's key is bound to evidence of the same machine and boot.");
            Claim::holds(ID, sentence).fact("hash of the certificate's key", hex::encode(expected))
        }
        Err(reason) => Claim::fails(ID, format!("The evidence in the certificate {reason}.")),
    }
}

/// Whether both quotes are of one machine and boot. The certificate was made earlier, or later, so that
/// one log goes on where the other ends.
fn same(
    certificate: &AttestedCertificate,
    own: &ProvenQuote<'_>,
    other: &ProvenQuote<'_>,
    events: &ProvenEvents,
) -> Result<(), &'static str> {
    let machine = |quote: &ProvenQuote<'_>| (quote.verified.trust_root, quote.verified.device_id);
    if machine(own) != machine(other) {
        return Err("is of another platform than the document");
    }
    let boot = |quote: &ProvenQuote<'_>| {
        let registers = &quote.registers;
        (registers.mrtd, registers.rtmr0, registers.rtmr1, registers.rtmr2, quote.verified.mr_config_id)
    };
    if boot(own) != boot(other) {
        return Err("is of a machine that booted something else");
    }
    let log = events::build(&own.registers, &certificate.event_log);
    let log = log.map_err(|_| "has an event log that does not build its registers")?;
    let certified = events::split(&log, None).map_err(|_| "has events that cannot be relied on")?;
    if certified.platform("compose-hash").is_none() {
        return Err("does not say which application the machine runs");
    }
    if certified.continues(events) { Ok(()) } else { Err("is of another CVM or another boot") }
}
