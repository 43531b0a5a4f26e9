//! The engine's process.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::{Changes, Engine, EngineError, SOCKET, health, registries};
use crate::failure;
use crate::hidden::Hidden;
use crate::machine::RUNTIME;
use crate::output::{CommandError, Running};

/// An engine that does not answer after this long will not. An emulated machine whose host has much to do takes minutes.
const START_LIMIT: Duration = Duration::from_mins(5);
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
    #[error("the container engine does not answer")]
    Answer(#[source] EngineError),
    #[error("the container engine did not answer within {} seconds", START_LIMIT.as_secs())]
    Timeout,
}

/// An engine that is starting. Its socket takes connections from the beginning and they wait in its
/// queue, so that clients can start at the same time.
#[derive(Debug)]
pub(crate) struct Starting {
    ended: JoinHandle<Result<(), CommandError>>,
    socket: UnixListener,
    hidden: Hidden,
}

/// Starts the engine for an application that uses `images`. Its own messages may repeat what it was told to
/// run, in which these words are `hidden`.
pub(crate) fn start<'a>(
    image_mirror: bool,
    images: impl IntoIterator<Item = &'a str>,
    hidden: &Hidden,
) -> Result<Starting, StartError> {
    let registries = registries::configuration(image_mirror, images);
    fs::write(Path::new(RUNTIME).join("registries.conf"), registries)?;
    let socket = UnixListener::bind(SOCKET)?;
    fs::set_permissions(SOCKET, Permissions::from_mode(0o660))?;
    let ended = tokio::spawn(run(socket.try_clone()?, hidden.clone()));
    Ok(Starting { ended, socket, hidden: hidden.clone() })
}

impl Starting {
    /// Returns when the engine answers, with the news of its containers, and keeps it running from then on.
    /// Its health checks are driven from here, since podman leaves their timing to a service manager that this
    /// guest does not have.
    pub(crate) async fn finish(mut self) -> Result<(Engine, Changes), StartError> {
        let engine = Engine::at(SOCKET);
        tokio::select! {
            // An engine that cannot even start will not start the second time.
            ended = &mut self.ended => {
                return Err(ended.ok().and_then(Result::err).map_or(StartError::Ended, StartError::Start));
            }
            answered = timeout(START_LIMIT, engine.ping()) => {
                answered.map_err(|_| StartError::Timeout)?.map_err(StartError::Answer)?;
            }
        }
        tokio::spawn(keep_running(self));
        let changes = Changes::default();
        tokio::spawn(health::supervise(engine.clone(), changes.clone()));
        Ok((engine, changes))
    }
}

/// Runs the engine on a socket that is open already: descriptor 3, by the convention of systemd. The
/// shell gives it that number and tells podman its process id, both of which a parent cannot do.
async fn run(socket: UnixListener, hidden: Hidden) -> Result<(), CommandError> {
    const TAKE_SOCKET: &str =
        "LISTEN_PID=$$ LISTEN_FDS=1 exec podman system service --time=0 3<&0 </dev/null";
    let mut podman = Command::new("sh");
    podman.args(["-c", TAKE_SOCKET]).env("DISABLE_HC_SYSTEMD", "true");
    Running::start_with(&mut podman, OwnedFd::from(socket))?.hiding(&hidden).finish(|_| ()).await
}

async fn keep_running(Starting { mut ended, socket, hidden }: Starting) {
    loop {
        let reason = match ended.await {
            Ok(Err(error)) => failure::chain(&error),
            _ => "without a reason".to_owned(),
        };
        warn!("the container engine ended and is started again: {reason}");
        sleep(RESTART_PAUSE).await;
        ended = tokio::spawn(restart(socket.try_clone(), hidden.clone()));
    }
}

async fn restart(socket: io::Result<UnixListener>, hidden: Hidden) -> Result<(), CommandError> {
    let socket = socket.map_err(|source| CommandError::Run { program: "podman".to_owned(), source })?;
    run(socket, hidden).await
}
