//! `cloister kms log`: the release log.

mod pages;
mod show;
mod verify;

use cloister_kms_api::{Meta, method};
use cloister_transparency_log::verify::Checkpoint;
use serde_json::json;

use super::connection::Directory;
use crate::commands::Outcome;
use crate::failure::{Exit, Failure};
use crate::session::Session;

const CHECKPOINT: &str = "/log/checkpoint";

/// The subcommands of `kms log`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show what was released, refused and changed
    Show(show::Args),
    /// Check that the log is whole, signed, and still what it was
    Verify(verify::Args),
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    match command {
        Command::Show(args) => show::run(args, session).await,
        Command::Verify(args) => verify::run(args, session).await,
    }
}

/// The newest checkpoint by the key that the KMS itself names: enough to know how long the log is.
async fn size(directory: &Directory) -> Result<u64, Failure> {
    let meta: Meta = directory.call(method::META, &json!({})).await?;
    let note = directory.text(CHECKPOINT).await?;
    let checkpoint = Checkpoint::verified(&note, &meta.log_verifier_key).map_err(|error| {
        Failure::new(Exit::Unverified, "the log's checkpoint does not hold").caused_by(error)
    })?;
    Ok(checkpoint.size)
}
