//! `cloister kms bootstrap`.

use cloister_kms_api::{BootstrapRequest, BootstrapResponse, method};
use serde_json::json;

use super::onboarding::OnboardingArgs;
use crate::commands::Outcome;
use crate::session::Session;

/// Arguments of `kms bootstrap`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: cloister kms bootstrap --url http://127.0.0.1:12001 --domain kms.example.org"
)]
pub(crate) struct Args {
    #[command(flatten)]
    onboarding: OnboardingArgs,
    /// Domain name or IP address under which the KMS will be reached
    #[arg(long)]
    domain: String,
}

/// Makes the first root.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    let request = BootstrapRequest { domain: args.domain };
    let made: BootstrapResponse = args.onboarding.open(session)?.call(method::BOOTSTRAP, &request).await?;
    if session.output.json {
        session.output.document(&json!(made));
        return Ok(());
    }
    session.output.fields(&[
        ("Root key (secp256k1)", Some(hex::encode(&made.k256_pubkey))),
        ("Root authority", Some(hex::encode(&made.ca_pubkey))),
        ("Measurement", Some(hex::encode(&made.measurement))),
    ]);
    session.output.say("Keep the root key: whoever knows it can check this KMS and its successors.");
    session.output.say("Next: cloister kms finish, then cloister kms verify");
    Ok(())
}
