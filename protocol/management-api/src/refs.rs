//! Short references to records, inside of others.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ids::{KmsId, UserId, WorkspaceId};

macro_rules! object_type {
    ($($(#[$doc:meta])* $name:ident = $text:tt;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        pub enum $name {
            /// The only value.
            #[default]
            #[serde(rename = $text)]
            Value,
        }
    )+};
}

object_type! {
    /// Fixed text `node`.
    NodeType = "node";
    /// Fixed text `user`.
    UserType = "user";
    /// Fixed text `workspace`.
    WorkspaceType = "workspace";
}

/// Whether a node can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum NodeStatus {
    /// It reports and accepts changes.
    Online,
    /// It has not reported for a while.
    Offline,
    /// Its operator wants no changes there now.
    Maintenance,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRef {
    /// `node`
    pub object_type: NodeType,
    /// Number of the node service (`teepod_id` elsewhere).
    pub id: Option<i64>,
    /// Number of the physical node.
    pub node_id: Option<i64>,
    /// Name.
    pub name: Option<String>,
    /// Region label.
    pub region: Option<String>,
    /// SHA-256 of the platform identity, 64 hex digits; empty until a CVM on the node has proved it.
    pub device_id: Option<String>,
    /// Platform identity, 32 hex digits; empty until a CVM on the node has proved it.
    pub ppid: Option<String>,
    /// Whether it can be used.
    pub status: Option<NodeStatus>,
    /// Version of the node's program.
    pub version: Option<String>,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserRef {
    /// `user`
    pub object_type: UserType,
    /// Id.
    pub id: Option<UserId>,
    /// Login name.
    pub username: Option<String>,
    /// Picture.
    pub avatar_url: Option<String>,
}

/// A workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceRef {
    /// `workspace`
    pub object_type: WorkspaceType,
    /// Id.
    pub id: WorkspaceId,
    /// Name.
    pub name: String,
    /// Name in URLs.
    pub slug: Option<String>,
    /// Picture.
    pub avatar_url: Option<String>,
}

/// A node inside of a `VM` record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TeepodMeta {
    /// Number.
    pub id: i64,
    /// Name.
    pub name: String,
}

/// A node inside of a list or detail of version 2025-10-28.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CvmNode {
    /// Number.
    pub id: i64,
    /// Name.
    pub name: String,
    /// Region label.
    pub region_identifier: Option<String>,
}

/// The owner inside of a list of version 2025-10-28.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ManagedUser {
    /// Number.
    pub id: i64,
    /// Login name.
    pub username: String,
}

/// Addresses under which the ingress routes to a CVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CvmNetworkUrls {
    /// By application: any of its CVMs answers.
    pub app: String,
    /// By instance: this CVM answers; empty before its first boot.
    pub instance: String,
}

/// A node of a key management service. Every member is always present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = KMSInfo)]
pub struct KmsInfo {
    /// Id.
    pub id: KmsId,
    /// Name in requests.
    pub slug: Option<String>,
    /// Address.
    pub url: String,
    /// Version of its program.
    pub version: String,
    /// Chain of its contract; null off chain.
    pub chain_id: Option<i64>,
    /// Its contract; null off chain.
    pub kms_contract_address: Option<String>,
    /// App id of the gateway that it trusts.
    pub gateway_app_id: Option<String>,
}
