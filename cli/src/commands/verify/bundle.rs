//! Evidence in one file.

use std::path::{Path, PathBuf};

use cloister_evidence::report_data::padded;
use cloister_verifier::appraisal::{
    Appraised, Bundle, Connection, Evidence, Expectations, MAX_BUNDLE_BYTES, Nonce, needs_collateral,
};
use jiff::Timestamp;

use super::{Case, certificate};
use crate::failure::Failure;
use crate::files::{FOR_OWNER, read, replace};

/// Options for bundles.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Bundles")]
pub(super) struct BundleArgs {
    /// Judge what --save-bundle wrote, without any network
    #[arg(long, value_name = "FILE")]
    pub(super) bundle: Option<PathBuf>,
    /// Write everything that the evidence was judged by, but no trust root, to a file
    #[arg(long, value_name = "FILE")]
    pub(super) save_bundle: Option<PathBuf>,
    /// Judge as of this time, such as 2026-11-21T14:00:00Z, for evidence with its collateral [default: now]
    #[arg(long, value_name = "TIME", conflicts_with = "target")]
    pub(super) at: Option<Timestamp>,
}

/// Reads a bundle.
pub(super) fn open(path: &Path, expectations: &mut Expectations) -> Result<Case, Failure> {
    let damaged = |error| Failure::usage(format!("{} cannot be used", path.display())).caused_by(error);
    let bundle = Bundle::parse(&read(path, MAX_BUNDLE_BYTES as u64)?).map_err(damaged)?;
    let nonce = bundle.nonce.as_deref().map(|nonce| {
        let bytes = hex::decode(nonce).ok().and_then(|nonce| padded(&nonce));
        bytes.ok_or_else(|| Failure::usage(format!("the nonce in {} is malformed", path.display())))
    });
    expectations.nonce = nonce.transpose()?.map(Nonce::Recorded);
    let connection = match &bundle.certificate_chain {
        Some(pem) => certificate::recorded(pem),
        None => Connection::None,
    };
    if needs_collateral(&bundle.document) && bundle.collateral.is_none() {
        let message =
            format!("{} holds no collateral, so it cannot be judged without a network", path.display());
        return Err(Failure::usage(message).hint("the quote was not valid when the bundle was written"));
    }
    Ok(Case {
        evidence: Evidence { document: bundle.document, connection },
        nonce: bundle.nonce,
        certificate_chain: bundle.certificate_chain,
        collateral: bundle.collateral,
        captured_at: bundle.captured_at,
    })
}

/// Writes a bundle.
pub(super) fn save(path: &Path, case: &Case, appraised: &Appraised) -> Result<(), Failure> {
    let mut bundle = Bundle::new(case.captured_at, case.evidence.document.clone());
    bundle.nonce.clone_from(&case.nonce);
    bundle.certificate_chain.clone_from(&case.certificate_chain);
    bundle.collateral = appraised.collateral.as_deref().or(case.collateral.as_ref()).cloned();
    let json = bundle.to_json().map_err(|error| Failure::local("cannot write the bundle", error))?;
    replace(path, &json, FOR_OWNER)
}
