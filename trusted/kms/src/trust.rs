//! Whose evidence counts.

use std::path::PathBuf;
use std::sync::Arc;

use cloister_verifier::{
    CacheError, Clock, CollateralCache, CollateralSources, Pccs, PccsError, RootsError, TrustRoot,
    TrustRoots, Verifier,
};
use tracing::warn;
use url::Url;

use crate::Config;

/// Intel's own service.
const INTEL_PCS: &str = "https://api.trustedservices.intel.com";

/// Why a KMS does not know whom to trust.
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
    /// A development root without the service of its vendor.
    #[error("a development root needs the address of its vendor's collateral service")]
    NoDevelopmentPccs,
    /// The address of the collateral service cannot be used.
    #[error("collateral cannot be fetched")]
    Pccs(#[from] PccsError),
    /// It is no URL.
    #[error("the address of the collateral service is not a URL")]
    Url(#[from] url::ParseError),
    /// The cache of collateral did not start.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// The verifier of a KMS: vendors of hardware, and outside of production a development root.
pub(crate) fn verifier(config: &Config, clock: &Clock) -> Result<Verifier, TrustError> {
    let intel = Url::parse(INTEL_PCS)?;
    let (mut roots, mut sources) = (TrustRoots::vendors(), CollateralSources::new());
    if config.production {
        roots = roots.in_production()?;
    }
    if let Some(path) = &config.development_root {
        let pem = std::fs::read(path).map_err(|error| TrustError::File(path.clone(), error))?;
        let der = pem::parse(&pem).map_err(|_| TrustError::Pem(path.clone()))?.into_contents();
        roots = roots.with_development_root(der)?;
        let pccs = config.pccs_url.as_ref().ok_or(TrustError::NoDevelopmentPccs)?;
        warn!("not in production: the development root is trusted, which proves no hardware protection");
        sources = sources
            .with(TrustRoot::Development, Pccs::new(pccs)?)
            .with(TrustRoot::IntelSgxRootCa, Pccs::new(&intel)?);
    } else {
        let pccs = config.pccs_url.as_ref().unwrap_or(&intel);
        sources = sources.with(TrustRoot::IntelSgxRootCa, Pccs::new(pccs)?);
    }
    let collateral: Arc<CollateralCache> = CollateralCache::start(sources, clock.clone())?;
    Ok(Verifier::new(roots, collateral, clock.clone()))
}
