//! How a command fails: one exit code, one sentence, and what to do next.

use std::error::Error;

use serde::Serialize;
use serde_json::{Map, Value};

/// Exit codes; part of the command's interface and never renumbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Success = 0,
    /// Any failure without a code of its own.
    Failed = 1,
    /// The command line or an input file is wrong.
    Usage = 2,
    /// The named thing does not exist.
    NotFound = 3,
    /// No key, a wrong key, or not allowed with this key.
    Unauthorised = 4,
    /// A conflict with what exists, or another operation is still running.
    Conflict = 5,
    /// The wait was given up; the operation may still finish.
    TimedOut = 6,
    /// No answer from the server.
    Unreachable = 7,
    /// Evidence was judged and refused.
    Unverified = 8,
    /// Those who decide for the application have to allow it first.
    AwaitsApproval = 9,
}

impl Exit {
    /// Every code with its meaning, in order; the text of `cloister help exit-codes`.
    pub const TABLE: [(Self, &'static str); 10] = [
        (Self::Success, "done"),
        (Self::Failed, "failed; the text on stderr says why and what to do"),
        (Self::Usage, "the command line or an input file is wrong"),
        (Self::NotFound, "the CVM, node or image does not exist"),
        (Self::Unauthorised, "no API key, a wrong one, or one that may not do this"),
        (Self::Conflict, "conflict with what exists, or the CVM or server is busy: try again later"),
        (Self::TimedOut, "gave up waiting; the operation goes on and may still finish"),
        (Self::Unreachable, "no answer from the server, or no cloud is running"),
        (Self::Unverified, "the evidence does not prove what is expected: do not trust the CVM"),
        (Self::AwaitsApproval, "prepared; those who decide for the application have to allow it first"),
    ];
}

/// Why a command failed, for the person who typed it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    /// Code that the process ends with.
    pub(crate) exit: Exit,
    /// What happened, one sentence without a full stop.
    pub(crate) message: String,
    /// What to do next, one line each.
    pub(crate) hints: Vec<String>,
    /// Number under which the server's operator finds the request in the logs.
    pub(crate) request_id: Option<String>,
    /// What has to be allowed first, and how to go on, as the server said it.
    pub(crate) approval: Option<Box<Map<String, Value>>>,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure with a message only.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            hints: Vec::new(),
            request_id: None,
            approval: None,
            source: None,
        }
    }

    /// Wrong input.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Something on this machine failed.
    pub(crate) fn local(message: impl Into<String>, source: impl Error + Send + Sync + 'static) -> Self {
        Self::new(Exit::Failed, message).caused_by(source)
    }

    /// Adds a line that says what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Keeps the error behind this one; its text is printed after the message.
    pub(crate) fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// The message followed by those of its causes, leaving out what was already said.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.message.clone();
        let mut next = self.source();
        while let Some(error) = next {
            let cause = error.to_string();
            if !text.contains(&cause) {
                text.push_str(": ");
                text.push_str(&cause);
            }
            next = error.source();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_every_code_in_order() {
        for (position, (exit, _)) in Exit::TABLE.iter().enumerate() {
            assert_eq!(usize::from(*exit as u8), position);
        }
    }

    #[test]
    fn a_chain_says_nothing_twice() {
        let inner = std::io::Error::other("disk full");
        let failure = Failure::local("cannot write the profile", inner);
        assert_eq!(failure.chain(), "cannot write the profile: disk full");
    }
}
