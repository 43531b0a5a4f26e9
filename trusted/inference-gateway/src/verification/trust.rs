//! Whose evidence counts.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use cloister_verifier::{
    CacheError, Clock, CollateralCache, CollateralSources, Pccs, PccsError, RootsError, TrustRoot,
    TrustRoots, Verifier,
};
use parking_lot::Mutex;
use tracing::warn;
use url::Url;

use crate::config::{ProviderKind, TrustConfig, UpstreamConfig};

/// Intel's own collateral service.
const INTEL: &str = "https://api.trustedservices.intel.com";

/// Why it is not known whom to trust.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The development root cannot be read.
    #[error("{}: the development root cannot be read", .0.display())]
    File(PathBuf, #[source] std::io::Error),
    /// It is no PEM certificate.
    #[error("{}: the development root is not a certificate in PEM", .0.display())]
    Pem(PathBuf),
    /// It is not accepted.
    #[error(transparent)]
    Roots(#[from] RootsError),
    /// The address of a collateral service cannot be used.
    #[error("collateral cannot be fetched")]
    Pccs(#[from] PccsError),
    /// It is no URL.
    #[error("the address of a collateral service is not a URL")]
    Url(#[from] url::ParseError),
    /// A cache of collateral did not start.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// Whose evidence counts, and where collateral comes from. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Trust(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    roots: TrustRoots,
    /// Collateral service of the development root's vendor.
    development: Option<Url>,
    clock: Clock,
    /// One for each collateral service.
    verifiers: Mutex<HashMap<Url, Verifier>>,
    /// Takes the place of all of them.
    only: Option<Verifier>,
}

impl Trust {
    /// The vendors of hardware and, outside of production, a development root.
    pub fn new(config: &TrustConfig, clock: Clock) -> Result<Self, TrustError> {
        let mut roots = TrustRoots::vendors();
        if config.production {
            roots = roots.in_production()?;
        }
        if let Some(path) = &config.development_root {
            let text = std::fs::read(path).map_err(|error| TrustError::File(path.clone(), error))?;
            let der = pem::parse(&text).map_err(|_| TrustError::Pem(path.clone()))?.into_contents();
            roots = roots.with_development_root(der)?;
            warn!("not in production: the development root is trusted, which proves no hardware protection");
        }
        let development = config.development_pccs_url.clone();
        if let Some(development) = &development {
            Pccs::new(development)?;
        }
        Ok(Self(Arc::new(Inner { roots, development, clock, verifiers: Mutex::default(), only: None })))
    }

    /// Fails if one of these could not be verified whatever it shows: what cannot work is told at the start. Nothing is made
    /// for others, so that an image without certificate authorities is enough for them.
    pub fn check(&self, upstreams: &[UpstreamConfig]) -> Result<(), TrustError> {
        let mut proving = upstreams.iter().filter(|upstream| upstream.provider == ProviderKind::AciService);
        proving.try_for_each(|upstream| self.verifier(upstream.pccs_url.as_ref()).map(drop))
    }

    /// Whom a verifier trusts, for every upstream.
    #[must_use]
    pub fn of_verifier(verifier: Verifier) -> Self {
        Self(Arc::new(Inner {
            roots: verifier.roots().clone(),
            development: None,
            clock: verifier.clock().clone(),
            verifiers: Mutex::default(),
            only: Some(verifier),
        }))
    }

    /// Whether only hardware counts.
    #[must_use]
    pub fn is_production(&self) -> bool {
        self.0.roots.is_production()
    }

    /// The verifier that asks a collateral service; `None` is the vendor's own.
    pub(super) fn verifier(&self, pccs: Option<&Url>) -> Result<Verifier, TrustError> {
        let Inner { roots, development, clock, verifiers, only } = &*self.0;
        if let Some(only) = only {
            return Ok(only.clone());
        }
        let pccs = pccs.cloned().map_or_else(|| Url::parse(INTEL), Ok)?;
        let mut verifiers = verifiers.lock();
        if let Some(verifier) = verifiers.get(&pccs) {
            return Ok(verifier.clone());
        }
        let mut sources = CollateralSources::new().with(TrustRoot::IntelSgxRootCa, Pccs::new(&pccs)?);
        if let Some(development) = development {
            sources = sources.with(TrustRoot::Development, Pccs::new(development)?);
        }
        let cache = CollateralCache::start(sources, clock.clone())?;
        let verifier = Verifier::new(roots.clone(), cache, clock.clone());
        verifiers.insert(pccs, verifier.clone());
        Ok(verifier)
    }
}
