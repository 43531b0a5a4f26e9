//! `cloister serve inference-gateway`.

use std::path::PathBuf;
use std::time::Duration;

use cloister_inference_gateway::run::{self, StartError};
use tokio::signal::unix::{SignalKind, signal};

use super::Logging;
use super::parent::{Bond, ORPHAN_GRACE};
use crate::commands::Outcome;
use crate::failure::{Exit, Failure};
use crate::parts::Interrupts;

/// Arguments of `serve inference-gateway`.
#[derive(Debug, clap::Args)]
#[command(after_help = "The file is read again when it changes, and on SIGHUP")]
pub(crate) struct Args {
    /// What it serves, to whom and by whom, JSON
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// How long answers that are under way get when it is told to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    drain_timeout: u64,
    #[command(flatten)]
    bond: Bond,
    #[command(flatten)]
    pub(super) logging: Logging,
}

/// Serves until it is told to stop, or its parent has gone.
pub(super) async fn run(args: Args) -> Outcome {
    let mut interrupts = Interrupts::install()?;
    let mut hangup =
        signal(SignalKind::hangup()).map_err(|error| Failure::local("cannot handle signals", error))?;
    let failed = |error: StartError| {
        let is_file = error.is_about_files();
        let mut failure = Failure::local("the inference gateway did not start", error);
        if is_file {
            failure.exit = Exit::Usage;
            failure = failure.hint("docs/inference-gateway.md has the file's members");
        }
        failure
    };
    let mut parent = args.bond.parent();
    let gateway = tokio::select! {
        started = run::start(&args.config) => started.map_err(failed)?,
        () = interrupts.next() => return Ok(()),
        () = parent.gone() => return Ok(()),
    };
    let metrics_address = gateway.metrics_address().map(tracing::field::display);
    tracing::info!(address = %gateway.address(), metrics_address, "the inference gateway is up");
    let patience = Duration::from_secs(args.drain_timeout);
    let patience = loop {
        tokio::select! {
            () = interrupts.next() => break patience,
            () = parent.gone() => break patience.min(ORPHAN_GRACE),
            _ = hangup.recv() => gateway.reload(),
        }
    };
    gateway.stop(patience, interrupts.again()).await;
    Ok(())
}
