//! Records of what was changed and by whom: their form on the wire, the bytes that are hashed, and how a chain of
//! them is checked. Who writes them and who verifies them use this code; `docs/audit.md` says the same in words.

mod canonical;
mod chain;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use canonical::{canonical_json, configuration_hash, head_message, record_hash};
pub use chain::{AuditChain, AuditFault, AuditPlace};

use crate::ids::{TokenId, UserId, WorkspaceId};

/// Version of the form of records and heads.
pub const AUDIT_VERSION: u32 = 1;
/// What stands for the hash of a record where there is none before.
pub const NO_RECORD: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Who changed something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditActor {
    /// `key`: an API key. `person`: somebody who logged in, or whose link was used. `commit_token`: whoever had the token
    /// of a prepared change. `system`: the service itself. `stranger`: nobody knows who.
    pub kind: String,
    /// Login name of the person or of the key's user, or which part of the system it was: `budget`, `scheduled delete`, `node` or
    /// `operator`, who is somebody at the machine of the control plane.
    pub name: Option<String>,
    /// The person, or the key's user.
    #[schema(value_type = Option<String>)]
    pub user_id: Option<UserId>,
    /// The key.
    #[schema(value_type = Option<String>)]
    pub key_id: Option<TokenId>,
    /// First characters of the key.
    pub key_prefix: Option<String>,
}

/// What was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditTarget {
    /// What it is, such as `cvm`.
    pub kind: String,
    /// What the interface calls it.
    pub id: String,
}

/// A record of one change. Its `hash` is over everything else of it, `previous` included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// Version of this form: 1.
    pub version: u32,
    /// The workspace whose chain it belongs to; null in the chain of the installation.
    #[schema(value_type = Option<String>)]
    pub workspace: Option<WorkspaceId>,
    /// Its place in the chain, from 1.
    pub sequence: i64,
    /// When; never before the time of the record before.
    pub time: Timestamp,
    /// Who.
    pub actor: AuditActor,
    /// `X-Request-ID` of the request, if there was one.
    pub request_id: Option<String>,
    /// The operation, by its name in the OpenAPI document.
    pub operation: String,
    /// What was changed.
    pub target: AuditTarget,
    /// SHA-256 of the target's configuration before, hex; null where there was nothing.
    pub before: Option<String>,
    /// The same after the change; null where there is nothing.
    pub after: Option<String>,
    /// Hash of the record before; zeros for the first one.
    pub previous: String,
    /// SHA-256 of the record without this member, hex.
    pub hash: String,
}

impl AuditRecord {
    /// The hash that it has to have.
    #[must_use]
    pub fn computed_hash(&self) -> String {
        record_hash(&serde_json::to_value(self).unwrap_or(Value::Null))
    }
}

/// A page of records, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    /// The records.
    pub items: Vec<AuditRecord>,
    /// Cursor of the next page; null on the last one.
    pub next_cursor: Option<String>,
}

/// The end of a chain at a time, signed. Whoever keeps one can prove later that records up to it were changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditHead {
    /// Version of this form: 1.
    pub version: u32,
    /// The workspace; null for the chain of the installation.
    #[schema(value_type = Option<String>)]
    pub workspace: Option<WorkspaceId>,
    /// The last record; 0 where there is none.
    pub sequence: i64,
    /// Its hash; zeros where there is none.
    pub hash: String,
    /// When this was signed.
    pub time: Timestamp,
    /// The installation's public key for this, Ed25519, hex.
    pub key: String,
    /// Signature of `cloister-audit-head`, a line feed and the canonical JSON of this without this member, hex.
    pub signature: String,
}

impl AuditHead {
    /// The bytes that the signature is over.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        head_message(&serde_json::to_value(self).unwrap_or(Value::Null))
    }

    /// Where the chain ends.
    #[must_use]
    pub fn place(&self) -> AuditPlace {
        AuditPlace { sequence: self.sequence, hash: self.hash.clone() }
    }
}
