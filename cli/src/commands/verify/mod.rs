//! `cloister verify`: whether a CVM is what it should be, judged from outside.

mod bundle;
mod certificate;
mod expectations;
mod fetch;
mod files;
mod image;
mod inference;
mod report;
mod target;
mod trust;

pub(super) use trust::TrustArgs;

use cloister_verifier::appraisal::{Evidence, appraise, appraise_with};
use cloister_verifier::{Clock, Collateral};
use jiff::Timestamp;

use super::Outcome;
use crate::args::path_segment;
use crate::failure::Failure;
use crate::session::Session;

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(group = clap::ArgGroup::new("evidence").required(true).args(["target", "document", "quote", "bundle"]))]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// `https://` or `http://` address of the app, app id, or any name of a CVM of the workspace
    #[arg(value_name = "TARGET", value_parser = path_segment())]
    target: Option<String>,
    #[command(flatten)]
    files: files::FileArgs,
    #[command(flatten)]
    expectations: expectations::ExpectationArgs,
    #[command(flatten)]
    trust: trust::TrustArgs,
    #[command(flatten)]
    bundle: bundle::BundleArgs,
    /// Port of the ingress for TLS, where the app's own address is plain HTTP [default: 8743 for a cloud on
    /// this machine, else 443]
    #[arg(long, value_name = "PORT", requires = "target")]
    https_port: Option<u16>,
}

/// What else can be judged.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Judge an inference gateway before it is sent anything, and keep its certificate for clients
    Gateway(Box<inference::gateway::Args>),
    /// Judge an inference gateway's account of one request
    Receipt(Box<inference::receipt::Args>),
}

const AFTER_HELP: &str = "\
Every claim about the CVM is printed with what it rests on. Exit code 0 says that no claim fails and that \
signature, platform state, debug mode, boot, event log and event names were checked and hold; of a Nitro \
enclave signature, debug mode and image. Where nothing is expected, what was found is reported and not compared \
(mark -): without --app-id, --compose and --os-image-hash or --image, evidence shows only that some machine \
runs some application.

Examples:
  cloister verify hello --compose compose.yaml --image ./cloister-0.1.0
  cloister verify https://APP_ID-8090s.apps.example.org --compose-hash HASH --production
  cloister verify hello --save-bundle hello.json
  cloister verify --bundle hello.json --compose compose.yaml --at 2026-11-21T14:00:00Z";

/// What there is to judge, however it was come by.
struct Case {
    evidence: Evidence,
    /// What it was asked for with, hex.
    nonce: Option<String>,
    /// PEM of the certificate that the connection ended at, when it carries evidence.
    certificate_chain: Option<String>,
    /// The vendor's statements, when they came along.
    collateral: Option<Collateral>,
    /// When it was received.
    captured_at: Timestamp,
}

/// Judges and reports.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    match args.what {
        Some(What::Gateway(args)) => return inference::gateway::run(*args, session).await,
        Some(What::Receipt(args)) => return inference::receipt::run(*args, session).await,
        None => {}
    }
    let clock = Clock::system();
    let offline = args.bundle.bundle.is_some() || args.files.has_collateral();
    if args.bundle.at.is_some() && !offline {
        return Err(Failure::usage("--at needs evidence with its collateral: --bundle, or --collateral"));
    }
    // Before anything is asked of the network: a wrong root is a wrong command line.
    let (verifier, notes) =
        args.trust.verifier(session, &args.bundle.at.map_or_else(|| clock.clone(), Clock::fixed), offline)?;
    let mut expectations = args.expectations.read()?;
    let case = match (&args.target, &args.bundle.bundle) {
        (Some(target), _) => {
            let nonce = args.expectations.nonce_or_fresh()?;
            target::capture(session, target, args.https_port, nonce, &mut expectations, &clock).await?
        }
        (None, Some(path)) => bundle::open(path, &mut expectations)?,
        (None, None) => files::open(&args.files, &clock)?,
    };
    if args.target.is_none() {
        args.expectations.given_nonce(&mut expectations)?;
    }
    let appraised = match &case.collateral {
        Some(collateral) => {
            let at = args.bundle.at.unwrap_or_else(|| clock.now());
            appraise_with(&verifier, &case.evidence, &expectations, collateral, at)
        }
        None => appraise(&verifier, &case.evidence, &expectations).await,
    };
    if let Some(path) = &args.bundle.save_bundle {
        bundle::save(path, &case, &appraised)?;
    }
    report::show(&session.output, &appraised.appraisal);
    match report::failure(&appraised.appraisal, &notes, case.collateral.is_some(), case.captured_at) {
        Some(failure) => return Err(failure),
        None if session.output.json => {}
        None => session.output.say(&report::conclusion(&appraised.appraisal)),
    }
    Ok(())
}
