//! Whom to trust, and where to get what vendors say about platforms.

use std::path::PathBuf;

use cloister_verifier::{Clock, CollateralCache, CollateralSources, Pccs, TrustRoot, TrustRoots, Verifier};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use url::Url;

use crate::failure::Failure;
use crate::files::read;
use crate::session::Session;

/// Largest file with a root certificate, in bytes.
const MAX_ROOT_BYTES: u64 = 64 * 1024;
/// Intel's own collateral service.
const INTEL: &str = "https://api.trustedservices.intel.com";
/// Where a development cloud serves the collateral of its own platforms.
const DEVELOPMENT: &str = "development-pccs";

/// Options for trust.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Trust")]
pub(in crate::commands) struct TrustArgs {
    /// Development root to accept beside the vendors' roots, PEM or DER. Nothing protects what it signs
    #[arg(long, value_name = "FILE", env = "CLOISTER_DEVELOPMENT_ROOT", hide_env_values = true)]
    development_root: Option<PathBuf>,
    /// Refuse evidence that no hardware stands behind, whatever else is configured
    #[arg(long)]
    production: bool,
    /// Collateral service (PCCS) [default: Intel's; for the development root that of the cloud in use]
    #[arg(long, value_name = "URL")]
    pccs: Option<Url>,
}

/// What to tell somebody whose evidence is refused.
#[derive(Debug)]
pub(in crate::commands) struct Notes {
    /// Whether a development root is accepted.
    pub(super) development_root: bool,
    /// Whether hardware is demanded.
    pub(super) production: bool,
}

impl TrustArgs {
    /// The verifier; without sources of collateral when it is `offline`.
    pub(in crate::commands) fn verifier(
        &self,
        session: &Session,
        clock: &Clock,
        offline: bool,
    ) -> Result<(Verifier, Notes), Failure> {
        let roots = self.roots()?;
        let notes = Notes {
            development_root: roots.certificate(TrustRoot::Development).is_some(),
            production: self.production,
        };
        if offline {
            return Ok((Verifier::offline(roots, clock.clone()), notes));
        }
        let intel =
            Url::parse(INTEL).map_err(|error| Failure::local("cannot name Intel's service", error))?;
        let mut sources = CollateralSources::new()
            .with(TrustRoot::IntelSgxRootCa, service(self.pccs.as_ref().unwrap_or(&intel))?);
        let development = self.pccs.clone().or_else(|| own_cloud(session));
        if let Some(url) = development.filter(|_| notes.development_root) {
            sources = sources.with(TrustRoot::Development, service(&url)?);
        }
        let cache = CollateralCache::start(sources, clock.clone())
            .map_err(|error| Failure::local("cannot start to fetch collateral", error))?;
        Ok((Verifier::new(roots, cache, clock.clone()), notes))
    }

    fn roots(&self) -> Result<TrustRoots, Failure> {
        let roots = TrustRoots::vendors();
        let excluded = |error| {
            Failure::usage("--production and a development root exclude each other")
                .caused_by(error)
                .hint("leave out --production, or --development-root and CLOISTER_DEVELOPMENT_ROOT")
        };
        let roots = match &self.development_root {
            Some(path) => {
                let bytes = read(path, MAX_ROOT_BYTES)?;
                let der = match CertificateDer::from_pem_slice(&bytes) {
                    Ok(der) => der.to_vec(),
                    Err(_) => bytes,
                };
                roots.with_development_root(der).map_err(|error| {
                    Failure::usage(format!("{} is not a root certificate", path.display())).caused_by(error)
                })?
            }
            None => roots,
        };
        if self.production { roots.in_production().map_err(excluded) } else { Ok(roots) }
    }
}

fn service(url: &Url) -> Result<Pccs, Failure> {
    Pccs::new(url).map_err(|error| {
        Failure::usage(format!("{url} cannot be used as a collateral service")).caused_by(error)
    })
}

/// The collateral service of the cloud that commands use, if there is one.
fn own_cloud(session: &Session) -> Option<Url> {
    let server = session.server().ok()??;
    Url::parse(&format!("{}/{DEVELOPMENT}", server.origin())).ok()
}
