//! Changes that wait until those who decide for an application have allowed them.

use cloister_app_compose::{AppId, ComposeHash, members};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::changes::ConfigurationDiff;
use crate::refs::KmsInfo;

members! {
    /// Body of `POST /cvms/{cvm_id}/commit-update` and `…/commit-replica`.
    #[derive(Debug, Clone, Default, PartialEq, Eq, ToSchema)]
    pub struct CommitRequest {
        /// Commit token, unless the query has it.
        #[schema(example = "0b6a4a5e-5d7c-4b7e-9f0e-0c5f5b1d8f3a")]
        pub token: Option<String>,
        /// Hash that is to be committed; empty for the one that was prepared.
        pub compose_hash: Option<String>,
        /// Transaction that allowed it; empty or `already-registered` has only the state of the contract looked at.
        pub transaction_hash: Option<String>,
    }
}

/// What those who decide say to a document on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OnChainStatus {
    /// The document is allowed.
    pub compose_hash_allowed: bool,
    /// The device is in the list of allowed ones.
    pub device_id_allowed: bool,
    /// The document may run on the device: both are so, or every device is allowed.
    pub is_allowed: bool,
}

/// A call of a contract that somebody has to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContractCall {
    /// Address of the contract, `0x` and 40 hex digits.
    pub to: String,
    /// Name of the function.
    #[schema(example = "addComposeHash")]
    pub method: String,
    /// What to send: selector and arguments as the ABI encodes them, `0x` and hex digits.
    pub calldata: String,
}

/// A change that waits for approval, or did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreparedChange {
    /// `pending`, `committed` or `superseded`.
    #[schema(example = "pending")]
    pub status: String,
    /// `update` of the CVM, or a `replica` of it.
    #[schema(example = "update")]
    pub kind: String,
    /// The application.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// The CVM that is changed, or that the new one is to be like.
    pub vm_uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Hash of the document that has to be allowed.
    #[schema(value_type = String)]
    pub compose_hash: ComposeHash,
    /// Device that it has to be allowed on.
    pub device_id: String,
    /// Where the application's keys come from.
    pub kms_info: Option<KmsInfo>,
    /// The chain of the contract that decides.
    pub chain_id: Option<i64>,
    /// What those who decide say now; null when they cannot be asked.
    pub onchain_status: Option<OnChainStatus>,
    /// What the owner of the contract has still to call.
    pub onchain_actions: Vec<ContractCall>,
    /// When it is forgotten.
    pub expires_at: Timestamp,
    /// The document whose SHA-256 is the compose hash; null once the change ended.
    pub app_compose: Option<String>,
    /// What differs from what the CVM has now, in words; null once the change ended.
    pub summary: Option<String>,
    /// The same, structured.
    pub diff: Option<ConfigurationDiff>,
    /// What came of it, once it was committed.
    pub correlation_id: Option<String>,
}

/// Answer of `POST /cvms/{cvm_id}/commit-update`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommittedUpdate {
    /// The operation that carries it out.
    pub correlation_id: Uuid,
    /// `in_progress`
    #[schema(example = "in_progress")]
    pub status: String,
}

/// Answer of `GET /apps/{app_id}/pending-updates`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingUpdates {
    /// Documents that are allowed and were not applied.
    pub items: Vec<PendingUpdate>,
}

/// A document that is allowed and was not applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingUpdate {
    /// The CVM that it is for.
    pub vm_uuid: Uuid,
    /// Its hash.
    #[schema(value_type = String)]
    pub compose_hash: ComposeHash,
    /// True: those who decide have allowed it.
    pub on_chain: bool,
    /// Name of the CVM.
    pub instance_name: Option<String>,
}

/// Answer of `GET /apps/{app_id}/pending-updates/{vm_uuid}/{compose_hash}/preview`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingUpdatePreview {
    /// The compose file that the CVM has.
    pub current_docker_compose: Option<String>,
    /// The compose file that it would get.
    pub pending_docker_compose: Option<String>,
    /// The pre-launch script that the CVM has.
    pub current_pre_launch_script: Option<String>,
    /// The pre-launch script that it would get.
    pub pending_pre_launch_script: Option<String>,
}
