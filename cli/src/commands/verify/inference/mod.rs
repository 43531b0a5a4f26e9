//! Inference gateways: whether one is what it should be, before it is asked something, and whether its account of one request
//! holds afterwards.

mod client;
pub(super) mod gateway;
mod log;
pub(super) mod receipt;
mod report;
mod show;

use serde_json::Value;

use crate::failure::{Exit, Failure};

/// Largest document, in bytes: a report has an event log and a compose document, a session such a report.
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;

fn refused(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Unverified, message)
}

fn parsed(bytes: &[u8], what: &str) -> Result<Value, Failure> {
    cloister_aci::parse(bytes)
        .map_err(|error| Failure::usage(format!("{what} cannot be read")).caused_by(error))
}
