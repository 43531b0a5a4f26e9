//! The history of a CVM.

use cloister_app_compose::ComposeHash;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// One operation: everything with the same correlation id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CvmOperationResponse)]
pub struct Operation {
    /// Its id.
    pub correlation_id: Uuid,
    /// Kind.
    #[schema(example = "power_on")]
    pub operation_type: String,
    /// Status that it aims at.
    pub target_state: String,
    /// Number of the user who asked for it.
    pub triggered_by: i64,
    /// Their login name.
    pub triggered_by_username: Option<String>,
    /// Their mail address.
    pub triggered_by_email: Option<String>,
    /// When it was accepted.
    pub started_at: Timestamp,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// How long it took in milliseconds.
    pub duration_ms: Option<i64>,
    /// `completed`, `in_progress` or `failed`.
    pub status: String,
    /// Why it failed, without what only operators may know.
    pub error_message: Option<String>,
    /// Its steps in order.
    pub sub_operations: Vec<String>,
    /// What happened, oldest first.
    pub events: Vec<OperationEvent>,
    /// Name of the CVM.
    pub instance_name: String,
    /// Hash of the compose document.
    #[schema(value_type = Option<String>)]
    pub compose_hash: Option<ComposeHash>,
}

/// One event of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OperationEventDetail)]
pub struct OperationEvent {
    /// Kind.
    #[schema(example = "instance.power_on.start")]
    pub event_type: String,
    /// When.
    pub timestamp: Timestamp,
    /// Status of the CVM then.
    pub state: String,
}

/// A page of operations, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PaginatedCvmOperationsResponse)]
pub struct OperationPage {
    /// The operations.
    pub items: Vec<Operation>,
    /// Cursor of the next page; null on the last.
    pub next_cursor: Option<String>,
    /// How many there are, approximately.
    pub total: i64,
}

/// Answer of a cancellation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CancelOperationRequest)]
pub struct CancelResponse {
    /// Whether an operation was told to stop.
    pub cancelled: bool,
    /// Which one; null when the CVM was idle.
    pub correlation_id: Option<Uuid>,
}

/// Answer of a change of a CVM's environment: the work goes on after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnvsUpdate {
    /// `in_progress`
    #[schema(example = "in_progress")]
    pub status: String,
    /// The same for people.
    pub message: String,
    /// The operation that does it.
    pub correlation_id: Uuid,
    /// Whether the names that the compose document allows changed, and with them the compose hash.
    pub allowed_envs_changed: bool,
}
