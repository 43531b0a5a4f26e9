//! What people and programs see of the checks of a gateway or a receipt.

use std::fmt::Write as _;

use cloister_aci::verify::{Check, Finding, gateway, holds};
use cloister_verifier::appraisal::Appraisal;
use serde_json::{Value, json};

use crate::commands::verify::report;
use crate::failure::{Exit, Failure};
use crate::output::{Output, Tone, printable};

/// What was found of something, check by check.
pub(super) struct Found<'a> {
    /// What was looked at.
    of: &'static str,
    lines: Vec<Line<'a>>,
    holds: bool,
}

struct Line<'a> {
    check: &'static str,
    finding: &'a Finding,
    /// Whether nothing is wrong when it fails.
    may_fail: bool,
    /// What to do about it when it does not hold.
    hint: Option<&'static str>,
}

impl Line<'_> {
    const fn fails(&self) -> bool {
        matches!(self.finding, Finding::Fails(_)) && !self.may_fail
    }

    const fn is_open(&self) -> bool {
        matches!(self.finding, Finding::Open(_))
    }
}

impl<'a> Found<'a> {
    pub(super) fn of_receipt(findings: &'a [(Check, Finding)]) -> Self {
        let lines = findings.iter().map(|(check, finding)| Line {
            check: check.as_str(),
            finding,
            may_fail: *check == Check::Unchanged,
            hint: RECEIPT_HINTS.iter().find(|(of, _)| of == check).map(|(_, hint)| *hint),
        });
        Self { of: "receipt", lines: lines.collect(), holds: holds(findings) }
    }

    /// `may_be_open` is whether somebody else may end TLS.
    pub(super) fn of_gateway(findings: &'a [(gateway::Check, Finding)], may_be_open: bool) -> Self {
        let lines = findings.iter().map(|(check, finding)| Line {
            check: check.as_str(),
            finding,
            may_fail: false,
            hint: GATEWAY_HINTS
                .iter()
                .find(|(of, is_open, _)| of == check && *is_open == matches!(finding, Finding::Open(_)))
                .map(|(_, _, hint)| *hint),
        });
        Self { of: "gateway", lines: lines.collect(), holds: gateway::holds(findings, may_be_open) }
    }

    /// Whether it is worth something.
    pub(super) const fn holds(&self) -> bool {
        self.holds
    }

    fn names(&self, which: impl Fn(&Line<'a>) -> bool) -> String {
        let names = self.lines.iter().filter(|line| which(line)).map(|line| line.check);
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Prints the claims about the machine, then the checks, and where its software comes from by the report, for whoever wants to
/// build it: nothing proves that, and nothing but the measurements proves what runs. `more` is for programs.
pub(super) fn show(
    output: &Output,
    appraisal: &Appraisal,
    found: &Found<'_>,
    source: Option<&Value>,
    more: &Value,
) {
    if output.json {
        let mut document = json!({
            "verified": appraisal.verified && found.holds,
            "evidence": appraisal,
            "checks": found.lines.iter().map(document).collect::<Vec<_>>(),
            "unproved_source": source,
        });
        if let (Some(document), Some(more)) = (document.as_object_mut(), more.as_object()) {
            document.extend(more.clone());
        }
        output.document(&document);
        return;
    }
    report::show(output, appraisal);
    let width = found.lines.iter().map(|line| line.check.len()).max().unwrap_or_default();
    let mut text = String::new();
    for line in &found.lines {
        let (mark, tone, words) = match line.finding {
            Finding::Holds => ("✓", Tone::Good, "holds"),
            Finding::Fails(reason) if line.may_fail => ("-", Tone::Busy, reason.as_str()),
            Finding::Fails(reason) => ("✗", Tone::Bad, reason.as_str()),
            Finding::Open(reason) => ("-", Tone::Busy, reason.as_str()),
        };
        let words = printable(words).replace(['\n', '\t'], " ");
        let _ = writeln!(text, "{} {} {:width$}  {words}", output.painted(mark, tone), found.of, line.check);
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

fn document(line: &Line<'_>) -> Value {
    let (outcome, reason) = match line.finding {
        Finding::Holds => ("holds", None),
        Finding::Fails(reason) => ("fails", Some(reason)),
        Finding::Open(reason) => ("not-checked", Some(reason)),
    };
    json!({ "id": line.check, "outcome": outcome, "reason": reason })
}

/// The failure that the command ends with, when what was looked at does not hold.
pub(super) fn refusal(found: &Found<'_>) -> Option<Failure> {
    if found.holds {
        return None;
    }
    let failing = found.names(Line::fails);
    let message = if failing.is_empty() {
        let open = found.names(Line::is_open);
        format!("the {} is not proven: {open}", found.of)
    } else {
        format!("the {} is refused: {failing}", found.of)
    };
    // What is open is told with what to do where nothing fails.
    let is_trouble = |line: &&Line<'_>| if failing.is_empty() { line.is_open() } else { line.fails() };
    let hints = found.lines.iter().filter(is_trouble).filter_map(|line| line.hint);
    Some(hints.fold(Failure::new(Exit::Unverified, message), Failure::hint))
}

/// The last word on what holds.
pub(super) fn conclusion(appraisal: &Appraisal, found: &Found<'_>) -> String {
    let (open, machine) = (found.names(Line::is_open), report::conclusion(appraisal));
    if open.is_empty() { machine } else { format!("{machine}; of the {} not checked: {open}", found.of) }
}

/// What to do when a check of a receipt fails.
const RECEIPT_HINTS: [(Check, &str); 7] = [
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

/// What to do when a check of a gateway fails, or is open.
const GATEWAY_HINTS: [(gateway::Check, bool, &str); 3] = [
    (
        gateway::Check::Keyset,
        false,
        "its keys have ended, and it should have had others before that: ask its operator why",
    ),
    (
        gateway::Check::Tls,
        false,
        "somebody may sit between you and the gateway: do not send it prompts or keys, and name the address at which it ends \
         TLS itself",
    ),
    (
        gateway::Check::Tls,
        true,
        "name the address at which it ends TLS itself, or say --any-tls if you encrypt fields, or are on its machine",
    ),
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
