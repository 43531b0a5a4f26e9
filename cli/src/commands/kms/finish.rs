//! `cloister kms finish`.

use cloister_kms_api::method;
use serde_json::json;

use super::onboarding::OnboardingArgs;
use crate::commands::Outcome;
use crate::session::Session;

/// Arguments of `kms finish`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: cloister kms finish --url http://127.0.0.1:12001")]
pub(crate) struct Args {
    #[command(flatten)]
    onboarding: OnboardingArgs,
}

/// Ends onboarding.
pub(super) async fn run(args: Args, session: &Session) -> Outcome {
    args.onboarding.open(session)?.get(method::FINISH).await?;
    if session.output.json {
        session.output.document(&json!({ "finished": true }));
    } else {
        session.output.say("Finished: the KMS releases keys from now on, and takes no other root.");
    }
    Ok(())
}
