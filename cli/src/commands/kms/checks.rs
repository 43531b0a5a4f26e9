//! What was checked, what came of it, and the failure that follows.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::output::{Tone, printable};
use crate::session::Session;

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Came {
    Holds,
    Fails,
    NotChecked,
}

#[derive(Debug, Serialize)]
struct Check {
    id: &'static str,
    outcome: Came,
    sentence: String,
}

/// Checks in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Checks(Vec<Check>);

impl Checks {
    pub(super) fn holds(&mut self, id: &'static str, sentence: impl Into<String>) {
        self.add(id, Came::Holds, sentence);
    }

    pub(super) fn fails(&mut self, id: &'static str, sentence: impl Into<String>) {
        self.add(id, Came::Fails, sentence);
    }

    pub(super) fn open(&mut self, id: &'static str, sentence: impl Into<String>) {
        self.add(id, Came::NotChecked, sentence);
    }

    /// Holds with one sentence or fails with another.
    pub(super) fn check(
        &mut self,
        id: &'static str,
        holds: bool,
        yes: impl Into<String>,
        no: impl Into<String>,
    ) {
        if holds { self.holds(id, yes) } else { self.fails(id, no) }
    }

    fn add(&mut self, id: &'static str, outcome: Came, sentence: impl Into<String>) {
        self.0.push(Check { id, outcome, sentence: sentence.into() });
    }

    /// Whether nothing failed.
    pub(super) fn hold(&self) -> bool {
        self.0.iter().all(|check| check.outcome != Came::Fails)
    }

    /// Prints the checks, with `more` members in the document for programs, and fails if one of them did.
    pub(super) fn conclude(
        self,
        more: serde_json::Value,
        what: &str,
        session: &Session,
    ) -> Result<(), Failure> {
        let output = &session.output;
        if output.json {
            let mut document = json!({ "verified": self.hold(), "checks": self.0 });
            if let (Some(members), serde_json::Value::Object(more)) = (document.as_object_mut(), more) {
                members.extend(more);
            }
            output.document(&document);
        } else {
            let width = self.0.iter().map(|check| check.id.len()).max().unwrap_or_default();
            let mut text = String::new();
            for Check { id, outcome, sentence } in &self.0 {
                let (mark, tone) = match outcome {
                    Came::Holds => ("✓", Tone::Good),
                    Came::Fails => ("✗", Tone::Bad),
                    Came::NotChecked => ("-", Tone::Busy),
                };
                let sentence = printable(sentence).replace(['\n', '\t'], " ");
                let _ = writeln!(text, "{} {id:width$}  {sentence}", output.painted(mark, tone));
            }
            output.data(&text);
        }
        let failed: Vec<_> =
            self.0.iter().filter(|check| check.outcome == Came::Fails).map(|check| check.id).collect();
        if failed.is_empty() {
            return Ok(());
        }
        Err(Failure::new(Exit::Unverified, format!("{what} is not verified: {}", failed.join(", "))))
    }
}
