//! `cloister serve echo-upstream`.

use std::net::SocketAddr;
use std::time::Duration;

use cloister_echo_upstream::{EchoUpstream, Manner};

use super::Logging;
use crate::commands::Outcome;
use crate::failure::Failure;
use crate::parts::Interrupts;

/// Arguments of `serve echo-upstream`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Listener for gateways, plain HTTP, without keys
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8711")]
    listen: SocketAddr,
    /// Pause before each token of a stream
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    pause: u64,
    #[command(flatten)]
    pub(super) logging: Logging,
}

/// Serves until it is told to stop.
pub(super) async fn run(args: Args) -> Outcome {
    let mut interrupts = Interrupts::install()?;
    let manner = Manner { pause: Duration::from_millis(args.pause) };
    let upstream = EchoUpstream::start(args.listen, manner)
        .await
        .map_err(|error| Failure::local(format!("cannot listen at {}", args.listen), error))?;
    tracing::info!(address = %upstream.address(), "the echo upstream is up");
    interrupts.next().await;
    tokio::select! {
        () = upstream.stop() => {}
        () = interrupts.again() => {}
    }
    Ok(())
}
