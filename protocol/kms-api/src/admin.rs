//! What the operator may do to a KMS: change its policy and rotate its root. None of it reveals a key, and
//! all of it is in the release log. `POST` below the directory with the administrator's token as bearer.

use std::collections::BTreeMap;

use cloister_app_compose::{AppId, ComposeHash, InstanceId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::approvals::{Approvals, Owners};
use crate::{Hex, RootInfo};

/// Lets an application run a compose document: [`AllowApp`] → `{}`. Idempotent. Where the application has owners,
/// they must approve a document that it may not run yet (`APPROVALS_REQUIRED`); where a contract decides, nobody
/// can say it here (`CONTRACT_DECIDES`).
pub const ALLOW_APP: &str = "/prpc/Admin.AllowApp";
/// Takes that back: [`AllowApp`] → `{}`. Idempotent. The operator needs no approval for it; with one of the
/// owners it lasts: no approval up to its serial allows the document again.
pub const REVOKE_APP: &str = "/prpc/Admin.RevokeApp";
/// Gives an application its owners: [`SetOwners`] → `{}`. The first ones need no approval, whoever comes first;
/// documents that were allowed before are taken back, since no owner approved them. Later ones need the approval
/// of the present ones (`APPROVALS_REQUIRED`). Idempotent.
pub const SET_OWNERS: &str = "/prpc/Admin.SetOwners";
/// No body → [`PolicyDocument`].
pub const GET_POLICY: &str = "/prpc/Admin.GetPolicy";
/// Replaces the rules for platforms, images and other KMSes, and leaves applications alone:
/// [`PlatformRules`] → `{}`.
pub const SET_PLATFORM_RULES: &str = "/prpc/Admin.SetPlatformRules";
/// Makes a new root, from which keys come from now on: no body → [`RotationStatus`].
pub const START_ROTATION: &str = "/prpc/Admin.StartRotation";
/// No body → [`RotationStatus`].
pub const ROTATION_STATUS: &str = "/prpc/Admin.RotationStatus";
/// Destroys the keys of the oldest root that is left: [`RetireRoot`] → [`RotationStatus`].
pub const RETIRE_ROOT: &str = "/prpc/Admin.RetireRoot";

/// Takes a CVM from the list of those that hold data under old roots, because it was deleted or is given up:
/// [`ForgetCvm`] → [`RotationStatus`]. Idempotent.
pub const FORGET_CVM: &str = "/prpc/Admin.ForgetCvm";

/// One document that one application may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowApp {
    /// Application.
    pub app_id: AppId,
    /// Its document.
    pub compose_hash: ComposeHash,
    /// Signatures of its owners over this; only of an application that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Approvals>,
}

impl AllowApp {
    /// Without approvals.
    #[must_use]
    pub const fn new(app_id: AppId, compose_hash: ComposeHash) -> Self {
        Self { app_id, compose_hash, approvals: None }
    }
}

/// Body of [`SET_OWNERS`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetOwners {
    /// Application.
    pub app_id: AppId,
    /// Its owners from now on.
    pub owners: Owners,
    /// Serial of the statement; greater than that of the owners in force.
    pub serial: u64,
    /// Signatures of the present owners over the statement, as in [`Approvals`]; none for the first owners.
    #[serde(default)]
    pub signatures: Vec<String>,
}

/// Rules for everything but applications. A list that is empty allows nothing. One that is absent allows
/// everything, with two exceptions: without `kms_measurements` no other KMS gets the roots, and without
/// `os_images` only machines on development platforms get keys, which prove nothing in any case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PlatformRules {
    /// Images whose machines may get keys, 32 bytes each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_images: Option<Vec<Hex>>,
    /// Devices that may get keys, 32 bytes each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<Hex>>,
    /// TCB statuses that are good enough, by the vendor's names.
    pub allowed_tcb_statuses: Vec<String>,
    /// Advisories that make a platform unacceptable.
    #[serde(default)]
    pub denied_advisory_ids: Vec<String>,
    /// `mr_aggregated` of KMSes that may take the roots, 32 bytes each.
    #[serde(default)]
    pub kms_measurements: Vec<Hex>,
}

impl Default for PlatformRules {
    /// Any device whose platform is up to date; no image on hardware, and no other KMS.
    fn default() -> Self {
        Self {
            os_images: None,
            devices: None,
            allowed_tcb_statuses: vec!["UpToDate".to_owned()],
            denied_advisory_ids: Vec::new(),
            kms_measurements: Vec::new(),
        }
    }
}

/// The built-in rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyDocument {
    /// Platforms, images, other KMSes.
    pub platform: PlatformRules,
    /// Documents that each application may run.
    pub apps: BTreeMap<AppId, Vec<ComposeHash>>,
}

/// Body of [`RETIRE_ROOT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetireRoot {
    /// The oldest version that is left; never the current one.
    pub version: u32,
    /// Retire it although some CVMs still hold data under it, which is lost then.
    #[serde(default)]
    pub force: bool,
}

/// Body of [`FORGET_CVM`]. What the CVM has under a root that is retired then is lost; one that comes back
/// before is counted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForgetCvm {
    /// Application.
    pub app_id: AppId,
    /// CVM; absent for all CVMs of the application that have no identity of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<InstanceId>,
}

/// A CVM that still holds data under an old root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCvm {
    /// Application.
    pub app_id: AppId,
    /// CVM; absent for all CVMs of the application that have no identity of their own. No single one of
    /// those can say for the others that it is done: they stay here until they are forgotten.
    pub instance_id: Option<InstanceId>,
    /// Version of the root under which its data is.
    pub root_version: u32,
    /// When it last got keys.
    pub last_seen: Timestamp,
}

/// How far a rotation is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotationStatus {
    /// All versions, oldest first; the last one is current.
    pub roots: Vec<RootInfo>,
    /// CVMs whose data is under the current root.
    pub resealed: u64,
    /// CVMs that must attest once more, at most 1000 of them.
    pub pending: Vec<PendingCvm>,
    /// How many those are in total.
    pub pending_total: u64,
}
