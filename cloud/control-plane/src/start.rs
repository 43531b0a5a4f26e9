//! Putting the parts together.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cloister_chain::ChainConfig;
use cloister_development_tee::Vendor;
use cloister_fleet_tls::{
    Authority, FleetTlsError, Identity, JoinToken, TlsListener, server_config, shared_secret,
};
use cloister_verifier::{CollateralCache, Verifier};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use url::Url;

use crate::api;
use crate::clock::{Clock, NoRandomness, Random};
use crate::dns::Dns;
use crate::evidence;
use crate::first_account::{AccountError, FirstKey, insert_key, make_first_account};
use crate::fleet::{Fleet, ForNodes, JoinTokenError, NodeListener, ReadyVms, VmChanges, make_join_token};
use crate::governance::{Chains, ChainsError, Contracts};
use crate::housekeeping;
use crate::kms::{KmsConfig, Kmses, KmsesError};
use crate::operations::{Engine, EngineError, EngineOptions, Lifecycle};
use crate::os_images::{ImageError, Library};
use crate::proof_of_cloud::{ProofOfCloud, ProofOfCloudConfig};
use crate::rollouts::{self, Driver};
use crate::scheduled_deletes;
use crate::store::{Store, StoreError};
use crate::trust::{Trust, TrustError};

/// How long requests may go on after a stop was asked for; above the limit of every request but uploads.
const DRAIN: Duration = Duration::from_secs(30);

/// How a control plane runs.
#[derive(Clone)]
pub struct Config {
    /// Directory for the embedded database and the fleet's credentials; made when absent.
    pub data_dir: PathBuf,
    /// `postgres:` URL for many replicas; `None` uses the embedded database.
    pub database_url: Option<String>,
    /// Where the management API listens; port 0 lets the system choose.
    pub api_listen: SocketAddr,
    /// Where nodes report and enrol.
    pub node_listen: SocketAddr,
    /// Host names and addresses under which nodes reach `node_listen`.
    pub node_names: Vec<String>,
    /// Base URL of the API as clients see it; `None` derives it from the bound address.
    pub public_url: Option<Url>,
    /// Source of time.
    pub clock: Clock,
    /// How operations are worked on.
    pub engine: EngineOptions,
    /// Watches rounds of rollouts and drains.
    pub rollout_observer: Option<rollouts::Observer>,
    /// The list of registered platforms, if the installation has one.
    pub proof_of_cloud: Option<ProofOfCloudConfig>,
    /// Only hardware is trusted: no development root is minted, no development platform is certified, and
    /// nodes without TEE hardware are turned away.
    pub production: bool,
    /// Base address of a caching service (PCCS, `…/sgx/certification/v4` appended or not) for the collateral
    /// of Intel's platforms: https, or http on this machine. `None` asks Intel's own service.
    pub pccs_url: Option<Url>,
    /// Key management services; the first one is used unless a request names another. Without any,
    /// applications get no keys and no environment.
    pub kms: Vec<KmsConfig>,
    /// Chains with the contracts that decide for them; each contract's chain has to be one of these.
    pub chains: Vec<ChainConfig>,
}

impl Config {
    /// Everything embedded, on loopback.
    #[must_use]
    pub fn embedded(data_dir: PathBuf, api_listen: SocketAddr, node_listen: SocketAddr) -> Self {
        Self {
            data_dir,
            database_url: None,
            api_listen,
            node_listen,
            node_names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
            public_url: None,
            clock: Clock::system(),
            engine: EngineOptions::default(),
            rollout_observer: None,
            proof_of_cloud: None,
            production: false,
            pccs_url: None,
            kms: Vec::new(),
            chains: Vec::new(),
        }
    }
}

