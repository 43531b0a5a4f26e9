//! What people and programs see of the checks of a receipt.

use std::fmt::Write as _;

use cloister_aci::verify::{Check, Finding, holds};
use cloister_verifier::appraisal::Appraisal;
use serde_json::{Value, json};

use crate::commands::verify::report;
use crate::failure::{Exit, Failure};
use crate::output::{Output, Tone, printable};

/// Prints the claims about the machine, then the checks of the receipt, and where its software comes from by the report,
/// for whoever wants to build it: nothing proves that, and nothing but the measurements proves what runs.
pub(super) fn show(
    output: &Output,
    appraisal: &Appraisal,
    findings: &[(Check, Finding)],
    source: Option<&Value>,
) {
    if output.json {
        output.document(&json!({
            "verified": appraisal.verified && holds(findings),
            "evidence": appraisal,
            "checks": findings.iter().map(document).collect::<Vec<_>>(),
            "unproved_source": source,
        }));
        return;
    }
    report::show(output, appraisal);
    let width = Check::ALL.iter().map(|check| check.as_str().len()).max().unwrap_or_default();
    let mut text = String::new();
    for (check, finding) in findings {
        let (mark, tone, words) = match finding {
            Finding::Holds => ("✓", Tone::Good, "holds"),
            Finding::Fails(reason) if *check == Check::Unchanged => ("-", Tone::Busy, reason.as_str()),
            Finding::Fails(reason) => ("✗", Tone::Bad, reason.as_str()),
            Finding::Open(reason) => ("-", Tone::Busy, reason.as_str()),
        };
        let words = printable(words).replace(['\n', '\t'], " ");
        let _ = writeln!(text, "{} receipt {:width$}  {words}", output.painted(mark, tone), check.as_str());
    }
    let _ = writeln!(text, "  source   {}", source_text(source));
    output.data(&text);
}

fn source_text(source: Option<&Value>) -> String {
    let said = |name: &str| source.and_then(|source| source.get(name)?.as_str());
    let parts = [
        ("", said("repo_url")),
        ("commit ", said("repo_commit")),
        ("image ", said("image_digest")),
        ("", said("image_provenance")),
    ];
    let parts: Vec<_> = parts.iter().filter_map(|(what, said)| Some(format!("{what}{}", (*said)?))).collect();
    if parts.is_empty() {
        return "the report does not say where the software comes from".to_owned();
    }
    printable(&format!("by the report, unproved: {}", parts.join(", "))).replace(['\n', '\t'], " ")
}

fn document((check, finding): &(Check, Finding)) -> Value {
    let (outcome, reason) = match finding {
        Finding::Holds => ("holds", None),
        Finding::Fails(reason) => ("fails", Some(reason)),
        Finding::Open(reason) => ("not-checked", Some(reason)),
    };
    json!({ "id": check.as_str(), "outcome": outcome, "reason": reason })
}

/// The failure that the command ends with, when the receipt does not hold.
pub(super) fn failure(findings: &[(Check, Finding)]) -> Option<Failure> {
    if holds(findings) {
        return None;
    }
    let failing =
        names(findings, |check, finding| matches!(finding, Finding::Fails(_)) && check != Check::Unchanged);
    let message = if failing.is_empty() {
        "the receipt could not be checked".to_owned()
    } else {
        format!("the receipt is refused: {failing}")
    };
    let mut failure = Failure::new(Exit::Unverified, message);
    for (check, hint) in HINTS {
        if findings.iter().any(|(found, finding)| *found == check && matches!(finding, Finding::Fails(_))) {
            failure = failure.hint(hint);
        }
    }
    Some(failure)
}

/// The last word on a receipt that holds.
pub(super) fn conclusion(appraisal: &Appraisal, findings: &[(Check, Finding)]) -> String {
    let open = names(findings, |_, finding| matches!(finding, Finding::Open(_)));
    let machine = report::conclusion(appraisal);
    if open.is_empty() { machine } else { format!("{machine}; of the receipt not checked: {open}") }
}

fn names(findings: &[(Check, Finding)], which: impl Fn(Check, &Finding) -> bool) -> String {
    let names: Vec<_> = findings
        .iter()
        .filter(|(check, finding)| which(*check, finding))
        .map(|(check, _)| check.as_str())
        .collect();
    names.join(", ")
}

/// What to do when a check fails.
const HINTS: [(Check, &str); 7] = [
    (
        Check::Keyset,
        "the receipt is of another keyset: give it with --keyset FILE, or ask the gateway with --url",
    ),
    (Check::Id, "the gateway gave the receipt of another request: what it did with yours is not known"),
    (
        Check::Session,
        "the session says what the upstream proved: ask the gateway with --url, or give it with --upstream-session \
         FILE",
    ),
    (Check::Request, "give the bytes that were sent, not the same JSON written again"),
    (Check::Response, "give the bytes that were received, of a stream with every event and comment"),
    (
        Check::Logged,
        "nothing proves that others see this request in the log that you know: keep the receipt, and ask the gateway's \
         operator why",
    ),
    (Check::Upstream, "the gateway says that its upstream proved nothing: ask with provider.aci_verified"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_printed_as_the_reports_own_word() {
        let source = json!({"repo_url": "https://e.test/\u{1b}[2Jgw\n", "repo_commit": "c0ffee", "other": 1});
        let text = source_text(Some(&source));
        assert!(text.starts_with("by the report, unproved: https://e.test/"), "{text}");
        assert!(text.ends_with(", commit c0ffee"), "{text}");
        assert!(!text.contains(['\u{1b}', '\n']), "{text:?}");
        for nothing in [None, Some(json!({})), Some(json!("text")), Some(json!({"repo_url": 7}))] {
            assert!(source_text(nothing.as_ref()).starts_with("the report does not say"), "{nothing:?}");
        }
    }
}
