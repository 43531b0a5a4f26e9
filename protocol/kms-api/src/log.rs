//! The release log: what is in it and how it is read.
//!
//! An append-only Merkle tree (RFC 6962 hashes) of JSON records, with checkpoints in the form of C2SP
//! `tlog-checkpoint`, signed notes. Read it below the directory:
//!
//! | `GET` | Answer |
//! |---|---|
//! | `/log/checkpoint` | newest signed checkpoint, text |
//! | `/log/records?start=N&limit=M` | [`Records`], at most [`MAX_RECORDS`] |
//! | `/log/inclusion?index=N&size=M` | [`Proof`] |
//! | `/log/consistency?from=N&to=M` | [`Proof`] |

use cloister_app_compose::{AppId, ComposeHash, InstanceId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::approvals::Owners;
use crate::{Hex, KmsErrorCode};

/// Most records of one answer.
pub const MAX_RECORDS: usize = 1000;

/// Records in order; each the exact text of its leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// Index of the first record.
    pub start: u64,
    /// Exact bytes of the leaves: JSON texts of [`Record`].
    pub records: Vec<String>,
}

/// Hashes of a Merkle proof, 32 bytes each, in the order of RFC 6962.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The hashes.
    pub hashes: Vec<Hex>,
}

/// A leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// Who asked, by its verified evidence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// Application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_id: Option<AppId>,
    /// Its document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compose_hash: Option<ComposeHash>,
    /// CVM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<InstanceId>,
    /// Image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_image_hash: Option<Hex>,
    /// Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_id: Option<Hex>,
    /// Aggregate of all registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mr_aggregated: Option<Hex>,
}

/// A block of a chain by which something was allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizedAt {
    /// Chain.
    pub chain_id: u64,
    /// Number of the block.
    pub block_number: u64,
    /// Its hash, 32 bytes.
    pub block_hash: Hex,
}

/// What owners of an application signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Serial of the statement; 0 without signers.
    pub serial: u64,
    /// Fingerprints of those who signed, as OpenSSH shows them (`SHA256:…`); none of a document that came with
    /// the roots of another KMS, which has them in its log.
    pub signers: Vec<String>,
}

/// What a release was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Released {
    /// All keys of a CVM.
    AppKeys,
    /// A key by name.
    NamedKey,
    /// A certificate.
    Certificate,
    /// The roots, to another KMS.
    Roots,
    /// Nothing: a CVM told that it holds nothing under older roots.
    ResealConfirmed,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The first root was made.
    Bootstrapped {
        /// Compressed secp256k1 key.
        k256_pubkey: Hex,
        /// Domain of the KMS.
        domain: String,
    },
    /// The roots were taken from another KMS.
    Onboarded {
        /// Compressed secp256k1 key of the current root.
        k256_pubkey: Hex,
        /// Domain of the KMS.
        domain: String,
        /// Where they came from.
        source_url: String,
    },
    /// Something was released.
    Release {
        /// What.
        released: Released,
        /// To whom.
        caller: Caller,
        /// Version of the root.
        root_version: u32,
        /// SHA-256 of the name of a named key: names may say more than their owner wants to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name_hash: Option<Hex>,
        /// Where a chain decides: the confirmed block that said yes; the newest one at that moment did, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        authorized_at: Option<AuthorizedAt>,
    },
    /// Something was refused.
    Refusal {
        /// What was asked for; absent when the caller was turned away at the door.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked: Option<Released>,
        /// Who asked, as far as its evidence was verified.
        caller: Caller,
        /// Answer.
        code: KmsErrorCode,
        /// Why; cut at 512 bytes.
        reason: String,
        /// How many such refusals this record stands for: those of one caller for one reason within a
        /// minute are recorded together.
        count: u64,
    },
    /// An application may run a document.
    AppAllowed {
        /// Application.
        app_id: AppId,
        /// Document.
        compose_hash: ComposeHash,
        /// Its owners' approval; absent where it has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval: Option<Approval>,
    },
    /// An application may no longer run a document.
    AppRevoked {
        /// Application.
        app_id: AppId,
        /// Document.
        compose_hash: ComposeHash,
        /// Its owners' approval; absent where the operator revoked it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval: Option<Approval>,
    },
    /// An application has owners from now on, or other ones.
    OwnersSet {
        /// Application.
        app_id: AppId,
        /// The new ones.
        owners: Owners,
        /// Serial of the statement.
        serial: u64,
        /// Fingerprints of the owners before, who approved; none for the first ones, and for those that came
        /// with the roots of another KMS.
        approved_by: Vec<String>,
    },
    /// The rules for platforms were replaced.
    PlatformRulesSet {
        /// The new ones.
        rules: crate::admin::PlatformRules,
    },
    /// A new root was made.
    RotationStarted {
        /// Its version.
        root_version: u32,
        /// Its compressed secp256k1 key.
        k256_pubkey: Hex,
    },
    /// A CVM that held data under an old root counts no more.
    CvmForgotten {
        /// Application.
        app_id: AppId,
        /// CVM; absent for those without an identity of their own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance_id: Option<InstanceId>,
        /// If it got keys after this time, it counts.
        seen_until: Timestamp,
    },
    /// The keys of a root were destroyed.
    RootRetired {
        /// Its version.
        root_version: u32,
        /// CVMs that still held data under it.
        abandoned: u64,
    },
}
