//! A running node.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cloister_development_tee::{HostProcessAgent, TeeError};
use cloister_fleet_tls::{FleetTlsError, TlsListener, client_config, server_config};
use cloister_node_api::{NodeReport, Platform};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backends::Backends;
use crate::config::{Config, OnExit};
use crate::control_plane::{CallError, ControlPlaneClient};
use crate::development::{self, DevelopmentPlatform, HostProcessError, is_development};
use crate::files::Lock;
use crate::gpus::{Gpus, MAX_EMULATED};
use crate::guest_images::{Fetcher, GuestImages};
use crate::host::{Budget, capacity};
use crate::images::{AppImages, ImageError};
use crate::peers::{Fleet, Peers};
use crate::ports::{HostPorts, PortRange};
use crate::reporter::Reporter;
use crate::vmm::{Hypervisor, PlatformError};
use crate::vms::{Claims, Host, Vms};
use crate::watch::watch_host;
use crate::{api, files};

/// Longest socket directory, in bytes: the system allows 107 for a socket's whole path.
const MAX_SOCKET_DIR_BYTES: usize = 67;
/// Where images of the catalogue are kept, in the data directory.
const OWN_IMAGES: &str = "os-images";
/// Longest time that background work gets at the end.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// Why a node could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error("cannot use the data directory {}", path.display())]
    DataDir {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another node uses the data directory.
    #[error("another node runs with the data directory {}: stop it, or choose another directory", .0.display())]
    InUse(PathBuf),
    /// Sockets in it would have too long names.
    #[error("the socket directory {} must be at most 67 bytes of UTF-8: choose a shorter data or socket directory", .0.display())]
    SocketDir(PathBuf),
    /// No hypervisor.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// Nobody could reach the node under the address that it would report.
    #[error(
        "the node listens on every address of the host: configure the host:port under which the control plane reaches it"
    )]
    Endpoint,
    /// Nothing protects guests here.
    #[error(
        "this host runs guests by {0:?}, which protects them from nobody: in production a node needs Intel TDX or AMD SEV-SNP"
    )]
    Production(Platform),
    /// Nothing protects a process of the host.
    #[error("in production no node plays a machine for a process of the host: run it in a CVM")]
    ProductionProcess,
    /// There would be GPUs that are none.
    #[error("emulated GPUs are for hosts without TEE hardware, at most 8 of them")]
    EmulatedGpus,
    /// The platform that the node plays cannot be used.
    #[error("cannot use the keys of the development platform")]
    Development(#[from] TeeError),
    /// The process beside the node gets no machine.
    #[error("cannot play a machine for the process {}", executable.display())]
    HostProcess {
        /// Its program.
        executable: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The listener cannot be bound.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The store of pushed images cannot be used.
    #[error("cannot use the store of pushed images")]
    Images(#[from] ImageError),
    /// The node's certificate cannot be used.
    #[error("cannot use the node's certificate")]
    Tls(#[from] FleetTlsError),
    /// The control plane's address cannot be used.
    #[error(transparent)]
    ControlPlane(#[from] CallError),
}

/// A running node: its VMs, its listener, its reports.
pub struct Node {
    host: Arc<Host>,
    vms: Arc<Vms>,
    peers: Arc<Fleet>,
    address: SocketAddr,
    /// The node takes orders and reports.
    serving: CancellationToken,
    /// Answers the process beside the node.
    _host_process: Option<HostProcessAgent>,
    /// Held until the end: nobody else may use the data directory.
    _lock: Lock,
}

impl Node {
    /// Starts a node: finds out how to run VMs, adopts those that run, starts those that should, listens
    /// and reports.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let (data_dir, socket_dir, lock) = open_directories(&config)?;
        if config.listen.ip().is_unspecified() && config.endpoint.is_none() {
            return Err(StartError::Endpoint);
        }
        let server_tls = Arc::new(server_config(&config.credentials, false)?);
        let client =
            ControlPlaneClient::new(config.control_plane.clone(), client_config(&config.credentials)?)?;
        let peers = Arc::new(Fleet::new(client.clone(), config.credentials.clone())?);
        let hypervisor =
            Hypervisor::find(&config.qemu, config.platform, &data_dir.join("platform.json")).await?;
        tracing::info!(platform = ?hypervisor.platform, version = hypervisor.version, "found the hypervisor");
        let played = open_development(&config, hypervisor.platform, &data_dir)?;
        let host_process = serve_host_process(&config, played.as_deref()).await?;
        let development = played.clone().filter(|_| is_development(hypervisor.platform));
        let gpus = open_gpus(&config, hypervisor.platform)?;
        let total = capacity(&config.limits, &data_dir).map_err(data_dir_error(&data_dir))?;
        let own_images = data_dir.join(OWN_IMAGES);
        Fetcher::clean(&own_images).map_err(data_dir_error(&data_dir))?;
        let host = Arc::new(Host {
            data_dir: data_dir.clone(),
            socket_dir,
            hypervisor,
            development,
            images: Arc::new(GuestImages::new(vec![config.images_dir.clone(), own_images.clone()])),
            budget: Budget::new(total),
            gpus,
            ports: HostPorts::new(config.port_address, config.port_range),
            app_images: AppImages::open(&data_dir.join("app-images"), config.app_images)?,
            claims: Claims::default(),
            relay_command: config.relay_command.clone(),
            snp_c_bit_position: config.snp_c_bit_position,
            changed: Notify::new(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            retiring: AtomicBool::new(false),
        });
        let arrived = Arc::new(Notify::new());
        let images = watch_host(&host, Arc::clone(&arrived)).await;
        let listener = TlsListener::bind(config.listen, server_tls)
            .await
            .map_err(|source| StartError::Listen { address: config.listen, source })?;
        let address = listener.address();
        let vms = Vms::load(Arc::clone(&host)).await.map_err(data_dir_error(&data_dir))?;
        let serving = CancellationToken::new();
        host.tasks.spawn(api::serve(listener, Arc::clone(&vms), host.app_images.clone(), serving.clone()));
        if let Some(platform) = played {
            let vendor = client.clone();
            let provision = async move { platform.provision(vendor).await };
            host.tasks.spawn(serving.clone().run_until_cancelled_owned(provision));
        }
        let constant = constant_report(&config, &host, address);
        let (wanted_images, wanted) = watch::channel(Vec::new());
        let fetcher = Fetcher {
            client: client.clone(),
            images: Arc::clone(&host.images),
            dir: own_images,
            wanted,
            offered: images.clone(),
            arrived,
        };
        host.tasks.spawn(serving.clone().run_until_cancelled_owned(fetcher.run()));
        let reporter = Reporter {
            host: Arc::clone(&host),
            vms: Arc::clone(&vms),
            images,
            wanted_images,
            client,
            maintenance: config.maintenance,
            constant,
        };
        host.tasks.spawn(serving.clone().run_until_cancelled_owned(reporter.run()));
        Ok(Self { host, vms, peers, address, serving, _host_process: host_process, _lock: lock })
    }

    /// Where the control plane's calls are served.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How VMs run here.
    #[must_use]
    pub fn platform(&self) -> Platform {
        self.host.hypervisor.platform
    }

    /// The running VMs, for an ingress.
    #[must_use]
    pub fn backends(&self) -> Arc<dyn Backends> {
        Arc::clone(&self.vms) as Arc<dyn Backends>
    }

    /// The other nodes of the installation, for an ingress.
    #[must_use]
    pub fn peers(&self) -> Arc<dyn Peers> {
        Arc::clone(&self.peers) as Arc<dyn Peers>
    }

    /// Stops listening and reporting, deals with the VMs, and returns when nothing of the node runs.
    pub async fn stop(self, on_exit: OnExit) {
        self.serving.cancel();
        if let OnExit::Shutdown(limit) = on_exit {
            self.vms.suspend_all(limit).await;
        }
        self.host.stopping.cancel();
        self.host.tasks.close();
        let ended = async {
            self.host.tasks.wait().await;
            self.host.app_images.ended().await;
        };
        if tokio::time::timeout(DRAIN_LIMIT, ended).await.is_err() {
            tracing::warn!("left unfinished work of the node behind; the next start goes on with it");
        }
    }
}

/// The host's GPUs, and those that are none, where that is allowed.
fn open_gpus(config: &Config, platform: Platform) -> Result<Gpus, StartError> {
    let emulated = config.emulated_gpus;
    if emulated > MAX_EMULATED || (emulated > 0 && !is_development(platform)) {
        return Err(StartError::EmulatedGpus);
    }
    Ok(Gpus::new(config.pci_devices.clone(), config.gpu_modes.clone(), emulated))
}

/// The hardware that the node plays, where that is allowed and needed: for guests, or for a process.
fn open_development(
    config: &Config,
    platform: Platform,
    data_dir: &Path,
) -> Result<Option<Arc<DevelopmentPlatform>>, StartError> {
    let (for_guests, for_a_process) = (is_development(platform), config.host_process.is_some());
    if config.production && for_guests {
        return Err(StartError::Production(platform));
    }
    if config.production && for_a_process {
        return Err(StartError::ProductionProcess);
    }
    let is_needed = for_guests || for_a_process;
    let open = || DevelopmentPlatform::open(development::directory(data_dir)).map(Arc::new);
    Ok(is_needed.then(open).transpose()?)
}

/// The machine of the process beside the node, if there is one.
async fn serve_host_process(
    config: &Config,
    platform: Option<&DevelopmentPlatform>,
) -> Result<Option<HostProcessAgent>, StartError> {
    let Some((process, platform)) = config.host_process.as_ref().zip(platform) else { return Ok(None) };
    let served = development::serve_host_process(process, platform).await;
    let failed = |source: HostProcessError| StartError::HostProcess {
        executable: process.executable.clone(),
        source: source.into(),
    };
    served.map(Some).map_err(failed)
}

fn constant_report(config: &Config, host: &Host, address: SocketAddr) -> NodeReport {
    NodeReport {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        region: config.region.clone(),
        endpoint: config.endpoint.clone().unwrap_or_else(|| address.to_string()),
        ingress_url_template: config.ingress_url_template.clone(),
        ingress_domain: config.ingress_domain.clone(),
        platform: host.hypervisor.platform,
        maintenance: config.maintenance,
        capacity: host.budget.capacity(),
        images: Vec::new(),
        vms: Vec::new(),
        gpus: Vec::new(),
        port_range: config.port_range.map(PortRange::bounds),
    }
}

fn data_dir_error(path: &Path) -> impl FnOnce(io::Error) -> StartError + use<> {
    let path = path.to_owned();
    move |source| StartError::DataDir { path, source }
}

/// Makes and locks the node's directories; their names are absolute from here on.
fn open_directories(config: &Config) -> Result<(PathBuf, PathBuf, Lock), StartError> {
    let path = &config.data_dir;
    let open = || {
        files::make_dir(path)?;
        let data_dir = path.canonicalize()?;
        let lock = Lock::take(&data_dir.join("lock"))?;
        let socket_dir = config.socket_dir.clone().unwrap_or_else(|| data_dir.join("run"));
        files::make_dir(&socket_dir)?;
        Ok((data_dir, socket_dir.canonicalize()?, lock))
    };
    let (data_dir, socket_dir, lock) = open().map_err(data_dir_error(path))?;
    if socket_dir.as_os_str().len() > MAX_SOCKET_DIR_BYTES || data_dir.to_str().is_none() {
        return Err(StartError::SocketDir(socket_dir));
    }
    match lock {
        Some(lock) => Ok((data_dir, socket_dir, lock)),
        None => Err(StartError::InUse(data_dir)),
    }
}
