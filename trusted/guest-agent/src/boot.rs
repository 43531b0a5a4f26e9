//! A boot, from the configuration disk to a running application.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cloister_app_compose::{AppCompose, AppId, InstanceId, KeyProvider, UnsupportedProvider};
use cloister_attester::Attester;
use cloister_guest_channel::config_disk::SysConfig;
use cloister_guest_channel::status::BootPhase;
use cloister_sealed_env::Environment;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::application::{Application, ApplicationError};
use crate::attestation::{Attestation, AttestationError, Facts, KeyProviderInfo, Keys, Measuring};
use crate::engine::{self, Engine, EngineError, SOCKET};
use crate::external::{self, External};
use crate::failure;
use crate::guest_api;
use crate::keys::environment::{self, EnvironmentError};
use crate::keys::{BOOT_PATIENCE, KmsClient, KmsFailure, Release};
use crate::machine::configuration::{Configuration, ConfigurationError};
use crate::machine::data_disk::{self, DataDiskError, DiskKeys, EncryptedDisk, Opened};
use crate::machine::network::{self, NetworkError};
use crate::machine::{DATA, clock, emulation, identity, power_mark};
use crate::progress::Progress;

/// How long the KMS is told again and again that everything is under its current root. It learns it at the
/// next boot otherwise.
const CONFIRM_PATIENCE: Duration = Duration::from_secs(20);

