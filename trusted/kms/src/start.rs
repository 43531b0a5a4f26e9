use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cloister_chain::InvalidChainConfig;
use cloister_kms_api::admin::PolicyDocument;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use zeroize::Zeroizing;

use crate::directory::AdminToken;
use crate::door::{Doors, Limits, OpenError, Parts};
use crate::onboarding::{self, Onboarding};
use crate::policy::{self, Authority, ChainAuthority, InvalidRules, Webhook, WebhookError};
use crate::state::{Keys, Opened, StateError, Store, chain};
use crate::trust::{self, TrustError};
use crate::{Authorization, Config};
use cloister_agent_client::{Agent, AgentError, KeyName};

/// How long to wait after the doors did not open.
const PAUSE: Duration = Duration::from_secs(2);
/// The key of this machine, and no other, that seals the state.
const SEALING_KEY: KeyName = KeyName { path: "kms/state", purpose: "sealing", algorithm: "secp256k1" };
/// Largest file with initial rules, in bytes.
const MAX_RULES_BYTES: u64 = 16 << 20;

/// Why a KMS does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No sealing key and no evidence.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The sealing key cannot be read.
    #[error("{}: the sealing key cannot be read", .0.display())]
    SealingKey(PathBuf, #[source] io::Error),
    /// It is not 32 bytes.
    #[error("{}: a sealing key has exactly 32 bytes", .0.display())]
    SealingKeyLength(PathBuf),
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// It is unknown whom to trust.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The authorisation service cannot be used.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// The chain cannot be asked.
    #[error("the chain of the contract that decides cannot be used")]
    Chain(#[from] InvalidChainConfig),
    /// The initial rules cannot be read.
    #[error("{}: the initial rules cannot be read", .0.display())]
    Rules(PathBuf, #[source] io::Error),
    /// They are not a policy.
    #[error("{}: the initial rules are not a policy document", .0.display())]
    RulesForm(PathBuf, #[source] serde_json::Error),
    /// They can never hold.
    #[error("{}: the initial rules cannot be used", .0.display())]
    InvalidRules(PathBuf, #[source] InvalidRules),
    /// A port is taken.
    #[error("cannot listen at {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The doors do not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The runtime ends.
    #[error("the KMS was interrupted while it started")]
    Interrupted,
}

/// A running KMS.
#[derive(Debug)]
pub struct Kms {
    address: SocketAddr,
    directory_address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Both listeners, which outlive doors that do not open.
struct Listeners {
    release: std::net::TcpListener,
    directory: std::net::TcpListener,
}

/// What is served with.
struct Service {
    agent: Agent,
    verifier: cloister_verifier::Verifier,
    production: bool,
    admin_token_file: Option<PathBuf>,
    listeners: Listeners,
}

impl Kms {
    /// Starts a KMS: in onboarding, or, when that was finished before, with its doors open. Refuses to start
    /// over a state that it cannot use. Must be called within a tokio runtime.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let agent = Agent::new(&config.agent_socket);
        let authority = match &config.authorization {
            Authorization::BuiltIn => Authority::BuiltIn,
            Authorization::Webhook(url) => Authority::Webhook(Webhook::new(url)?),
            Authorization::Chain { chain, kms_contract } => {
                if config.production {
                    chain.check_independence()?;
                }
                Authority::Chain(ChainAuthority::new(chain.clone(), *kms_contract, config.clock.clone())?)
            }
        };
        let verifier = trust::verifier(&config, &config.clock)?;
        // Whatever would keep the doors shut after onboarding is told now.
        if let Some(path) = &config.admin_token_file {
            AdminToken::read(path).map_err(OpenError::from)?;
        }
        let rules = Arc::new(rules(config.initial_rules.as_deref())?);
        let secret = sealing_key(config.sealing_key_file.as_deref(), &agent).await?;
        let store = Store::take(
            &config.data_dir,
            secret,
            authority.clone(),
            config.clock.clone(),
            config.boundaries.clone(),
        )?;
        let reading = store.clone();
        let opened = tokio::task::spawn_blocking(move || reading.open());
        let opened = opened.await.map_err(|_| StartError::Interrupted)??;
        let listeners = Listeners {
            release: listen(config.listen).await?,
            directory: listen(config.directory_listen).await?,
        };
        let at = |listener: &std::net::TcpListener, wanted| {
            listener.local_addr().map_err(|error| StartError::Listen(wanted, error))
        };
        let address = at(&listeners.release, config.listen)?;
        let directory_address = at(&listeners.directory, config.directory_listen)?;
        let service = Service {
            agent: agent.clone(),
            verifier: verifier.clone(),
            production: config.production,
            admin_token_file: config.admin_token_file,
            listeners,
        };
        let stop = CancellationToken::new();
        let keys = match opened {
            Opened::Bootstrapped { keys, finished: true } => {
                let doors = service.open(&keys).await?;
                info!(%address, %directory_address, "the KMS releases keys");
                let task = tokio::spawn(open_until(doors, keys, stop.clone()));
                return Ok(Self { address, directory_address, stop, task });
            }
            Opened::Bootstrapped { keys, finished: false } => Some(keys),
            Opened::New => None,
        };
        info!(%address, has_roots = keys.is_some(), "the KMS waits to be onboarded");
        let keys = Arc::new(Mutex::new(keys));
        let clock = config.clock;
        let onboarding = Onboarding { store, agent, verifier, authority, clock, rules, keys };
        let task = tokio::spawn(onboard(service, onboarding, stop.clone()));
        Ok(Self { address, directory_address, stop, task })
    }

    /// Where it is onboarded and releases keys.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its directory is, once it is onboarded.
    #[must_use]
    pub const fn directory_address(&self) -> SocketAddr {
        self.directory_address
    }

    /// Stops, after answers that are on their way.
    pub async fn stop(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            error!("the KMS did not stop in order");
        }
    }
}

impl Service {
    async fn open(&self, keys: &Keys) -> Result<Doors, StartError> {
        let listener = |listener: &std::net::TcpListener| {
            let again = listener.try_clone().and_then(TcpListener::from_std);
            again.map_err(|error| {
                let any = SocketAddr::from(([0, 0, 0, 0], 0));
                StartError::Listen(listener.local_addr().unwrap_or(any), error)
            })
        };
        let parts = Parts {
            keys: keys.clone(),
            agent: self.agent.clone(),
            verifier: self.verifier.clone(),
            production: self.production,
            admin_token_file: self.admin_token_file.as_deref(),
            limits: Limits::default(),
        };
        let (release, directory) = (listener(&self.listeners.release)?, listener(&self.listeners.directory)?);
        Ok(Doors::open(parts, release, directory).await?)
    }
}

/// Onboarding, and then the doors on the same port.
async fn onboard(service: Service, onboarding: Onboarding, stop: CancellationToken) {
    let listener = match service.listeners.release.try_clone().and_then(TcpListener::from_std) {
        Ok(listener) => listener,
        Err(error) => return error!(%error, "the port of the KMS cannot be used"),
    };
    let Some(keys) = onboarding::serve(onboarding, &listener, &stop).await else { return };
    drop(listener);
    loop {
        match service.open(&keys).await {
            Ok(doors) => {
                info!("the KMS releases keys");
                return open_until(doors, keys, stop).await;
            }
            Err(error) => warn!(error = %chain(&error), "the KMS cannot open its doors yet"),
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stop.cancelled() => return,
        }
    }
}

async fn open_until(doors: Doors, keys: Keys, stop: CancellationToken) {
    stop.cancelled().await;
    doors.close().await;
    let saved = tokio::task::spawn_blocking(move || keys.save()).await;
    if saved.is_err() {
        error!("the state was not saved; nothing is lost, the log has it");
    }
}

async fn listen(address: SocketAddr) -> Result<std::net::TcpListener, StartError> {
    let listener = TcpListener::bind(address).await.map_err(|error| StartError::Listen(address, error))?;
    listener.into_std().map_err(|error| StartError::Listen(address, error))
}

async fn sealing_key(file: Option<&Path>, agent: &Agent) -> Result<Zeroizing<[u8; 32]>, StartError> {
    let Some(path) = file else { return Ok(agent.key(&SEALING_KEY).await?.secret) };
    let bytes = std::fs::read(path).map(Zeroizing::new);
    let bytes = bytes.map_err(|error| StartError::SealingKey(path.to_owned(), error))?;
    let key = bytes.as_slice().try_into().map_err(|_| StartError::SealingKeyLength(path.to_owned()))?;
    Ok(Zeroizing::new(key))
}

fn rules(file: Option<&Path>) -> Result<PolicyDocument, StartError> {
    let Some(path) = file else { return Ok(PolicyDocument::default()) };
    let failed = |error| StartError::Rules(path.to_owned(), error);
    if std::fs::metadata(path).map_err(failed)?.len() > MAX_RULES_BYTES {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    let text = std::fs::read(path).map_err(failed)?;
    let rules: PolicyDocument =
        serde_json::from_slice(&text).map_err(|error| StartError::RulesForm(path.to_owned(), error))?;
    policy::check_platform_rules(&rules.platform)
        .map_err(|error| StartError::InvalidRules(path.to_owned(), error))?;
    Ok(rules)
}
