//! `cloister kms onboard`.

use cloister_kms_api::{OnboardRequest, OnboardResponse, method};
use serde_json::json;
use url::Url;

use super::onboarding::OnboardingArgs;
use super::verify::k256_key;
use crate::commands::Outcome;
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Arguments of `kms onboard`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The running KMS must let the new one in first: its mr_aggregated must stand among the kmsMeasurements of the \
rules (cloister kms policy set-platform-rules).

Example: cloister kms onboard --url http://10.0.0.7:12001 --domain kms2.example.org --source \
https://kms.example.org:12001 --root-key HEX")]
pub(crate) struct Args {
    #[command(flatten)]
    onboarding: OnboardingArgs,
    /// Port for releases of the KMS that runs
    #[arg(long, value_name = "URL")]
    source: Url,
    /// Domain name or IP address under which the new KMS will be reached
    #[arg(long)]
    domain: String,
    /// Current root of the KMS that runs, compressed secp256k1 key: any other is refused
    #[arg(long, value_name = "HEX", value_parser = k256_key)]
    root_key: Option<[u8; 33]>,
}

/// Takes the roots over.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let request = OnboardRequest {
        source_url: args.source.to_string(),
        domain: args.domain,
        k256_pubkey: args.root_key.map(Into::into),
    };
    let taken: OnboardResponse =
        args.onboarding.open(session)?.call(method::ONBOARD, &request).await.map_err(refused)?;
    if session.output.json {
        session.output.document(&json!(taken));
        return Ok(());
    }
    session.output.fields(&[("Root key (secp256k1)", Some(hex::encode(&taken.k256_pubkey)))]);
    if args.root_key.is_none() {
        session.output.say("Compare the root key with that of the KMS that you meant: cloister kms status");
    }
    session.output.say("Next: cloister kms finish");
    Ok(())
}

fn refused(mut failure: Failure) -> Failure {
    match failure.exit {
        Exit::NotFound => failure.hint(
            "let the new KMS in, there: cloister kms policy set-platform-rules FILE, with kmsMeasurements",
        ),
        // One of the two has judged the other, by its evidence or its root.
        Exit::Unauthorised => {
            failure.exit = Exit::Unverified;
            failure
        }
        _ => failure,
    }
}
