//! Evidence in a file.

use cloister_evidence::{EventLog, VersionedAttestation};
use serde_json::Value;

use super::machine::{Machine, NOW};
use crate::appraisal::{Bundle, Connection, Evidence, InvalidBundle, appraise_with};

fn bundle(machine: &Machine) -> Bundle {
    let mut bundle = Bundle::new(*NOW, machine.evidence().document);
    bundle.collateral = Some(machine.collateral());
    bundle
}

fn verified(machine: &Machine, bundle: Bundle) -> bool {
    let evidence = Evidence { document: bundle.document, connection: Connection::None };
    let Some(collateral) = bundle.collateral else { return false };
    appraise_with(&machine.verifier(), &evidence, &machine.expectations(), &collateral, *NOW)
        .appraisal
        .verified
}

#[test]
fn a_bundle_is_judged_like_what_it_was_made_of() {
    let machine = Machine::new();
    let bundle = bundle(&machine);
    let again = Bundle::parse(&bundle.to_json().unwrap()).unwrap();
    assert_eq!(again, bundle);
    assert!(verified(&machine, again));
}

#[test]
fn what_is_no_bundle_is_refused() {
    let machine = Machine::new();
    let json = String::from_utf8(bundle(&machine).to_json().unwrap()).unwrap();
    assert!(matches!(Bundle::parse(b"{}"), Err(InvalidBundle::Json(_))));
    let later = json.replacen("\"version\": 1", "\"version\": 2", 1);
    assert!(matches!(Bundle::parse(later.as_bytes()), Err(InvalidBundle::Version(2))));
    // Roots are never taken from a bundle, nor is anything else that nobody looks at.
    let more = json.replacen("\"version\": 1", "\"version\": 1, \"development_root\": \"\"", 1);
    assert!(matches!(Bundle::parse(more.as_bytes()), Err(InvalidBundle::Json(_))));
}

/// Changes the character at a place to another one of the same kind.
fn flipped(text: &str, at: usize) -> String {
    let mut bytes = text.as_bytes().to_vec();
    bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
    String::from_utf8(bytes).unwrap()
}

/// Every text in a document, by its JSON pointer.
fn texts(value: &Value, pointer: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) => found.push((pointer.to_owned(), text.clone())),
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| texts(value, &format!("{pointer}/{name}"), found));
        }
        _ => {}
    }
}

#[test]
fn no_change_in_any_member_leaves_the_verdict_true() {
    // The time of the recording proves nothing and is not judged. Issuers of the revocation list are
    // found in the quote's own chain.
    const UNJUDGED: [&str; 2] = ["/captured_at", "/collateral/pck_crl_issuer_chain"];
    let machine = Machine::new();
    let whole: Value = serde_json::from_slice(&bundle(&machine).to_json().unwrap()).unwrap();
    let mut found = Vec::new();
    texts(&whole, "", &mut found);
    assert!(found.len() > 12, "{found:?}");
    let judged = found.iter().filter(|(pointer, _)| !UNJUDGED.contains(&pointer.as_str()));
    for (pointer, text) in judged {
        assert!(!text.is_empty(), "{pointer}");
        // The ends, and places all over.
        for at in (0..7).map(|part| part * (text.len() - 1) / 6) {
            let mut changed = whole.clone();
            *changed.pointer_mut(pointer).unwrap() = Value::String(flipped(text, at));
            let verdict = Bundle::parse(&serde_json::to_vec(&changed).unwrap())
                .is_ok_and(|bundle| verified(&machine, bundle));
            assert!(!verdict || is_unread(pointer, text, at), "{pointer} at {at}");
        }
        let mut changed = whole.clone();
        *changed.pointer_mut(pointer).unwrap() = Value::String(String::new());
        let verdict = Bundle::parse(&serde_json::to_vec(&changed).unwrap())
            .is_ok_and(|bundle| verified(&machine, bundle));
        assert!(!verdict || pointer == "/document/report_data", "{pointer} emptied");
    }
}

/// Characters that nothing is concluded from: line ends and dashes around PEM blocks, the line end after
/// the last of which is the last byte of a quote, and whatever leaves a log that builds the same registers.
fn is_unread(pointer: &str, text: &str, at: usize) -> bool {
    match pointer {
        "/document/quote" => at + 2 >= text.len(),
        "/document/event_log" => {
            let built = |log: &str| EventLog::parse(log).unwrap().replay().unwrap();
            built(text) == built(&flipped(text, at))
        }
        // The root at the end is not read: the configured one is.
        "/collateral/tcb_info_issuer_chain" | "/collateral/qe_identity_issuer_chain" => {
            at > text.find("-----END").unwrap() || matches!(text.as_bytes()[at], b'\n' | b'-')
        }
        // The report data there repeats what the quote says.
        "/document/attestation" => {
            let decode = |text: &str| VersionedAttestation::decode(&hex::decode(text).unwrap()).unwrap();
            decode(text).event_log().unwrap().replay().unwrap()
                == decode(&flipped(text, at)).event_log().unwrap().replay().unwrap()
        }
        _ => matches!(text.as_bytes()[at], b'\n' | b'-'),
    }
}
