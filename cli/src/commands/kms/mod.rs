//! `cloister kms`: the key management service, for its operator and for whoever wants to check it.

mod bootstrap;
mod checks;
mod connection;
mod finish;
mod log;
mod onboard;
mod onboarding;
mod policy;
mod rotate;
mod status;
mod verify;

pub(super) use connection::announce;

use super::Outcome;
use crate::session::Session;

/// The subcommands of `kms`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show what a KMS is and how far a rotation of its root is
    Status(status::Args),
    /// Check that code and not a person made the roots, and that each root follows from the one before
    Verify(Box<verify::Args>),
    /// Read the release log and check it
    #[command(subcommand)]
    Log(log::Command),
    /// Say which applications, images and platforms get keys
    #[command(subcommand)]
    Policy(policy::Command),
    /// Replace the root while CVMs run
    #[command(subcommand)]
    Rotate(rotate::Command),
    /// Make the first root of a new KMS
    Bootstrap(bootstrap::Args),
    /// Let a new KMS take the roots of a running one
    Onboard(onboard::Args),
    /// End the onboarding of a KMS: from then on it releases keys
    Finish(finish::Args),
}

/// Runs the subcommand.
pub(super) async fn run(command: Command, session: &Session) -> Outcome {
    match command {
        Command::Status(args) => status::run(args, session).await,
        Command::Verify(args) => verify::run(*args, session).await,
        Command::Log(command) => log::run(command, session).await,
        Command::Policy(command) => policy::run(command, session).await,
        Command::Rotate(command) => rotate::run(command, session).await,
        Command::Bootstrap(args) => bootstrap::run(args, session).await,
        Command::Onboard(args) => onboard::run(args, session).await,
        Command::Finish(args) => finish::run(args, session).await,
    }
}