/// Why a boot failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    #[error("the configuration is unusable")]
    Configuration(#[from] ConfigurationError),
    #[error("the application cannot get its keys")]
    Provider(#[from] UnsupportedProvider),
    #[error("the network could not be set up")]
    Network(#[from] NetworkError),
    #[error("the application has no keys")]
    Kms(#[from] KmsFailure),
    #[error(transparent)]
    DataDisk(#[from] DataDiskError),
    #[error("the CVM has no identity")]
    Identity(#[source] io::Error),
    #[error("the agent's listener could not be opened")]
    External(#[source] io::Error),
    #[error(transparent)]
    Attestation(#[from] AttestationError),
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error("the sockets of the application could not be opened")]
    Sockets(#[source] io::Error),
    #[error(transparent)]
    Engine(#[from] engine::StartError),
    #[error("cannot write to the data disk")]
    PowerMark(#[source] io::Error),
    #[error("cannot tidy up after a power loss")]
    Recovery(#[source] EngineError),
    #[error(transparent)]
    Application(#[from] ApplicationError),
}

/// The data disk as it is before there are keys.
enum Disk {
    /// Mounted: it is not encrypted.
    Plain,
    /// Still closed.
    Encrypted(EncryptedDisk),
}

/// Boots; the application is there from the moment at which there is something to stop.
pub(crate) async fn boot(
    progress: &Progress,
    application: &mut Option<Application>,
) -> Result<(), BootError> {
    let Configuration { app, system, encrypted_env, user_config } = Configuration::read()?;
    clock::set_if_absent(system.launched_at_ms);
    progress.enter(BootPhase::AgentStarted);
    let provider = KeyProvider::of(&app)?;
    progress.enter(match &provider {
        KeyProvider::None => BootPhase::PreparingDisk,
        KeyProvider::Kms { .. } => BootPhase::RequestingKeys,
    });
    let facts = Facts::new(&app, &system, provider);
    let measuring = async {
        let attester = Attester::detect().await.map_err(AttestationError::from)?;
        match emulation::keep_addresses("/".as_ref(), attester.platform()) {
            Ok(true) => info!("this machine is emulated: programs have the same addresses at every start"),
            Ok(false) => {}
            // It only makes the guest quicker.
            Err(error) => warn!("an emulated machine's programs start slowly: {error}"),
        }
        Measuring::begin(attester, &facts).await
    };
    let (network, disk, measuring) =
        tokio::join!(network::configure(&system.hostname), find_disk(&facts.key_provider), measuring);
    network?;
    let (to_attestation, attestation) = watch::channel(None);
    external::listen(outside(&app, &system, attestation)).await.map_err(BootError::External)?;
    let (attestation, environment) =
        prove(progress, measuring?, facts, disk?, &system, encrypted_env.as_deref()).await?;
    guest_api::listen(&attestation).map_err(BootError::Sockets)?;
    let instance = attestation.facts.instance;
    to_attestation.send_replace(Some(attestation));
    let prepared = Application::prepare(app, &system.app_id, instance.as_ref(), environment)?;
    prepared.leave_user_config(user_config.as_deref())?;
    run(progress, application.insert(prepared), system.image_mirror).await
}

/// What the outside may ask for.
fn outside(
    app: &AppCompose,
    system: &SysConfig,
    attestation: watch::Receiver<Option<Arc<Attestation>>>,
) -> Arc<External> {
    let members = app.members();
    Arc::new(External {
        engine: Engine::at(SOCKET),
        public_logs: members.public_logs,
        public_sysinfo: members.public_sysinfo,
        public_tcbinfo: members.public_tcbinfo,
        node_token: system.node_token.clone(),
        attestation,
        quotes: external::quote_slots(),
    })
}

async fn find_disk(provider: &KeyProvider) -> Result<Disk, DataDiskError> {
    match provider {
        KeyProvider::None => data_disk::prepare().await.map(|()| Disk::Plain),
        KeyProvider::Kms { .. } => EncryptedDisk::find().await.map(Disk::Encrypted),
    }
}

impl Disk {
    fn instance(&self, app_id: &AppId) -> io::Result<InstanceId> {
        match self {
            Self::Plain => identity::instance_id(DATA.as_ref(), app_id),
            Self::Encrypted(disk) => Ok(disk.seed().instance_id(app_id)),
        }
    }
}

/// Measures which CVM this is, gets its keys, and opens with them what only they open.
async fn prove(
    progress: &Progress,
    measuring: Measuring,
    mut facts: Facts,
    disk: Disk,
    system: &SysConfig,
    encrypted_env: Option<&[u8]>,
) -> Result<(Arc<Attestation>, Environment), BootError> {
    let wants_instance = !facts.no_instance_id;
    let instance = wants_instance.then(|| disk.instance(&facts.app_id)).transpose();
    facts.instance = instance.map_err(BootError::Identity)?;
    if let Some(instance) = facts.instance {
        progress.identify(instance);
    }
    measuring.instance(facts.instance.as_ref()).await?;
    let Disk::Encrypted(disk) = disk else {
        measuring.keys(&KeyProviderInfo::none(), None).await?;
        let environment = unseal(encrypted_env, None)?;
        return Ok((measuring.finish(facts, None).await?, environment));
    };
    let mut kms = kms(&facts, system, &measuring)?;
    let Release { keys, os_image_hash, root } =
        kms.app_keys(BOOT_PATIENCE, |waiting| progress.detail(waiting)).await?;
    let provider = KeyProviderInfo::kms(&root);
    info!("the KMS released the keys ({} ms since power-on)", clock::uptime_ms());
    measuring.keys(&provider, Some(&os_image_hash)).await?;
    progress.enter(BootPhase::PreparingDisk);
    let former: Vec<_> = keys.former().iter().map(|keys| *keys.disk_key()).collect();
    let former = zeroize::Zeroizing::new(former);
    let opened = disk.open(DiskKeys { current: keys.current().disk_key(), former: &former }).await?;
    if let Opened::Resealed(_) = opened {
        info!("the data disk is sealed to the new root {}", keys.current().root_version());
    }
    let environment = unseal(encrypted_env, Some(&keys))?;
    if !keys.former().is_empty() {
        confirm(&kms, keys.current().root_version()).await;
    }
    let keys = Keys { app: keys, provider, signer: Box::new(kms) };
    Ok((measuring.finish(facts, Some(keys)).await?, environment))
}

fn kms(facts: &Facts, system: &SysConfig, measuring: &Measuring) -> Result<KmsClient, KmsFailure> {
    let pinned_root = match &facts.key_provider {
        KeyProvider::None => None,
        KeyProvider::Kms { pinned_root } => pinned_root.clone(),
    };
    KmsClient::new(&system.kms_urls, pinned_root, measuring.prover(facts), clock::now)
}

fn unseal(blob: Option<&[u8]>, keys: Option<&crate::keys::AppKeys>) -> Result<Environment, EnvironmentError> {
    let mut random = |bytes: &mut [u8]| getrandom::fill(bytes).map_err(io::Error::from);
    environment::unseal(blob, keys, DATA.as_ref(), &mut random)
}

/// Tells the KMS that disk and environment are under its current root. It believes that only of a machine whose
/// application does not run yet, so the boot waits for it; what fails is said again by the next boot.
async fn confirm(kms: &KmsClient, root_version: u32) {
    match kms.confirm_reseal(root_version, CONFIRM_PATIENCE).await {
        Ok(()) => info!("the KMS knows that everything is under its root {root_version}"),
        Err(error) => warn!(
            "the KMS could not be told that everything is under its root {root_version}: {}",
            failure::chain(&error)
        ),
    }
}

/// Starts engine and application.
async fn run(
    progress: &Progress,
    application: &mut Application,
    image_mirror: bool,
) -> Result<(), BootError> {
    application.initialise().await?;
    progress.enter(BootPhase::StartingEngine);
    let images = application.images();
    let after_power_loss = power_mark::set(DATA.as_ref()).map_err(BootError::PowerMark)?;
    let starting = engine::start(image_mirror, images.iter().map(String::as_str), application.hidden())?;
    let (engine, changes) = if after_power_loss {
        warn!("the last boot ended without a shutdown");
        let started = starting.finish().await?;
        started.0.remove_unfinished().await.map_err(BootError::Recovery)?;
        launch(progress, application).await?;
        started
    } else {
        // The compose front end reads its file while the engine still starts, and waits for it then.
        let started = async { starting.finish().await.map_err(BootError::from) };
        let launch = async { launch(progress, application).await.map_err(BootError::from) };
        tokio::try_join!(started, launch)?.0
    };
    progress.enter(BootPhase::Done);
    application.watch(&engine, changes, progress);
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
