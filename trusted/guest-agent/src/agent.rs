//! The agent: from power-on to a running application, and back.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cloister_attester::Attester;
use cloister_guest_channel::status::{BootPhase, NodeMessage};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, warn};

use crate::application::{Application, ApplicationError};
use crate::attestation::{AttestationError, Facts, Measuring};
use crate::engine::{self, Engine, EngineError, SOCKET};
use crate::external::{self, External};
use crate::failure;
use crate::guest_api;
use crate::machine::configuration::{Configuration, ConfigurationError};
use crate::machine::data_disk::{self, DataDiskError};
use crate::machine::network::{self, NetworkError};
use crate::machine::{DATA, clock, identity, power_button, power_mark};
use crate::progress::Progress;
use crate::status_port;

/// What an application gets to end when the power button asks.
const BUTTON_GRACE: Duration = Duration::from_secs(30);
/// Longest grace that a node may ask for.
const MAX_GRACE: Duration = Duration::from_hours(1);
/// What the last status line gets to leave the guest.
const LAST_WORD: Duration = Duration::from_millis(50);

/// Why a boot failed.
#[derive(Debug, thiserror::Error)]
enum BootError {
    #[error("the configuration is unusable")]
    Configuration(#[from] ConfigurationError),
    #[error("the network could not be set up")]
    Network(#[from] NetworkError),
    #[error(transparent)]
    DataDisk(#[from] DataDiskError),
    #[error("the CVM has no identity")]
    Identity(#[source] std::io::Error),
    #[error("the agent's listener could not be opened")]
    External(#[source] std::io::Error),
    #[error(transparent)]
    Attestation(#[from] AttestationError),
    #[error("the sockets of the application could not be opened")]
    Sockets(#[source] std::io::Error),
    #[error(transparent)]
    Engine(#[from] engine::StartError),
    #[error("cannot write to the data disk")]
    PowerMark(#[source] std::io::Error),
    #[error("cannot tidy up after a power loss")]
    Recovery(#[source] EngineError),
    #[error(transparent)]
    Application(#[from] ApplicationError),
}

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
    let mut application = None;
    let grace = tokio::select! {
        () = boot_and_stay(&progress, &mut application) => BUTTON_GRACE,
        grace = shutdown_request(&mut messages) => grace,
    };
    shut_down(&progress, application, grace.min(MAX_GRACE)).await;
}

/// Never returns: a failed boot stays to tell its reason.
async fn boot_and_stay(progress: &Progress, application: &mut Option<Application>) {
    if let Err(error) = boot(progress, application).await {
        progress.fail(&failure::chain(&error));
    }
    std::future::pending::<()>().await;
}

async fn boot(progress: &Progress, application: &mut Option<Application>) -> Result<(), BootError> {
    let Configuration { app, system } = Configuration::read()?;
    clock::set_if_absent(system.launched_at_ms);
    progress.enter(BootPhase::AgentStarted);
    progress.enter(BootPhase::PreparingDisk);
    let mut facts = Facts::new(&app, &system);
    let measuring = async {
        let attester = Attester::detect().await.map_err(AttestationError::from)?;
        Measuring::begin(attester, &facts).await
    };
    let (network, disk, measuring) =
        tokio::join!(network::configure(&system.hostname), data_disk::prepare(), measuring);
    network?;
    let members = app.members();
    let (to_attestation, attestation) = watch::channel(None);
    let external = External {
        engine: Engine::at(SOCKET),
        public_logs: members.public_logs,
        public_containers: members.public_sysinfo,
        public_tcbinfo: members.public_tcbinfo,
        node_token: system.node_token,
        attestation,
        quotes: external::quote_slots(),
    };
    external::listen(Arc::new(external)).await.map_err(BootError::External)?;
    disk?;
    let instance = if members.no_instance_id {
        None
    } else {
        Some(identity::instance_id(DATA.as_ref(), &system.app_id).map_err(BootError::Identity)?)
    };
    if let Some(instance) = instance {
        progress.identify(instance);
    }
    facts.instance = instance;
    let attestation = measuring?.finish(facts, None).await?;
    guest_api::listen(&attestation).map_err(BootError::Sockets)?;
    to_attestation.send_replace(Some(attestation));
    let application = application.insert(Application::prepare(app, &system.app_id, instance.as_ref())?);
    application.initialise().await?;
    progress.enter(BootPhase::StartingEngine);
    let images = application.images();
    let after_power_loss = power_mark::set(DATA.as_ref()).map_err(BootError::PowerMark)?;
    let starting = engine::start(system.image_mirror, images.iter().map(String::as_str))?;
    let engine = if after_power_loss {
        warn!("the last boot ended without a shutdown");
        let engine = starting.finish().await?;
        engine.remove_unfinished().await.map_err(BootError::Recovery)?;
        launch(progress, application).await?;
        engine
    } else {
        // The compose front end reads its file while the engine still starts, and waits for it then.
        let engine = async { starting.finish().await.map_err(BootError::from) };
        let launch = async { launch(progress, application).await.map_err(BootError::from) };
        tokio::try_join!(engine, launch)?.0
    };
    progress.enter(BootPhase::Done);
    data_disk::flush().await;
    application.settle(&engine).await;
    Ok(())
}

async fn launch(progress: &Progress, application: &mut Application) -> Result<(), ApplicationError> {
    if application.has_pre_launch() {
        progress.enter(BootPhase::PreLaunch);
        application.pre_launch().await?;
    }
    progress.enter(BootPhase::StartingContainers);
    application.launch(progress).await
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
