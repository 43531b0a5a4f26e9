//! Owners of applications that no contract decides about, and what they sign.

use cloister_app_compose::{AppId, ComposeHash, members};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

members! {
    /// Body of `PUT /apps/{app_id}/owners`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct SetAppOwnersRequest {
        /// How many of the owners have to sign a change, 1 to their number.
        #[schema(example = 2)]
        pub threshold: u32,
        /// Public keys in the form of OpenSSH, 1 to 32: `ssh-ed25519`, `ecdsa-sha2-nistp256`, or hardware keys.
        pub keys: Vec<String>,
    }
}

members! {
    /// Body of `POST /apps/{app_id}/approvals` and `DELETE /apps/{app_id}/approvals/{compose_hash}`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct ApprovalRequest {
        /// The statement that was signed, its text as it is.
        pub statement: String,
        /// What `ssh-keygen -Y sign -n cloister-approval` wrote, whole.
        pub signature: String,
    }
}

/// An owner of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppOwner {
    /// Public key in the form of OpenSSH.
    pub key: String,
    /// `SHA256:…`
    pub fingerprint: String,
    /// Members of the workspace who keep this key here.
    pub members: Vec<String>,
}

/// Who owns an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppOwners {
    /// The application.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// How many owners have to sign a change; 0 without owners.
    pub threshold: u32,
    /// The owners; none where the workspace decides.
    pub owners: Vec<AppOwner>,
    /// Serial of the statement that made them owners; 0 without owners.
    pub serial: u64,
    /// When this service was told of them.
    pub set_at: Option<Timestamp>,
    /// What the key management service says and its root signs; null while it cannot be asked. This, and not the
    /// rest, is what counts.
    pub kms_statement: Option<OwnersStatement>,
    /// Why it could not be asked.
    pub kms_error: Option<String>,
}

/// What a key management service says about the owners of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnersStatement {
    /// The application.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// Its owners; absent where the operator decides alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owners: Option<StatedOwners>,
    /// Serial of the statement that made them owners.
    pub serial: u64,
    /// Documents that the application may run.
    pub allowed_documents: u64,
    /// Unix time in seconds of the signature.
    pub timestamp: u64,
    /// Recoverable secp256k1 signature of the root over all of that, hex.
    pub signature: String,
    /// Version of the root.
    pub root_version: u32,
}

/// Owners in a statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatedOwners {
    /// How many have to sign.
    pub threshold: u32,
    /// Public keys in the form of OpenSSH.
    pub keys: Vec<String>,
}

/// What owners of an application have to sign, or signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppApprovals {
    /// The statements.
    pub items: Vec<Approval>,
    /// Greater than every serial that was signed: the least one for a revocation.
    pub next_serial: u64,
    /// Revocations that some key management service has not heard of yet, longest first, at most 100: until it has, it
    /// still gives keys to what was taken back. Each is told again until it is heard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untold_revocations: Vec<UntoldRevocation>,
}

/// A revocation that a key management service has not heard of yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UntoldRevocation {
    /// Document that owners took back.
    #[schema(value_type = String)]
    pub compose_hash: ComposeHash,
    /// Name of the service; its id where it is not part of the installation any more.
    pub kms: String,
    /// Serial of the revocation.
    pub serial: u64,
    /// Since when it is to be told.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// How often that was tried.
    pub attempts: u64,
    /// When it is tried next.
    #[schema(value_type = String, format = DateTime)]
    pub next_attempt_at: Timestamp,
    /// Why the last try failed; null before the first one ended.
    pub error: Option<String>,
}

/// A statement that owners sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    /// `allow_compose_hash`, `revoke_compose_hash` or `set_owners`.
    #[schema(example = "allow_compose_hash")]
    pub action: String,
    /// Document that is meant; null for owners.
    #[schema(value_type = Option<String>)]
    pub compose_hash: Option<ComposeHash>,
    /// Text that each of them signs, byte for byte.
    pub statement: String,
    /// How many have to sign.
    pub threshold: u32,
    /// Who did.
    pub signed_by: Vec<ApprovalSigner>,
    /// Whether enough did.
    pub is_approved: bool,
    /// What waits for it: `prepared` changes, CVMs that have the document (`in_use`), other owners (`proposed`), or
    /// nothing but the signatures themselves (`signed`).
    #[schema(example = "prepared")]
    pub reason: String,
    /// CVMs that wait for it or have it.
    pub cvms: Vec<ApprovalCvm>,
    /// The document whose SHA-256 is the compose hash, where it is known.
    pub app_compose: Option<String>,
    /// The document that the first of the CVMs has now.
    pub current_app_compose: Option<String>,
    /// Owners that the application is to get.
    pub proposed_owners: Option<StatedOwners>,
}

/// An owner who signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalSigner {
    /// Key: `SHA256:…`
    pub fingerprint: String,
    /// Members of the workspace who keep this key here.
    pub members: Vec<String>,
    /// When the signature was handed in.
    pub signed_at: Timestamp,
}

/// A CVM that an approval is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalCvm {
    /// Identity on its node.
    pub vm_uuid: Uuid,
    /// Name.
    pub name: String,
}
