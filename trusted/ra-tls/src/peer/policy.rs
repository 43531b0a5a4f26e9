use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use cloister_app_compose::{AppId, ComposeHash};
use cloister_verifier::Policy;
use rustls::pki_types::CertificateDer;

use super::{PeerError, PeerIdentity};

/// Who may have issued a peer's certificate. What the peer *is* stands in its evidence, which any issuer
/// can wrap; the issuer matters where its own claims count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Issuers {
    /// Anybody: the peer itself, or whoever's certificate comes along.
    #[default]
    Any,
    /// These authorities only, directly or through certificates that come along.
    Only(Vec<CertificateDer<'static>>),
}

/// A demand of one's own; the text says in plain words what is not met.
type Demand = dyn Fn(&PeerIdentity) -> Result<(), String> + Send + Sync;

/// What a peer must be.
///
/// Applications and compose documents are measured by the software of the peer's machine: they are worth
/// what the image is worth that the registers of `platform` demand. Without such a demand any image may
/// have measured any application.
#[derive(Clone, Default)]
pub struct PeerPolicy {
    /// Demands on the platform and its registers.
    pub platform: Policy,
    /// Applications that are let in; any when absent.
    pub apps: Option<BTreeSet<AppId>>,
    /// Compose documents that are let in; any when absent.
    pub compose_hashes: Option<BTreeSet<ComposeHash>>,
    /// Issuers of the certificate.
    pub issuers: Issuers,
    demand: Option<Arc<Demand>>,
}

impl PeerPolicy {
    /// Any application on a platform that `platform` is content with. The caller must look at the
    /// [`PeerIdentity`].
    #[must_use]
    pub fn any_app(platform: Policy) -> Self {
        Self { platform, ..Self::default() }
    }

    /// One application, on an image that `platform` must demand by its registers: see [`PeerPolicy`].
    #[must_use]
    pub fn app(platform: Policy, app_id: AppId) -> Self {
        Self { platform, apps: Some(BTreeSet::from([app_id])), ..Self::default() }
    }

    /// Also demands what `demand` says, after everything else held. It is asked when a peer is verified, not
    /// again for one that is remembered.
    #[must_use]
    pub fn and(
        mut self,
        demand: impl Fn(&PeerIdentity) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.demand = Some(Arc::new(demand));
        self
    }

    /// Judges who the peer is; the platform was judged before.
    pub(super) fn check(&self, peer: &PeerIdentity) -> Result<(), PeerError> {
        if self.apps.as_ref().is_some_and(|apps| peer.app.app_id.is_none_or(|app| !apps.contains(&app))) {
            return Err(PeerError::App(peer.app.app_id));
        }
        let let_in = |hashes: &BTreeSet<_>| peer.app.compose_hash.is_some_and(|hash| hashes.contains(&hash));
        if self.compose_hashes.as_ref().is_some_and(|hashes| !let_in(hashes)) {
            return Err(PeerError::Compose(peer.app.compose_hash));
        }
        self.demand.as_ref().map_or(Ok(()), |demand| demand(peer).map_err(PeerError::Demand))
    }
}

impl fmt::Debug for PeerPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerPolicy")
            .field("platform", &self.platform)
            .field("apps", &self.apps)
            .field("compose_hashes", &self.compose_hashes)
            .finish_non_exhaustive()
    }
}
