//! A service in a process of its own, which this process starts, watches and ends.
//!
//! It is a separate process so that nothing of the control plane or the node shares its memory, and the same program, so
//! that nothing else must be installed.

use std::ffi::OsString;
use std::future::Future;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure};
use crate::logging;

/// This program, also after its file was replaced: what was measured is what runs.
pub(crate) const PROGRAM: &str = "/proc/self/exe";

const PAUSE: Duration = Duration::from_millis(100);
/// The first start waits for the certificate of the platform that vouches for it.
const UP_PATIENCE: Duration = Duration::from_mins(1);
/// Longest that it gets to end.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Pauses before it is started again, from the shortest to the longest.
const RESTART_PAUSES: std::ops::Range<Duration> = Duration::from_millis(200)..Duration::from_secs(30);
/// Who ran so long has failed for a new reason.
const STABLE: Duration = Duration::from_mins(1);

/// Why a service does not serve yet.
pub(crate) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// What is run. It ends when its standard input is closed.
pub(crate) trait Service: Send + Sync + 'static {
    /// What people call it.
    const NAME: &'static str;

    /// Arguments of this program that start it.
    fn arguments(&self) -> Vec<OsString>;

    /// What it logs.
    fn log(&self) -> &str;

    /// Does what its first start needs, and looks whether it serves. Asked again until it does.
    fn bring_up(&self) -> impl Future<Output = Result<(), BoxedError>> + Send;
}

/// A running service.
#[derive(Debug)]
pub(crate) struct Supervised {
    name: &'static str,
    stop: CancellationToken,
    is_up: watch::Receiver<bool>,
    supervisor: JoinHandle<()>,
}

impl Supervised {
    /// Starts it. From then on it is started again whenever it ends.
    pub(crate) fn start<S: Service>(service: S) -> Self {
        let stop = CancellationToken::new();
        let (up, is_up) = watch::channel(false);
        let supervisor = tokio::spawn(supervise(service, up, stop.clone()));
        Self { name: S::NAME, stop, is_up, supervisor }
    }

    /// Waits until it serves for the first time.
    pub(crate) async fn up(&mut self) -> Result<(), Failure> {
        if timeout(UP_PATIENCE, self.is_up.wait_for(|up| *up)).await.is_ok_and(|up| up.is_ok()) {
            return Ok(());
        }
        Err(Failure::new(Exit::TimedOut, format!("the {} did not come up", self.name))
            .hint("see why: cloister up -v"))
    }

    /// Ends it.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = self.supervisor.await;
    }
}

fn spawn(service: &impl Service) -> std::io::Result<Child> {
    Command::new(PROGRAM)
        .arg0("cloister")
        // Nothing of this process's environment is meant for it.
        .env_clear()
        .env(logging::VARIABLE, service.log())
        .args(service.arguments())
        .arg("--exit-with-parent")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // Ctrl-C in a terminal is for this process, which ends its services in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Keeps one process running until it is told to stop.
async fn supervise<S: Service>(service: S, up: watch::Sender<bool>, stop: CancellationToken) {
    let mut pause = RESTART_PAUSES.start;
    loop {
        let started = Instant::now();
        match spawn(&service) {
            Ok(child) => {
                if watch_over(child, &service, &up, &stop).await {
                    return;
                }
            }
            Err(error) => tracing::error!(%error, "cannot start the {}", S::NAME),
        }
        if started.elapsed() > STABLE {
            pause = RESTART_PAUSES.start;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        pause = (pause * 2).min(RESTART_PAUSES.end);
    }
}

/// Stays with a process until its end; whether that was asked for.
async fn watch_over<S: Service>(
    mut child: Child,
    service: &S,
    up: &watch::Sender<bool>,
    stop: &CancellationToken,
) -> bool {
    let brought_up = async {
        while let Err(error) = service.bring_up().await {
            // It may just be starting; what is wrong with it, it says itself.
            tracing::debug!(error = error.as_ref(), "the {} does not serve yet", S::NAME);
            sleep(PAUSE).await;
        }
        up.send_replace(true);
        std::future::pending::<()>().await;
    };
    // Waiting for a child closes its standard input, which would end it.
    let lifeline = child.stdin.take();
    tokio::select! {
        ended = child.wait() => {
            let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            tracing::error!(status, "the {} ended; starting it again", S::NAME);
            false
        }
        () = brought_up => false,
        () = stop.cancelled() => {
            drop(lifeline);
            if timeout(END_PATIENCE, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
            true
        }
    }
}