/// Why a control plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The guest images of the catalogue cannot be read.
    #[error("cannot read the guest images of the catalogue")]
    OsImages(#[from] ImageError),
    /// The data directory cannot be made or entered.
    #[error("cannot use the data directory {path}")]
    DataDir {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}; is another program using it?")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The fleet's credentials failed.
    #[error(transparent)]
    FleetTls(#[from] FleetTlsError),
    /// The workers did not start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The first administrator's key was not made.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The key management services cannot be used.
    #[error(transparent)]
    Kmses(#[from] KmsesError),
    /// The chains cannot be used.
    #[error(transparent)]
    Chains(#[from] ChainsError),
    /// Whom to trust is not known.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The bound address makes no URL.
    #[error("the public URL of the API cannot be built")]
    PublicUrl(#[from] url::ParseError),
}

/// What the request handlers work with.
pub struct App {
    /// The database, for reading.
    pub store: Store,
    /// Everything that changes CVMs.
    pub lifecycle: Lifecycle,
    /// The nodes.
    pub fleet: Arc<Fleet>,
    /// The key management services.
    pub kmses: Arc<Kmses>,
    /// The chains whose contracts decide what applications may run.
    pub contracts: Arc<dyn Contracts>,
    /// The guest images of the catalogue.
    pub os_images: Arc<Library>,
    /// The installation's certificate authority.
    pub authority: Arc<Authority>,
    /// The time.
    pub clock: Clock,
    /// Randomness.
    pub random: Random,
    /// Base URL of the API as clients see it, without `/api/v1`.
    pub public_url: Url,
    /// Secret for the signatures in log URLs, kept beside the fleet's authority: they survive a restart,
    /// and replicas that share the directory accept each other's.
    pub log_url_key: [u8; 32],
    /// Name servers, for what tenants publish about their domains.
    pub dns: Dns,
    /// Which platforms are registered.
    pub proof_of_cloud: Arc<ProofOfCloud>,
    /// Verifies evidence.
    pub verifier: Verifier,
    /// What the vendors say about platforms; the verifier uses it too.
    pub collateral: Arc<CollateralCache>,
    /// Certifies platforms without hardware; `None` in production.
    pub development_vendor: Option<Arc<Vendor>>,
}

impl App {
    /// Makes an invitation for a new node.
    pub async fn invite_node(&self) -> Result<JoinToken, JoinTokenError> {
        make_join_token(&self.store, &self.authority, &self.clock, self.random).await
    }
}

/// A running control plane.
pub struct ControlPlane {
    pub(crate) app: Arc<App>,
    api_address: SocketAddr,
    api: JoinHandle<()>,
    nodes: NodeListener,
    engine: Engine<Fleet>,
    first_key: Option<FirstKey>,
    stop: CancellationToken,
}

impl ControlPlane {
    /// Opens the store, starts the workers and both listeners. On a new installation makes the
    /// administrator, a workspace and [`ControlPlane::first_key`].
    pub async fn start(config: Config) -> Result<Self, StartError> {
        // For its owner only: the database names tenants and holds what they configured.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&config.data_dir)
            .map_err(|source| StartError::DataDir { path: config.data_dir.clone(), source })?;
        let (clock, random) = (config.clock.clone(), Random);
        let store = match &config.database_url {
            Some(url) => Store::open(url).await?,
            None => Store::open_file(&config.data_dir.join("cloister.db")).await?,
        };
        let first_key = make_first_account(&store, &clock, random).await?;

        let fleet_dir = config.data_dir.join("fleet");
        let log_url_key = shared_secret(&fleet_dir, "log-urls.key", random.bytes()?)?;
        let authority = Arc::new(Authority::load_or_create(&fleet_dir, clock.now())?);
        let credentials = authority.issue(&Identity::ControlPlane, &config.node_names, clock.now())?;
        let trust = Trust::establish(&config.data_dir, config.production, config.pccs_url.as_ref(), &clock)?;
        let changes = VmChanges::default();
        let fleet = Arc::new(Fleet::new(store.clone(), clock.clone(), changes.clone(), credentials.clone()));

        let images_dir = config.data_dir.join("os-images");
        let os_images = Library::open(images_dir.clone())
            .map_err(|source| StartError::DataDir { path: images_dir, source })?;
        os_images.tidy(&store, &clock).await?;
        let os_images = Arc::new(os_images);

        let chains = Chains::new(config.chains, config.production, &clock)?;
        chains.check(config.kms.iter().filter_map(|kms| Some((kms.slug.as_str(), kms.contract?))))?;
        let contracts: Arc<dyn Contracts> = Arc::new(chains);
        let kmses = Arc::new(Kmses::open(config.kms, &store, &clock).await?);

        let listen_error = |address| move |source| StartError::Listen { address, source };
        let node_tls = Arc::new(server_config(&credentials, true)?);
        let node_listener = TlsListener::bind(config.node_listen, node_tls)
            .await
            .map_err(listen_error(config.node_listen))?;
        let api_listener =
            TcpListener::bind(config.api_listen).await.map_err(listen_error(config.api_listen))?;
        let api_address = api_listener.local_addr().map_err(listen_error(config.api_listen))?;

        let wake = Arc::new(Notify::new());
        let engine = Engine::start(
            store.clone(),
            Arc::clone(&fleet),
            Arc::clone(&kmses),
            clock.clone(),
            random,
            Arc::clone(&wake),
            EngineOptions { contracts: Arc::clone(&contracts), ..config.engine },
        )
        .await?;
        let stop = CancellationToken::new();
        let for_nodes = ForNodes {
            store: store.clone(),
            fleet: Arc::clone(&fleet),
            authority: Arc::clone(&authority),
            vendor: trust.development_vendor.clone(),
            clock: clock.clone(),
            changes,
            ready: ReadyVms::default(),
            os_images: Arc::clone(&os_images),
        };
        let nodes = NodeListener::start(node_listener, for_nodes, stop.clone());
        let public_url = match config.public_url {
            Some(url) => url,
            None => Url::parse(&format!("http://{api_address}"))?,
        };
        let proof_of_cloud = ProofOfCloud::new(config.proof_of_cloud, store.clone(), clock.clone());
        let app = Arc::new(App {
            proof_of_cloud: Arc::new(proof_of_cloud),
            verifier: trust.verifier,
            collateral: trust.collateral,
            development_vendor: trust.development_vendor,
            lifecycle: Lifecycle::new(store.clone(), clock.clone(), random, wake),
            store,
            fleet,
            kmses,
            contracts,
            os_images,
            authority,
            clock,
            random,
            public_url,
            log_url_key,
            dns: Dns::system(),
        });
        tokio::spawn(evidence::watch(Arc::clone(&app), stop.clone()));
        tokio::spawn(Arc::clone(&app.proof_of_cloud).run(stop.clone()));
        tokio::spawn(Arc::clone(&app.kmses).watch(stop.clone()));
        tokio::spawn(scheduled_deletes::run(Arc::clone(&app), stop.clone()));
        let (store, lifecycle, clock) = (app.store.clone(), app.lifecycle.clone(), app.clock.clone());
        let driver = Driver::new(store, lifecycle, clock, config.rollout_observer);
        tokio::spawn(driver.run(stop.clone()));
        tokio::spawn(housekeeping::run(app.store.clone(), app.clock.clone(), stop.clone()));
        let api = tokio::spawn(serve_api(api_listener, Arc::clone(&app), stop.clone()));
        info!(%api_address, node_address = %nodes.address, "control plane started");
        Ok(Self { app, api_address, api, nodes, engine, first_key, stop })
    }

    /// Where the management API listens.
    #[must_use]
    pub fn api_address(&self) -> SocketAddr {
        self.api_address
    }

    /// Where nodes report and enrol.
    #[must_use]
    pub fn node_address(&self) -> SocketAddr {
        self.nodes.address
    }

    /// The administrator's key, if this start made the installation.
    #[must_use]
    pub fn first_key(&self) -> Option<&FirstKey> {
        self.first_key.as_ref()
    }

    /// Makes another key for the first administrator, for an operator who lost it. Whoever may start a
    /// control plane on this store could write the key there anyway.
    pub async fn recover_key(&self) -> Result<FirstKey, AccountError> {
        let App { store, clock, random, .. } = &*self.app;
        let administrator = store.first_administrator().await?.ok_or(AccountError::NoAdministrator)?;
        let now_ms = clock.now_ms();
        let mut change = store.change().await?;
        let key = insert_key(&mut change, administrator, "recovered key", now_ms, *random).await?;
        change.commit().await?;
        Ok(key)
    }

    /// Makes an invitation for a new node.
    pub async fn invite_node(&self) -> Result<JoinToken, JoinTokenError> {
        self.app.invite_node().await
    }

    /// Issues a certificate for the ingress of a node in the same process.
    pub fn issue_ingress_certificate(
        &self,
        names: &[String],
    ) -> Result<cloister_fleet_tls::Credentials, FleetTlsError> {
        self.app.authority.issue_server(names, self.app.clock.now())
    }

    /// Answers what is being asked, uploads that take too long aside, and ends. Unfinished operations
    /// continue at the next start.
    pub async fn stop(self) {
        self.stop.cancel();
        self.engine.stop().await;
        for mut listener in [self.nodes.task, self.api] {
            if tokio::time::timeout(DRAIN, &mut listener).await.is_err() {
                listener.abort();
            }
        }
        self.app.store.close().await;
    }
}

async fn serve_api(listener: TcpListener, app: Arc<App>, stop: CancellationToken) {
    let router = api::router(app, stop.clone());
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    if let Err(error) = axum::serve(listener, service).with_graceful_shutdown(stop.cancelled_owned()).await {
        error!(%error, "the API listener failed");
    }
}

#[cfg(test)]
mod tests;
