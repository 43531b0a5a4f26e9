//! Refreshing the instance ids of CVMs (spec 2.5).

use cloister_app_compose::{InstanceId, members};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::VmId;

members! {
    /// Body of `PATCH /cvms/{cvm_id}/instance-id`; may be left out.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ToSchema)]
    pub struct RefreshInstanceIdRequest {
        /// Ask the node now and replace an instance id that is known already.
        #[schema(required = false)]
        pub overwrite: bool = false,
        /// Report what would be, and store nothing.
        #[schema(required = false)]
        pub dry_run: bool = false,
    }
}

members! {
    /// Body of `PATCH /cvms/instance-ids`; may be left out.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct RefreshInstanceIdsRequest {
        /// Ids of the CVMs, integers as text or `cvm_…`; administrators may name those of other workspaces. Left
        /// out: all of the workspace, for administrators of the installation.
        #[schema(value_type = Option<Vec<String>>)]
        pub cvm_ids: Option<Vec<CvmNumber>>,
        /// Leave out CVMs that do not run.
        #[schema(required = false)]
        pub running_only: bool = true,
        /// Leave out CVMs whose instance id is known.
        #[schema(required = false)]
        pub missing_only: bool = true,
        /// Ask the node now and replace instance ids that are known already.
        #[schema(required = false)]
        pub overwrite: bool = false,
        /// Most CVMs, 1 to 500.
        #[schema(required = false)]
        pub limit: u32 = 100,
        /// Report what would be, and store nothing.
        #[schema(required = false)]
        pub dry_run: bool = false,
    }
}

/// The id of a CVM in a list: an integer, its text, or the hashed form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CvmNumber {
    /// As the request spells it.
    pub text: String,
    /// The number, if it is one.
    pub id: Option<i64>,
}

impl cloister_app_compose::decode::Decode for CvmNumber {
    fn decode(value: &serde_json::Value, reader: &mut cloister_app_compose::decode::Reader) -> Option<Self> {
        let text = match value {
            serde_json::Value::Number(number) => number.to_string(),
            other => String::decode(other, reader)?,
        };
        let id = text.parse().ok().or_else(|| text.parse::<crate::ids::CvmId>().ok().map(|id| id.0));
        Some(Self { text, id })
    }
}

/// What became of a CVM's instance id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InstanceIdStatus {
    /// Stored, or with `dry_run` it would be.
    Updated,
    /// It is the one that is known.
    Unchanged,
    /// Nothing was found.
    Skipped,
    /// Another CVM has it.
    Conflict,
    /// The node could not be asked.
    Error,
}

/// Where an instance id was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InstanceIdSource {
    /// In the node's reports.
    TeepodState,
    /// The node was asked.
    TeepodInfo,
    /// At the gateway.
    Gateway,
    /// Nowhere.
    None,
}

/// The result for one CVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceIdRefresh {
    /// The CVM.
    pub cvm_id: VmId,
    /// Its UUID, or what the request called it.
    pub identifier: String,
    /// What became of it.
    pub status: InstanceIdStatus,
    /// The instance id that was known.
    #[schema(value_type = Option<String>)]
    pub old_instance_id: Option<InstanceId>,
    /// The instance id that was found.
    #[schema(value_type = Option<String>)]
    pub new_instance_id: Option<InstanceId>,
    /// Where it was found.
    pub source: InstanceIdSource,
    /// The ingress routes the host name of the instance id to this CVM.
    pub verified_with_gateway: bool,
    /// Why, for people.
    pub reason: Option<String>,
}

/// The results for many CVMs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceIdRefreshes {
    /// CVMs that match the request.
    pub total: usize,
    /// CVMs that were looked at, within limit and time.
    pub scanned: usize,
    /// How many were updated.
    pub updated: usize,
    /// How many are unchanged.
    pub unchanged: usize,
    /// How many were skipped.
    pub skipped: usize,
    /// How many have an instance id of another CVM.
    pub conflicts: usize,
    /// How many failed.
    pub errors: usize,
    /// One result for each that was looked at.
    pub items: Vec<InstanceIdRefresh>,
}
