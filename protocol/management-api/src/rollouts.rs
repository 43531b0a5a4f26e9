//! One change over several CVMs of an application, and CVMs that leave a node.

use cloister_app_compose::decode::{Decode, Reader};
use cloister_app_compose::{AppId, members};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::openapi::{AllOfBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use crate::ids::{RevisionId, RolloutId};
use crate::refs::UserRef;
use crate::requests::Parsed;
use crate::updates::UpdateCvmRequest;

members! {
    /// How a rollout goes.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct RolloutOptions {
        /// A former configuration to bring to the CVMs, instead of the members of an update.
        #[schema(value_type = Option<String>)]
        pub revision_id: Option<Parsed<RevisionId>>,
        /// CVMs that are changed, in this order. Left out: all of the application.
        pub vm_uuids: Option<Vec<String>>,
        /// Most CVMs that are changed at the same time; one of several always stays in service.
        #[schema(minimum = 1)]
        #[schema(required = false)]
        pub max_unavailable: u32 = 1,
        /// What happens when a CVM cannot be changed: `roll_back` takes back those that were, `pause` waits.
        #[schema(example = "roll_back")]
        pub on_failure: Option<String>,
        /// With `revision_id`: go on although its sealed environment is gone, or was sealed to another key.
        #[schema(required = false)]
        pub allow_env_mismatch: bool = false,
    }
}

/// Body of `POST /apps/{app_id}/rollouts`: how it goes, and beside that what changes, with the members of
/// `PATCH /cvms/{cvm_id}`.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutRequest {
    /// How it goes.
    pub options: RolloutOptions,
    /// What changes.
    pub change: UpdateCvmRequest,
}

// Derived, it would have two members.
impl PartialSchema for RolloutRequest {
    fn schema() -> RefOr<Schema> {
        let text =
            "How a rollout goes, and beside that what changes, with the members of `PATCH /cvms/{cvm_id}`.";
        let all = AllOfBuilder::new().item(RolloutOptions::schema()).item(UpdateCvmRequest::schema());
        Schema::AllOf(all.description(Some(text)).build()).into()
    }
}

impl ToSchema for RolloutRequest {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        RolloutOptions::schemas(schemas);
        UpdateCvmRequest::schemas(schemas);
    }
}

impl Decode for RolloutRequest {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        // Both read the same object; each ignores the other's members.
        let options = RolloutOptions::decode(value, reader);
        let change = UpdateCvmRequest::decode(value, reader);
        Some(Self { options: options?, change: change? })
    }
}

members! {
    /// Body of `POST /apps/{app_id}/rollouts/{rollout_id}/abort`; may be left out.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ToSchema)]
    pub struct AbortRolloutRequest {
        /// Take back the CVMs that were changed; otherwise they keep what they have.
        #[schema(required = false)]
        pub roll_back: bool = false,
    }
}

/// A rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rollout {
    /// Id.
    pub rollout_id: RolloutId,
    /// Application.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// `running`, `paused`, `rolling_back`, `rollback_paused`, `aborting`, `completed`, `rolled_back` or
    /// `aborted`.
    #[schema(example = "running")]
    pub state: String,
    /// Why it does not go on, or went back.
    pub reason: Option<String>,
    /// What happens when a CVM cannot be changed.
    pub on_failure: String,
    /// Most CVMs that are changed at the same time.
    pub max_unavailable: i64,
    /// Who asked for it.
    pub triggered_by: Option<UserRef>,
    /// When.
    pub created_at: Timestamp,
    /// Its last change of state.
    pub updated_at: Timestamp,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// Its CVMs in the order of their turns.
    pub members: Vec<RolloutMember>,
}

/// A CVM of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutMember {
    /// Identity.
    pub vm_uuid: Uuid,
    /// Name.
    pub name: String,
    /// `pending`, `updating`, `updated`, `failed`, `restoring`, `restored`, `restore_failed` or `gone`.
    #[schema(example = "updated")]
    pub state: String,
    /// The latest operation of the rollout on it.
    pub correlation_id: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Status of the CVM.
    pub cvm_status: String,
    /// How its application does.
    pub health: Option<String>,
}

/// A page of rollouts, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutPage {
    /// The rollouts.
    pub rollouts: Vec<Rollout>,
    /// How many there are.
    pub total: i64,
    /// Number of this page, from 1.
    pub page: u32,
    /// Most rollouts of a page.
    pub page_size: u32,
    /// How many pages there are.
    pub total_pages: i64,
}

/// A node that is being emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDrain {
    /// Name of the node.
    pub node: String,
    /// Whether nothing new is placed there.
    pub draining: bool,
    /// `draining`; `ending` while a move that was begun ends; `ended`.
    #[schema(example = "draining")]
    pub state: String,
    /// When it was begun.
    pub started_at: Option<Timestamp>,
    /// When it was ended.
    pub ended_at: Option<Timestamp>,
    /// CVMs that are left on the node, and those that left it.
    pub cvms: Vec<DrainedCvm>,
}

/// A CVM of a node that is being emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainedCvm {
    /// Identity.
    pub vm_uuid: Uuid,
    /// Name.
    pub name: String,
    /// `waiting` for its turn, `staying`, `replicating`, `retiring`, `discarding`, `moved`, `failed` or `gone`.
    #[schema(example = "staying")]
    pub state: String,
    /// Why it stays, or could not be moved.
    pub reason: Option<String>,
    /// Identity of the CVM that takes its place.
    pub replacement: Option<Uuid>,
}
