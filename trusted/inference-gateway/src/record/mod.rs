//! What stays of a request when it is over: what it used and cost, its receipt, and, for upstreams that were verified,
//! the session. Never what was said.
//!
//! | Step | Where |
//! |---|---|
//! | a change is made ready by who has it, and waits | `store`, `changes`, `codec`, `row_codec` |
//! | it is judged and written to the journal: it is acknowledged, and reads see it | `writer`, `journal`, `segments`, `frame`, `pending` |
//! | it becomes durable, with others | `syncer` |
//! | the database gets what is not a receipt, and learns where receipts stand; what has had its time goes | `filer`, `turns`, `filing`, `blocks`, `rows`, `tables`, `eviction`, `age` |
//! | what the disk does not take waits until it does | `arrears` |
//! | the hash of a receipt is logged | `log` |
//! | it is read, wherever it is | `reading`, `shared` |
//! | what an earlier version has left is taken over | `layouts` |

mod age;
mod arrears;
mod blocks;
mod changes;
mod codec;
mod disk;
mod eviction;
mod filer;
mod filing;
mod frame;
mod holds;
mod journal;
mod layouts;
mod log;
mod pending;
mod reading;
mod routes;
mod row_codec;
mod rows;
mod segments;
mod shared;
mod store;
mod syncer;
mod tables;
#[cfg(test)]
mod tests;
mod trouble;
mod turns;
mod writer;

use cloister_aci::log::Inclusion;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::admission::KeyHash;
use crate::config::Pricing;

pub use arrears::Arrears;
pub(crate) use disk::Backing;
use disk::Disk;
pub use disk::OpenError;
pub use holds::SessionHold;
pub use reading::UsageRow;
pub(crate) use routes::look_up;
pub use routes::routes;
pub use store::{Settings, Store};
#[cfg(test)]
pub(crate) use tests::bad;
pub use trouble::Trouble;

/// One attempt, or one request that had none. Members are those of a control plane's `consult/post`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The gateway's own id of the request.
    pub request_id: String,
    /// The surface's path.
    pub endpoint: String,
    /// What is recorded: the client's status, 499 when it left, 502 for a broken stream, 402 for an upstream out of
    /// quota, otherwise the upstream's status.
    pub status: u16,
    /// Milliseconds from the first byte in to the last byte out.
    pub duration_ms: u64,
    /// Milliseconds to the first content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<u64>,
    /// Whether it streamed.
    pub is_streaming: bool,
    /// From 0; a summary after total failure has the next one.
    pub attempt_index: u32,
    /// The route that was tried.
    pub selected_route_id: Option<String>,
    /// The model that the client asked for.
    pub request_model: String,
    /// The upstream's `usage`, as it came.
    pub usage: Option<Box<serde_json::value::RawValue>>,
    /// Tokens that are charged, sent and received.
    pub prompt_tokens: u64,
    /// See `prompt_tokens`.
    pub completion_tokens: u64,
    /// What it costs, exactly; zero for what failed.
    pub cost: Decimal,
    /// Prices that held.
    pub pricing: Option<Pricing>,
    /// As admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend_mode: Option<String>,
    /// As admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// As admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_key_id: Option<String>,
    /// `control`, `upstream` or `gateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_source: Option<String>,
    /// A sentence of the gateway's own; never an upstream's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// As admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_hash: Option<String>,
    /// When it ended, in seconds since the Unix epoch.
    pub ended_at: u64,
    /// Whether the request is over with it, so that nothing stays set aside for it.
    #[serde(default)]
    pub is_last: bool,
}

impl Row {
    /// A request that was refused before anything was sent for it: the only row of it, and the last.
    #[must_use]
    pub fn refused(request_id: &str, endpoint: &str, model: &str, status: u16, ended_at: u64) -> Self {
        Self {
            request_id: request_id.to_owned(),
            endpoint: endpoint.to_owned(),
            status,
            duration_ms: 0,
            ttft_ms: None,
            is_streaming: false,
            attempt_index: 0,
            selected_route_id: None,
            request_model: model.to_owned(),
            usage: None,
            prompt_tokens: 0,
            completion_tokens: 0,
            cost: Decimal::ZERO,
            pricing: None,
            spend_mode: None,
            user_id: None,
            virtual_key_id: None,
            error_source: None,
            error_message: Some("the request was refused".to_owned()),
            prefix_hash: None,
            ended_at,
            is_last: true,
        }
    }
}

/// A receipt to be kept.
#[derive(Debug, Clone)]
pub struct KeptReceipt {
    /// `rcpt-…`.
    pub id: String,
    /// Id of the answer, under which it is found, too.
    pub chat_id: Option<String>,
    /// The session that it cites.
    pub session_id: Option<String>,
    /// The signed document.
    pub document: Vec<u8>,
    /// When it was issued, in seconds since the Unix epoch.
    pub served_at: u64,
}

/// Everything about a request that is over.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Whose it was.
    pub key: KeyHash,
    /// Its attempts.
    pub rows: Vec<Row>,
    /// Its receipt, if it has one.
    pub receipt: Option<KeptReceipt>,
}

/// What a lookup of a receipt says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The signed document.
    Found(Vec<u8>),
    /// Not there, no longer there, or another key's: nobody can tell which.
    Absent,
}

/// What a lookup of a receipt in the log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Logged {
    /// Proof that it is there.
    In(Inclusion),
    /// Not there yet: it is appended some moments after it is kept.
    Later,
    /// Nothing is going to append it: it was kept while there was no log, or could not be read, or there is no log now.
    Never,
    /// There is no such receipt, or it is another key's: nobody can tell which.
    Absent,
}

/// The store did not do it. The text is for the operator's log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the gateway's store failed: {0}")]
pub struct StoreError(pub String);

impl StoreError {
    fn new(why: &str) -> Self {
        Self(why.to_owned())
    }

    fn damaged(what: &str) -> Self {
        Self(format!("{what} cannot be read"))
    }

    /// Nobody knows what is in the database.
    fn lost() -> Self {
        Self::new("the disk did not keep what it took for the database")
    }

    /// What goes to the database is not durable in the journal, which is told by itself.
    fn unsettled() -> Self {
        Self::new("the journal is not durable")
    }

    /// Nothing can be written until the disk is well again, or the gateway was started again.
    fn closed() -> Self {
        Self::new("an earlier failure closed it")
    }
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        Self(error.into().to_string())
    }
}
