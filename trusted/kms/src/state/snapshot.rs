use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use cloister_app_compose::AppId;
use cloister_kms_api::admin::PolicyDocument;
use cloister_kms_api::{BootstrapInfo, RootInfo};

use super::content::State;
use super::ownership::Ownership;
use super::roots::{self, InvalidRoots, LiveRoot, Root};

/// What a KMS is at one moment. A request takes one and keeps to it.
pub(crate) struct Snapshot {
    /// Name or address under which the KMS is reached.
    pub(crate) domain: String,
    /// All roots, oldest first.
    pub(crate) roots: Vec<Arc<Root>>,
    /// The root that keys come from.
    pub(crate) current: LiveRoot,
    /// Roots before it that still have keys, newest first.
    pub(crate) former: Vec<LiveRoot>,
    /// How the first root was made; `None` on a KMS that took it from another one.
    pub(crate) bootstrap: Option<BootstrapInfo>,
    /// The rules.
    pub(crate) policy: Arc<PolicyDocument>,
    /// Applications that have owners.
    pub(crate) owned: Arc<BTreeMap<AppId, Ownership>>,
}

impl Snapshot {
    pub(crate) fn of(state: &State) -> Result<Self, InvalidRoots> {
        let checked = roots::check(&state.roots)?;
        let mut live = checked.iter().rev().filter_map(|(root, secrets)| {
            let secrets = Arc::clone(secrets.as_ref()?);
            Some(LiveRoot { root: Arc::clone(root), secrets })
        });
        let current = live.next().ok_or(InvalidRoots::Versions)?;
        Ok(Self {
            domain: state.domain.clone(),
            current,
            former: live.collect(),
            roots: checked.into_iter().map(|(root, _)| root).collect(),
            bootstrap: state.bootstrap.as_ref().map(|made| BootstrapInfo {
                ca_pubkey: made.ca_pubkey.clone(),
                k256_pubkey: made.k256_pubkey.clone(),
                attestation: made.attestation.clone(),
            }),
            policy: Arc::new(state.policy.clone()),
            owned: Arc::new(state.owned.clone()),
        })
    }

    /// The root of this version, if it still has keys.
    pub(crate) fn live(&self, version: u32) -> Option<&LiveRoot> {
        std::iter::once(&self.current).chain(&self.former).find(|root| root.version() == version)
    }

    /// Version of the oldest root that still has keys.
    pub(crate) fn oldest_live(&self) -> u32 {
        self.former.last().unwrap_or(&self.current).version()
    }

    /// Certificates of all roots, PEM: the current one, its predecessor, and so on to the first.
    pub(crate) fn root_chain(&self) -> String {
        self.roots.iter().rev().map(|root| root.certificate.as_str()).collect()
    }

    /// Public sides, oldest first.
    pub(crate) fn root_infos(&self) -> Vec<RootInfo> {
        self.roots.iter().map(|root| root.info.clone()).collect()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("domain", &self.domain)
            .field("roots", &self.roots)
            .finish_non_exhaustive()
    }
}
