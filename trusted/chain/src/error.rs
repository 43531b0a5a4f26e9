//! Why a chain gave no answer that can be believed.

use std::fmt;
use std::time::Duration;

/// Longest text of a stranger that is passed on, in bytes.
pub(crate) const MAX_FOREIGN_TEXT: usize = 256;

/// Why a chain gave no answer. Nothing of it is a permission; asking again later may succeed. No text holds more of an
/// endpoint's URL than host and port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// Too few endpoints gave the same answer.
    #[error(
        "chain {chain}: {needed} endpoint(s) must give the same answer, and {agreed} did; {}. \
         Check the endpoints that are configured for this chain, or try again",
        told(endpoints)
    )]
    NoQuorum {
        /// The chain's name.
        chain: String,
        /// How many must agree.
        needed: usize,
        /// How many did at most.
        agreed: usize,
        /// What went wrong where.
        endpoints: Vec<EndpointFailure>,
    },
    /// The question has more parts than one answer may have.
    #[error("too much was asked of the chain at once: at most {limit} {what}")]
    TooMuch {
        /// Parts of which kind.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
}

/// What went wrong with one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointFailure {
    /// Its host, and its port if it is not the usual one.
    pub endpoint: String,
    /// What.
    pub why: Failure,
}

/// Why an endpoint's answer does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It could not be reached.
    #[error("no connection")]
    Connection,
    /// It was too slow.
    #[error("no answer in time")]
    Timeout,
    /// It asks to be left alone for longer than there is time.
    #[error("too many requests; it wants none for {} s", .0.as_secs().max(1))]
    RateLimited(Duration),
    /// It answered with another status than 200.
    #[error("HTTP status {0}")]
    Status(u16),
    /// Its answer is longer than any honest one.
    #[error("an answer that is too long")]
    TooLong,
    /// Its answer is not what was asked for.
    #[error("an answer that cannot be understood ({0})")]
    Garbage(&'static str),
    /// It says that something is wrong.
    #[error("error {code}: {message}")]
    Rpc {
        /// JSON-RPC error code.
        code: i64,
        /// Printable and bounded.
        message: String,
    },
    /// It serves another chain.
    #[error("it serves chain {0}")]
    WrongChain(String),
    /// Its newest block is too old, so that it may not know of revocations.
    #[error("its newest block is {0} s old")]
    Lagging(u64),
    /// Its newest block is from the future.
    #[error("its newest block is from the future; check this machine's clock")]
    Future,
    /// The block in question is not part of its chain, or it has forgotten the block's state.
    #[error("it does not have the confirmed block, or answered for another one")]
    UnknownBlock,
    /// It said something else than others.
    #[error("it contradicts others")]
    Differs,
}

fn told(endpoints: &[EndpointFailure]) -> String {
    endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl fmt::Display for EndpointFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.endpoint, self.why)
    }
}

/// A stranger's words for logs and answers: one line, bounded.
pub(crate) fn printable(text: &str) -> String {
    let mut kept = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if kept.len().saturating_add(c.len_utf8()) > MAX_FOREIGN_TEXT {
            break;
        }
        kept.push(c);
    }
    kept
}
