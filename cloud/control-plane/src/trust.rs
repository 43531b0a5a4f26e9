//! Whom the installation trusts: the vendors of hardware, and outside of production a vendor of its own.

use std::path::Path;
use std::sync::Arc;

use cloister_development_tee::{TeeError, Vendor, VendorCollateral};
use cloister_verifier::{
    CacheError, Collateral, CollateralCache, CollateralError, CollateralSources, InProcess, Pccs, PccsError,
    RootsError, TrustRoot, TrustRoots, Verifier,
};
use tracing::warn;
use url::Url;

use crate::clock::Clock;

/// Directory of the development vendor in the data directory.
const VENDOR_DIR: &str = "development-tee";
/// The development root in the data directory of a control plane, PEM, for relying parties.
pub const DEVELOPMENT_ROOT_FILE: &str = "development-root.pem";
/// Intel's own service.
const INTEL_PCS: &str = "https://api.trustedservices.intel.com";

/// Why an installation does not know whom to trust.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The development vendor cannot be loaded or minted.
    #[error("the vendor of development platforms cannot be used")]
    Vendor(#[from] TeeError),
    /// Its root is not accepted.
    #[error(transparent)]
    Roots(#[from] RootsError),
    /// The address of the caching service cannot be used.
    #[error("collateral of Intel's platforms cannot be fetched")]
    Pccs(#[from] PccsError),
    /// It is no URL.
    #[error("the address of the collateral service is not a URL")]
    Url(#[from] url::ParseError),
    /// The cache of collateral did not start.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// Roots, and what belongs to them.
pub(crate) struct Trust {
    /// `None` in production.
    pub(crate) development_vendor: Option<Arc<Vendor>>,
    pub(crate) collateral: Arc<CollateralCache>,
    pub(crate) verifier: Verifier,
}

impl Trust {
    /// In production only vendors of hardware are trusted, and no development root is minted or read.
    pub(crate) fn establish(
        data_dir: &Path,
        production: bool,
        pccs: Option<&Url>,
        clock: &Clock,
    ) -> Result<Self, TrustError> {
        let pccs = pccs.cloned().map_or_else(|| Url::parse(INTEL_PCS), Ok)?;
        let vendors = CollateralSources::new().with(TrustRoot::IntelSgxRootCa, Pccs::new(&pccs)?);
        let time = clock.clone();
        let time = cloister_verifier::Clock::from_fn(move || time.now());
        let (roots, sources, development_vendor) = if production {
            (TrustRoots::vendors().in_production()?, vendors, None)
        } else {
            let vendor = Arc::new(Vendor::load_or_create(&data_dir.join(VENDOR_DIR), clock.now())?);
            vendor.publish_root(&data_dir.join(DEVELOPMENT_ROOT_FILE))?;
            warn!("not in production: the development root is trusted, which proves no hardware protection");
            let roots = TrustRoots::vendors().with_development_root(vendor.root_der())?;
            let sources = vendors.with(TrustRoot::Development, source(&vendor, clock));
            (roots, sources, Some(vendor))
        };
        let collateral = CollateralCache::start(sources, time.clone())?;
        let verifier = Verifier::new(roots, Arc::clone(&collateral), time);
        Ok(Self { development_vendor, collateral, verifier })
    }
}

/// The development vendor as a source of collateral, without a detour over the network.
fn source(vendor: &Arc<Vendor>, clock: &Clock) -> impl cloister_verifier::CollateralSource + use<> {
    let (vendor, clock) = (Arc::clone(vendor), clock.clone());
    InProcess::new(move |key| {
        if key.fmspc != vendor.options().fmspc {
            return Err(CollateralError::Refused("this kind of platform is unknown".to_owned()));
        }
        let made = vendor.collateral(clock.now()).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot make collateral");
            CollateralError::Refused("the development vendor failed".to_owned())
        })?;
        converted(made)
    })
}

fn converted(made: VendorCollateral) -> Result<Collateral, CollateralError> {
    let bytes = |text: &str| hex::decode(text).map_err(|_| CollateralError::Malformed("not hex".to_owned()));
    Ok(Collateral {
        root_ca_crl: bytes(&made.root_ca_crl)?,
        pck_crl: bytes(&made.pck_crl)?,
        tcb_info_signature: bytes(&made.tcb_info_signature)?,
        qe_identity_signature: bytes(&made.qe_identity_signature)?,
        pck_crl_issuer_chain: made.pck_crl_issuer_chain,
        tcb_info_issuer_chain: made.tcb_info_issuer_chain,
        tcb_info: made.tcb_info,
        qe_identity_issuer_chain: made.qe_identity_issuer_chain,
        qe_identity: made.qe_identity,
        pck_certificate_chain: None,
    })
}

#[cfg(test)]
mod tests {
    use cloister_development_tee::{Platform, PlatformKey, TdReport};
    use cloister_evidence::{Measurement, Registers};
    use cloister_verifier::{TcbStatus, VerifyError};

    use super::*;
    use crate::{Config, ControlPlane};

    async fn started(data_dir: &Path, production: bool) -> ControlPlane {
        let any = "127.0.0.1:0".parse().unwrap();
        let mut config = Config::embedded(data_dir.to_owned(), any, any);
        config.production = production;
        ControlPlane::start(config).await.unwrap()
    }

    fn quote(vendor: &Vendor, clock: &Clock) -> Vec<u8> {
        let key = PlatformKey::generate().unwrap();
        let registration = key.registration().unwrap();
        let issued = vendor.register_platform("node-1", &registration, clock.now()).unwrap();
        let zero = Measurement::ZERO;
        let registers = Registers { mrtd: zero, rtmr0: zero, rtmr1: zero, rtmr2: zero, rtmr3: zero };
        let platform = Platform::new(key, &issued.certificate_chain).unwrap();
        platform.quote(&TdReport::new(registers, [0; 48], [1; 64])).unwrap()
    }

    #[tokio::test]
    async fn outside_of_production_quotes_of_development_platforms_verify_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let control_plane = started(dir.path(), false).await;
        let app = &control_plane.app;
        let vendor = app.development_vendor.as_ref().unwrap();
        let verified = app.verifier.quote(&quote(vendor, &app.clock)).await.unwrap();
        assert_eq!((verified.trust_root, verified.tcb_status), (TrustRoot::Development, TcbStatus::UpToDate));
        assert_eq!(
            std::fs::read_to_string(dir.path().join(DEVELOPMENT_ROOT_FILE)).unwrap(),
            vendor.root_pem()
        );
        control_plane.stop().await;
    }

    #[tokio::test]
    async fn anybody_can_verify_with_tools_of_their_own_and_the_vendors_collateral_service() {
        let dir = tempfile::tempdir().unwrap();
        let control_plane = started(dir.path(), false).await;
        let app = &control_plane.app;
        let vendor = app.development_vendor.as_ref().unwrap();
        let address = format!("http://{}/development-pccs/", control_plane.api_address());
        let sources = CollateralSources::new()
            .with(TrustRoot::Development, Pccs::new(&address.parse().unwrap()).unwrap());
        let cache = CollateralCache::start(sources, cloister_verifier::Clock::system()).unwrap();
        let roots = TrustRoots::vendors().with_development_root(vendor.root_der()).unwrap();
        let stranger = Verifier::new(roots, cache, cloister_verifier::Clock::system());
        let verified = stranger.quote(&quote(vendor, &app.clock)).await.unwrap();
        assert_eq!(verified.trust_root, TrustRoot::Development);
        control_plane.stop().await;
    }

    #[tokio::test]
    async fn production_mints_no_development_root_and_its_verifier_refuses_one_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let control_plane = started(dir.path(), true).await;
        assert!(control_plane.app.development_vendor.is_none());
        assert!(!dir.path().join(VENDOR_DIR).exists() && !dir.path().join(DEVELOPMENT_ROOT_FILE).exists());
        let address =
            format!("http://{}/development-pccs/sgx/certification/v4/", control_plane.api_address());
        for path in ["rootcacrl", "pckcrl?ca=platform"] {
            assert_eq!(reqwest::get(format!("{address}{path}")).await.unwrap().status(), 404);
        }
        control_plane.stop().await;

        // An installation that becomes productive forgets its development root.
        let control_plane = started(dir.path(), false).await;
        let quote = quote(control_plane.app.development_vendor.as_ref().unwrap(), &Clock::system());
        control_plane.app.verifier.quote(&quote).await.unwrap();
        control_plane.stop().await;
        let control_plane = started(dir.path(), true).await;
        assert!(control_plane.app.verifier.roots().is_production());
        let refused = control_plane.app.verifier.quote(&quote).await.unwrap_err();
        assert!(matches!(refused, VerifyError::UnknownRoot), "{refused:?}");
        control_plane.stop().await;
    }
}
