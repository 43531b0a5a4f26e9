//! Putting the parts together.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cloister_development_tee::Vendor;
use cloister_fleet_tls::{
    Authority, FleetTlsError, Identity, JoinToken, TlsListener, server_config, shared_secret,
};
use cloister_management_api::ApiVersion;
use cloister_outbound::{Outbound, SystemResolver};
use cloister_verifier::{CollateralCache, Verifier};
use jiff::civil::Date;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use url::Url;

use crate::api::{self, InvalidClient, OauthClient};
use crate::audit::{self, INSTALLATION, System};
use crate::clock::{Clock, NoRandomness, Random};
use crate::dns::Dns;
use crate::first_account::{AccountError, FirstKey, insert_key, make_first_account};
use crate::fleet::{Fleet, ForNodes, JoinTokenError, NodeListener, ReadyVms, VmChanges, make_join_token};
use crate::governance::{Chains, ChainsError, Contracts};
use crate::inference::{ControlTokenError, Inference};
use crate::kms::{Kmses, KmsesError};
use crate::openid::{InvalidOpenid, Openid};
use crate::operations::{Engine, EngineError, EngineOptions, Lifecycle};
use crate::os_images::{ImageError, Library};
use crate::people::{People, PeopleError};
use crate::proof_of_cloud::ProofOfCloud;
use crate::store::{Store, StoreError};
use crate::trust::{Trust, TrustError};
use crate::webhooks::{Dispatcher, Figures, Secrets, SecretsError};

mod config;
mod workers;

pub use config::{Config, DEFAULT_REQUESTS_PER_MINUTE};

/// How long requests may go on after a stop was asked for; above the limit of every request but uploads.
const DRAIN: Duration = Duration::from_secs(30);

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
    /// The secrets of webhooks cannot be sealed.
    #[error(transparent)]
    WebhookSecrets(#[from] SecretsError),
    /// An application that people could let in is not described well.
    #[error(transparent)]
    OauthClient(#[from] InvalidClient),
    /// The OpenID provider is not described well.
    #[error(transparent)]
    Openid(#[from] InvalidOpenid),
    /// People could not log in.
    #[error(transparent)]
    People(#[from] PeopleError),
    /// Inference gateways would have no token.
    #[error(transparent)]
    ControlToken(#[from] ControlTokenError),
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
    /// Secret of the key that signs the heads of audit chains, kept in the same place.
    pub audit_head_key: [u8; 32],
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
    /// Makes requests to addresses that users name.
    pub outbound: Outbound,
    /// Seals and opens the secrets of webhooks.
    pub webhook_secrets: Arc<Secrets>,
    /// Checks passwords and codes of people.
    pub people: Arc<People>,
    /// Applications that people can let in.
    pub oauth_clients: Vec<OauthClient>,
    /// The OpenID provider that people can log in by, if there is one.
    pub openid: Option<Arc<Openid>>,
    /// What was delivered to webhooks.
    pub webhook_figures: Arc<Figures>,
    /// Requests that each API key may make in a minute; `None` is no limit.
    pub requests_per_minute: Option<NonZeroU32>,
    /// When the operator means to stop answering in a version, for those where this is decided.
    pub sunsets: BTreeMap<ApiVersion, Date>,
    /// What inference gateways are served with, if they are.
    pub inference: Option<Inference>,
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
    webhooks: Dispatcher,
    first_key: Option<FirstKey>,
    stop: CancellationToken,
}

/// The guest images of the catalogue.
async fn library(data_dir: &Path, store: &Store, clock: &Clock) -> Result<Arc<Library>, StartError> {
    let path = data_dir.join("os-images");
    let library = Library::open(path.clone()).map_err(|source| StartError::DataDir { path, source })?;
    library.tidy(store, clock).await?;
    Ok(Arc::new(library))
}

fn warn_of_single_providers(chains: &Chains, production: bool) {
    for (chain, why) in chains.cautions().filter(|_| production) {
        warn!(chain, %why, "one provider alone can make this service show a wrong state of the chain");
    }
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
        let inference = config.inference.as_ref().map(Inference::open).transpose()?;
        let (clock, random) = (config.clock.clone(), Random);
        let store = match &config.database_url {
            Some(url) => Store::open(url).await?,
            None => Store::open_file(&config.data_dir.join("cloister.db")).await?,
        };
        let store = store.with_prices(config.prices);
        let first_key = make_first_account(&store, &clock, random).await?;

        let fleet_dir = config.data_dir.join("fleet");
        let log_url_key = shared_secret(&fleet_dir, "log-urls.key", random.bytes()?)?;
        let audit_head_key = shared_secret(&fleet_dir, "audit-heads.key", random.bytes()?)?;
        let webhook_secrets = Arc::new(Secrets::open(&fleet_dir, random)?);
        let people = Arc::new(People::open(&fleet_dir, random)?);
        let openid = config.openid.map(|openid| Openid::open(openid, &clock)).transpose()?.map(Arc::new);
        let outbound = Outbound::new(config.webhooks, Arc::new(SystemResolver::new()));
        let authority = Arc::new(Authority::load_or_create(&fleet_dir, clock.now())?);
        let credentials = authority.issue(&Identity::ControlPlane, &config.node_names, clock.now())?;
        let trust = Trust::establish(&config.data_dir, config.production, config.pccs_url.as_ref(), &clock)?;
        let changes = VmChanges::default();
        let fleet = Arc::new(Fleet::new(store.clone(), clock.clone(), changes.clone(), credentials.clone()));

        let os_images = library(&config.data_dir, &store, &clock).await?;

        let chains = Chains::new(config.chains, config.production, &clock)?;
        chains.check(config.kms.iter().filter_map(|kms| Some((kms.slug.as_str(), kms.contract?))))?;
        warn_of_single_providers(&chains, config.production);
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
        let local_url = || Url::parse(&format!("http://{api_address}"));
        let public_url = config.public_url.map_or_else(local_url, Ok)?;
        let app = Arc::new(App {
            proof_of_cloud: ProofOfCloud::new(config.proof_of_cloud, store.clone(), clock.clone()).into(),
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
            audit_head_key,
            dns: Dns::system(),
            outbound,
            webhook_secrets,
            people,
            oauth_clients: OauthClient::checked(config.oauth_clients)?,
            openid,
            webhook_figures: Arc::default(),
            requests_per_minute: config.requests_per_minute,
            sunsets: config.sunsets,
            inference,
        });
        let webhooks = workers::start(&app, config.rollout_observer, config.webhook_observer, &stop);
        let api = tokio::spawn(serve_api(api_listener, Arc::clone(&app), stop.clone()));
        info!(%api_address, node_address = %nodes.address, "control plane started");
        Ok(Self { app, api_address, api, nodes, engine, webhooks, first_key, stop })
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
        let work = async {
            let mut change = store.change().await?;
            let key = insert_key(&mut change, administrator, "recovered key", now_ms, *random).await?;
            change.commit().await?;
            Ok(key)
        };
        audit::as_system(System::Operator, ("create_token", "api_key"), administrator.1, clock, work).await
    }

    /// Makes an invitation for a new node.
    pub async fn invite_node(&self) -> Result<JoinToken, JoinTokenError> {
        let App { clock, .. } = &*self.app;
        let work = self.app.invite_node();
        audit::as_system(System::Operator, ("admin_invite_node", "invitation"), INSTALLATION, clock, work)
            .await
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
        tokio::join!(self.engine.stop(), self.webhooks.stop());
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
