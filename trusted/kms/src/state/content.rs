//! What is in the state file.

use std::collections::BTreeMap;

use cloister_app_compose::AppId;
use cloister_kms_api::admin::PolicyDocument;
use cloister_kms_api::{BootstrapResponse, Hex, KmsKeyResponse, RootKeys, SecretHex};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::holders::Holders;
use super::ownership::Ownership;

/// Everything that a KMS must not forget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    /// Whether onboarding is finished.
    pub(crate) finished: bool,
    /// Name or address under which the KMS is reached.
    pub(crate) domain: String,
    /// All roots, oldest first; retired ones without their keys.
    pub(crate) roots: Vec<RootKeys>,
    /// How the first root was made; absent on a KMS that took it from another one.
    pub(crate) bootstrap: Option<BootstrapResponse>,
    /// The rules.
    pub(crate) policy: PolicyDocument,
    /// Applications that have owners; their documents are in `policy`.
    #[serde(default)]
    pub(crate) owned: BTreeMap<AppId, Ownership>,
    /// Signs the log's checkpoints: the seed of an Ed25519 key.
    pub(crate) log_key: SecretHex,
    /// How far the log is contained here.
    pub(crate) log: LogMark,
    /// Records of the last change that are not known to be in the log; exact texts. No two changes have the
    /// same time, so a record that is in the log already can be told from one that is not.
    pub(crate) outbox: Vec<String>,
    /// When the last change was made; strictly increases.
    pub(crate) changed_at: Timestamp,
    /// Which CVM has its data under which root, as of `log`.
    pub(crate) holders: Holders,
}

/// A position in the log before which everything that it says is contained in the state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogMark {
    /// Number of records.
    pub(crate) size: u64,
    /// The last record of a change of the state among them.
    pub(crate) last_change: Option<ChangeMark>,
}

/// A record of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangeMark {
    /// Its index in the log.
    pub(crate) index: u64,
    /// Its SHA-256.
    pub(crate) hash: Hex,
}

impl State {
    /// What another KMS needs to release the same keys under the same owners.
    pub(crate) fn export(&self) -> KmsKeyResponse {
        let documents = |app_id| self.policy.apps.get(app_id).cloned().unwrap_or_default();
        let owned =
            self.owned.iter().map(|(app_id, ownership)| (*app_id, ownership.export(documents(app_id))));
        KmsKeyResponse { roots: self.roots.clone(), owned_apps: owned.collect() }
    }

    /// The version of the oldest root that still has keys.
    pub(crate) fn oldest_live(&self) -> u32 {
        self.roots.iter().find(|root| root.k256_key.is_some()).map_or(1, |root| root.info.version)
    }

    /// The version of the current root.
    pub(crate) fn current_version(&self) -> u32 {
        self.roots.last().map_or(1, |root| root.info.version)
    }
}
