//! Events: written in the transaction of what they tell of.

use cloister_app_compose::AppId;
use cloister_webhooks::{EventId, EventKind};
use serde_json::Value;
use uuid::Uuid;

use crate::clock::{NoRandomness, Random};
use crate::store::{Change, NewWebhookEvent, Recipient, StoreError};

/// What an event is about. Events about the same are told one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A CVM; the change holds it.
    Cvm(i64),
    /// An application; the change holds its workspace.
    App(AppId),
}

/// Something that happened.
#[derive(Debug)]
pub struct Emission {
    /// Where.
    pub workspace_id: i64,
    /// What.
    pub kind: EventKind,
    /// To what.
    pub subject: Subject,
    /// The operation that ended with it.
    pub operation: Option<Uuid>,
    /// What is told of it, without anything secret: it is kept in clear.
    pub data: Value,
}

/// Why an event was not written.
#[derive(Debug, thiserror::Error)]
pub enum EmitError {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No randomness for its identity.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

/// Writes an event and who is to be told of it; its number. It is the last thing that a change does before its
/// commit: events are numbered in the order of commits.
pub async fn emit(
    change: &mut Change,
    random: Random,
    emission: &Emission,
    now_ms: i64,
) -> Result<i64, EmitError> {
    let event_id = EventId::new(random.bytes()?);
    let (cvm_id, ordering) = match emission.subject {
        Subject::Cvm(id) => (Some(id), format!("cvm:{id}")),
        Subject::App(app_id) => (None, format!("app:{app_id}")),
    };
    let new = NewWebhookEvent {
        workspace_id: emission.workspace_id,
        event_type: emission.kind.as_str(),
        event_id: event_id.as_str(),
        cvm_id,
        ordering: &ordering,
        correlation_id: emission.operation,
        recipient: Recipient::Subscribers,
        data: &emission.data.to_string(),
    };
    Ok(change.insert_webhook_event(&new, now_ms).await?)
}
