//! The agent: from power-on to a running application, and back.

use std::process::ExitCode;
use std::time::Duration;

use cloister_guest_channel::status::NodeMessage;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, warn};

use crate::application::Application;
use crate::boot;
use crate::console;
use crate::engine::{Engine, SOCKET};
use crate::failure;
use crate::machine::{DATA, power_button, power_mark};
use crate::progress::Progress;
use crate::status_port;

/// What an application gets to end when the power button asks.
const BUTTON_GRACE: Duration = Duration::from_secs(30);
/// Longest grace that a node may ask for.
const MAX_GRACE: Duration = Duration::from_hours(1);
/// What the last status line gets to leave the guest.
const LAST_WORD: Duration = Duration::from_millis(50);

/// Runs the agent until the guest is to be powered off.
pub(crate) fn run() -> ExitCode {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serve()),
        Err(error) => {
            error!("cannot start the agent: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

async fn serve() {
    let progress = Progress::new();
    let (to_messages, mut messages) = mpsc::channel(4);
    if let Err(error) = status_port::connect(progress.watch(), to_messages) {
        warn!("the node cannot be told about this guest: {error}");
    }
    console::offer();
    let mut application = None;
    let grace = tokio::select! {
        () = boot_and_stay(&progress, &mut application) => BUTTON_GRACE,
        grace = shutdown_request(&mut messages) => grace,
    };
    shut_down(&progress, application, grace.min(MAX_GRACE)).await;
}

/// Never returns: a failed boot stays to tell its reason.
async fn boot_and_stay(progress: &Progress, application: &mut Option<Application>) {
    if let Err(error) = boot::boot(progress, application).await {
        progress.fail(&failure::chain(&error));
    }
    std::future::pending::<()>().await;
}

/// Waits until the node or the power button asks for a shutdown; the answer is the grace.
async fn shutdown_request(messages: &mut mpsc::Receiver<NodeMessage>) -> Duration {
    let (to_presses, mut presses) = mpsc::channel(1);
    power_button::watch(to_presses);
    tokio::select! {
        Some(NodeMessage::Shutdown { timeout_s }) = messages.recv() => Duration::from_secs(timeout_s.into()),
        Some(()) = presses.recv() => BUTTON_GRACE,
        else => std::future::pending().await,
    }
}

/// Ends the application, then every container that is left, all within the grace.
async fn shut_down(progress: &Progress, application: Option<Application>, grace: Duration) {
    progress.shutting_down("stopping the application");
    let deadline = Instant::now() + grace;
    let engine = Engine::at(SOCKET);
    let end = async {
        if let Some(mut application) = application {
            application.stop(grace).await;
        }
        stop_containers(&engine, deadline).await;
    };
    match timeout(grace, end).await {
        // What is killed from here on may leave something unfinished, so then the mark stays.
        Err(_) => warn!("the application did not end within {} s", grace.as_secs()),
        // Fails where the boot did not come as far as setting it.
        Ok(()) => drop(power_mark::clear(DATA.as_ref())),
    }
    progress.shutting_down("powering off");
    // The port's thread sends this word right now; waiting for a node that does not listen is no use.
    sleep(LAST_WORD).await;
}

/// Containers that scripts or other containers started are in no compose file.
async fn stop_containers(engine: &Engine, deadline: Instant) {
    let Ok(containers) = engine.containers().await else { return };
    let mut stops = tokio::task::JoinSet::new();
    for container in containers.into_iter().filter(|container| container.state == "running") {
        let engine = engine.clone();
        let grace = deadline.saturating_duration_since(Instant::now());
        stops.spawn(async move { engine.stop(&container.id, grace).await });
    }
    while stops.join_next().await.is_some() {}
}
