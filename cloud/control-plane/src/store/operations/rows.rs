//! Operations and their events as they are stored.

use sqlx::FromRow;
use uuid::Uuid;

use crate::operations::{OperationKind, OperationStatus};

/// An operation on a CVM.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct OperationRow {
    /// Identity, shared with its events and webhooks.
    #[sqlx(try_from = "String")]
    pub correlation_id: Uuid,
    /// Subject.
    pub cvm_id: i64,
    /// What is done.
    #[sqlx(try_from = "String")]
    pub kind: OperationKind,
    /// How it stands.
    #[sqlx(try_from = "String")]
    pub status: OperationStatus,
    /// JSON of the kind's arguments.
    pub arguments: String,
    /// Who asked for it.
    pub triggered_by: i64,
    /// That user's name.
    pub triggered_by_username: String,
    /// That user's mail address.
    pub triggered_by_email: String,
    /// Index of the current step, or of the current undo step once `failure` is set.
    pub step: i64,
    /// When the current step has taken too long; 0 until a worker took it up.
    pub step_deadline_ms: i64,
    /// Why it fails or failed.
    pub failure: Option<String>,
    /// 0: nobody wants it to end; 1: somebody cancelled it; 2: another operation waits for the CVM.
    pub cancel_requested: i64,
    /// The revision that it brings.
    pub to_revision: Option<i64>,
    /// The revision that it goes back to when it fails.
    pub from_revision: Option<i64>,
    /// Compose hash of the revision that it brings.
    pub compose_hash: Option<String>,
    /// Status that the CVM has again after a failure that was undone.
    pub recovered_to: Option<String>,
    /// Acceptance time.
    pub started_at_ms: i64,
    /// End time.
    pub completed_at_ms: Option<i64>,
}

/// A transition of an operation.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct EventRow {
    /// The operation.
    #[sqlx(try_from = "String")]
    pub correlation_id: Uuid,
    /// Position within the operation, from 0.
    pub sequence: i64,
    /// For example `instance.create.prepare_disk`.
    pub event_type: String,
    /// Status of the CVM after it.
    pub state: String,
    /// When.
    pub at_ms: i64,
}

/// An operation to be stored.
#[derive(Debug, Clone)]
pub struct NewOperation {
    /// Identity.
    pub correlation_id: Uuid,
    /// Subject.
    pub cvm_id: i64,
    /// What to do.
    pub kind: OperationKind,
    /// JSON of the kind's arguments.
    pub arguments: String,
    /// Who asks.
    pub triggered_by: i64,
    /// An operation that ends before this one begins.
    pub predecessor: Option<Uuid>,
    /// The revision that it brings.
    pub to_revision: Option<i64>,
    /// The revision that it goes back to when it fails.
    pub from_revision: Option<i64>,
}

/// How an operation is wanted to end early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CancelRequest {
    /// Not at all.
    No,
    /// Somebody cancelled it: what it did is undone.
    Cancel,
    /// Another operation waits for the CVM and takes its power away: only what is stored is undone.
    MakeRoom,
}

impl CancelRequest {
    /// As it is stored.
    #[must_use]
    pub const fn from_column(value: i64) -> Self {
        match value {
            0 => Self::No,
            1 => Self::Cancel,
            _ => Self::MakeRoom,
        }
    }

    pub(super) const fn column(self) -> i64 {
        match self {
            Self::No => 0,
            Self::Cancel => 1,
            Self::MakeRoom => 2,
        }
    }
}

/// A query for operations that meet a condition.
macro_rules! select_operation {
    ($condition:literal) => {
        concat!(
            "SELECT o.correlation_id, o.cvm_id, o.kind, o.status, o.arguments, o.triggered_by, \
             u.username AS triggered_by_username, u.email AS triggered_by_email, o.step, \
             o.step_deadline_ms, o.failure, o.cancel_requested, o.started_at_ms, o.completed_at_ms, \
             o.to_revision, o.from_revision, o.recovered_to, r.compose_hash \
             FROM operations o JOIN users u ON u.id = o.triggered_by \
             LEFT JOIN revisions r ON r.id = o.to_revision WHERE ",
            $condition
        )
    };
}

pub(super) use select_operation;
