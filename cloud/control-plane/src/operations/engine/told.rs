//! What webhooks are told when an operation ends.

use cloister_webhooks::{CvmData, EventKind};
use serde_json::json;

use super::super::machine::OperationKind;
use super::super::words::sanitised;
use crate::store::{CvmRow, OperationRow};
use crate::webhooks::{Emission, Subject};

/// Characters of a reason that are told.
const MAX_REASON: usize = 1_000;

impl OperationKind {
    /// The kind of event that its end is. One that failed is never told as what did not happen: receivers go by the
    /// kind, and some look no further.
    #[must_use]
    pub const fn event(self, failed: bool) -> EventKind {
        match self {
            Self::Create | Self::Replicate if failed => EventKind::CvmCreateFailed,
            _ if failed => EventKind::CvmUpdated,
            Self::Create | Self::Replicate => EventKind::CvmCreated,
            Self::PowerOn => EventKind::CvmStarted,
            Self::Restart => EventKind::CvmRestarted,
            Self::Shutdown | Self::PowerOff => EventKind::CvmStopped,
            Self::ComposeUpdate
            | Self::EnvUpdate
            | Self::Resize
            | Self::OsUpgrade
            | Self::Update
            | Self::MapPorts => EventKind::CvmUpdated,
            Self::Delete => EventKind::CvmDeleted,
        }
    }
}

/// The event that the end of an operation is; `status` is what its CVM shows then.
pub(super) fn ended(operation: &OperationRow, cvm: &CvmRow, status: &str) -> Emission {
    let error = operation.failure.as_deref().map(sanitised);
    let data = CvmData {
        cvm_id: cvm.vm_uuid.to_string(),
        cvm_name: cvm.name.clone(),
        app_id: format!("0x{}", cvm.app_id),
        status: status.to_owned(),
        error: error.map(|text| text.chars().take(MAX_REASON).collect()),
    };
    Emission {
        workspace_id: cvm.workspace_id,
        kind: operation.kind.event(operation.failure.is_some()),
        subject: Subject::Cvm(cvm.id),
        operation: Some(operation.correlation_id),
        data: json!(data),
    }
}
