//! Keys that log in to CVMs.

use cloister_app_compose::members;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::ids::{SshKeyId, UserId};

/// A key of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SshKeyResponse)]
pub struct SshKey {
    /// Id.
    pub id: SshKeyId,
    /// Whose.
    pub user_id: UserId,
    /// Name for people.
    pub name: String,
    /// The key in OpenSSH's form.
    pub public_key: String,
    /// `SHA256:…`
    pub fingerprint: String,
    /// `ed25519`, `ecdsa`, `rsa`, `sk-ed25519` or `sk-ecdsa`.
    pub key_type: String,
    /// `manual`
    pub source: String,
    /// What its source tells about it.
    #[schema(value_type = Option<Object>)]
    pub key_metadata: Option<Map<String, Value>>,
    /// When it was compared with its source last.
    pub last_synced_at: Option<Timestamp>,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub updated_at: Timestamp,
}

members! {
    /// Body of `POST /user/ssh-keys`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct SshKeyCreateRequest {
        /// Name for people, 1 to 100 characters.
        #[schema(min_length = 1, max_length = 100)]
        pub name: String,
        /// The key as OpenSSH writes it, RSA from 2048 bits on.
        #[schema(example = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti me@example.org")]
        pub public_key: String,
    }
}

members! {
    /// Body of `POST /user/ssh-keys/github-profile`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct GithubProfileImportRequest {
        /// Name of the account, 1 to 39 characters.
        #[schema(min_length = 1, max_length = 39)]
        pub github_username: String,
    }
}

/// What became of keys that were taken over from an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GithubProfileImportResponse {
    /// Name of the account.
    pub github_username: String,
    /// Keys that are new.
    pub keys_added: u32,
    /// Keys that were there already.
    pub keys_skipped: u32,
    /// What went wrong.
    pub errors: Vec<String>,
}

/// What became of keys that were compared with an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GithubSyncResponse {
    /// Keys of the account.
    pub synced_count: u32,
    /// Keys that are new.
    pub keys_added: u32,
    /// Keys that were changed.
    pub keys_updated: u32,
    /// Keys that the account has no more.
    pub keys_removed: u32,
    /// What went wrong.
    pub errors: Vec<String>,
}

/// The keys that log in to a CVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CvmSshKeys {
    /// The keys.
    pub keys: Vec<CvmSshKey>,
    /// Whether the CVM has them only after its next start.
    pub restart_required: bool,
}

/// A key that logs in to a CVM. One that no member of the workspace keeps in their account has neither id nor
/// owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CvmSshKey {
    /// Id.
    pub id: Option<SshKeyId>,
    /// Whose.
    pub owner_user_id: Option<UserId>,
    /// Login name of that user.
    pub owner_username: Option<String>,
    /// Who let it in.
    pub added_by_user_id: Option<UserId>,
    /// Name for people.
    pub name: String,
    /// The key in OpenSSH's form.
    pub public_key: String,
    /// `SHA256:…`
    pub fingerprint: String,
    /// `ed25519`, `ecdsa`, `rsa`, `sk-ed25519` or `sk-ecdsa`.
    pub key_type: String,
}

members! {
    /// Body of `PUT /cvms/{cvm_id}/ssh-keys`. The keys replace those that the CVM has.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct UpdateCvmSshKeysRequest {
        /// Keys of members of the workspace, at most 100.
        #[schema(required = false)]
        pub ssh_key_ids: Vec<String> = Vec::new(),
        /// Members of the workspace all of whose keys are added.
        #[schema(required = false)]
        pub usernames: Vec<String> = Vec::new(),
        /// Restart a CVM that is up, so that it has them now.
        #[schema(required = false)]
        pub apply_now: bool = false,
    }
}
