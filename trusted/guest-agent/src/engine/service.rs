//! The engine's process.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::{Engine, SOCKET, health, registries};
use crate::failure;
use crate::machine::RUNTIME;
use crate::output::{CommandError, Running};

/// An engine that does not answer after this long will not.
const START_LIMIT: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(25);
/// Pause before an engine that ended is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Why there is no container engine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("cannot write the container engine's configuration")]
    Configure(#[from] io::Error),
    #[error("cannot start the container engine")]
    Start(#[from] CommandError),
    #[error("the container engine ended at once")]
    Ended,
    #[error("the container engine did not answer within {} seconds", START_LIMIT.as_secs())]
    Timeout,
}

/// Starts the engine for an application that uses `images`, keeps it running, and returns when it
/// answers. Its health checks are driven from here, since podman leaves their timing to a service
/// manager that this guest does not have.
pub(crate) async fn start<'a>(
    image_mirror: bool,
    images: impl IntoIterator<Item = &'a str>,
) -> Result<Engine, StartError> {
    let registries = registries::configuration(image_mirror, images);
    fs::write(Path::new(RUNTIME).join("registries.conf"), registries)?;
    let mut running = Box::pin(run());
    let engine = Engine::at(SOCKET);
    tokio::select! {
        // An engine that cannot even start will not start the second time.
        ended = &mut running => return Err(ended.err().map_or(StartError::Ended, StartError::Start)),
        answered = timeout(START_LIMIT, answer(&engine)) => answered.map_err(|_| StartError::Timeout)?,
    }
    tokio::spawn(async { keep_running(running.await).await });
    tokio::spawn(health::supervise(engine.clone()));
    Ok(engine)
}

async fn answer(engine: &Engine) {
    while engine.ping().await.is_err() {
        sleep(POLL).await;
    }
}

async fn run() -> Result<(), CommandError> {
    let mut podman = Command::new("podman");
    podman.args(["system", "service", "--time=0", &format!("unix://{SOCKET}")]);
    Running::start(podman.env("DISABLE_HC_SYSTEMD", "true"))?.finish(|_| ()).await
}

async fn keep_running(mut ended: Result<(), CommandError>) {
    loop {
        let reason = ended.map_or_else(|error| failure::chain(&error), |()| "without a reason".to_owned());
        warn!("the container engine ended and is started again: {reason}");
        sleep(RESTART_PAUSE).await;
        ended = run().await;
    }
}
