//! The parts of a cloud in this process.

use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use cloister_control_plane::{
    Config as ControlPlaneConfig, ControlPlane, DEFAULT_REQUESTS_PER_MINUTE, DEVELOPMENT_ROOT_FILE,
};
use cloister_echo_upstream::{EchoUpstream, Manner};
use cloister_fleet_tls::Credentials;
use cloister_metering::PriceList;
use cloister_node::ingress::{Domain, server_config, wildcard_names};
use cloister_node::{Config as NodeConfig, HostProcess, OnExit};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::Url;

use super::ports::{ContractPorts, Ports};
use crate::failure::Failure;
use crate::parts::control_plane::{self, Access};
use crate::parts::development_chain::{self, ChainPart};
use crate::parts::inference::{self, Own};
use crate::parts::kms::{self, Setup};
use crate::parts::node::{self, Newcomer, NodePart, Way};
use crate::parts::service::{PROGRAM, Supervised};
use crate::parts::{Home, HostOptions, local};

/// Name of the only node.
const NODE_NAME: &str = "local";
const LOOPBACK_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
const LOOPBACK_V6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128);
/// How long CVMs of an earlier start get when this start fails.
const STOP_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// What CVMs get of this machine.
pub(super) struct Machine {
    /// Where its guest images are.
    pub(super) guest_images: PathBuf,
    pub(super) options: HostOptions,
}

/// A development chain, and where the KMS that its contract decides for listens.
pub(super) struct Governance {
    pub(super) chain: ChainPart,
    pub(super) ports: ContractPorts,
}

/// What is started.
pub(super) struct Plan {
    pub(super) governance: Option<Governance>,
    /// The inference gateway's own configuration.
    pub(super) gateway: Option<Own>,
    pub(super) domain: Domain,
    pub(super) machine: Machine,
    pub(super) prices: PriceList,
    /// What the services beside this process log.
    pub(super) log: String,
}

/// A running control plane with a node, key management services and an inference gateway on the same machine.
pub(super) struct Cloud {
    control_plane: ControlPlane,
    node: NodePart,
    kmses: Vec<Supervised>,
    gateway: Option<Supervised>,
    echo: Option<EchoUpstream>,
    chain: Option<ChainPart>,
    /// Where the directory of the key management service is.
    pub(super) kms_directory: String,
    /// Where the inference gateway is.
    pub(super) inference: inference::Place,
    http: SocketAddr,
    https: SocketAddr,
}

impl Cloud {
    /// Starts the control plane, then the node, which joins at its first start, then, beside each other, the services for
    /// which the node plays a machine: the inference gateway, a key management service with its own rules, and one whose
    /// contract decides, if there is a chain.
    pub(super) async fn start(ports: &Ports, home: &Home, plan: Plan) -> Result<Self, Failure> {
        let Plan { governance, gateway, domain, machine, prices, log } = plan;
        let node_dir = home.join("node");
        let agent_socket = node::agent_socket(&node_dir)?;
        let control_plane_dir = home.join("control-plane");
        let kms = Setup {
            slug: kms::SLUG,
            governed: None,
            dir: home.join(kms::DIRECTORY),
            listen: ports.kms,
            directory: ports.kms_directory,
            agent_socket: agent_socket.clone(),
            development_root: control_plane_dir.join(DEVELOPMENT_ROOT_FILE),
            pccs_url: format!("http://{}/development-pccs", local(ports.api)),
            log: log.clone(),
        };
        let governed = governance.as_ref().map(|Governance { chain, ports }| Setup {
            slug: development_chain::SLUG,
            governed: Some(chain.governed()),
            dir: home.join(development_chain::DIRECTORY).join(kms::DIRECTORY),
            listen: ports.kms,
            directory: ports.directory,
            ..kms.clone()
        });
        let kms_directory = kms.directory_url();
        let setups: Vec<Setup> = [Some(kms), governed].into_iter().flatten().collect();
        let addresses = [ports.inference, ports.echo, ports.api];
        let gateway = inference::Setup::new(home.path(), gateway, addresses, agent_socket.clone(), log);
        gateway.prepare()?;
        let mut config = ControlPlaneConfig::embedded(control_plane_dir, ports.api, ports.fleet);
        for setup in &setups {
            setup.prepare()?;
            config.kms.push(setup.config()?);
        }
        config.inference = Some(gateway.config());
        config.chains.extend(governance.as_ref().map(|governance| governance.chain.config()));
        // Receivers that are being developed are on this machine.
        config.webhooks.allowed = vec![IpNet::from(LOOPBACK_V4), IpNet::from(LOOPBACK_V6)];
        config.webhooks.plain_http_to_allowed = true;
        config.prices = prices;
        config.requests_per_minute = NonZeroU32::new(DEFAULT_REQUESTS_PER_MINUTE);
        let control_plane = control_plane::start(config).await?;
        let host_process = HostProcess { socket: agent_socket, executable: PathBuf::from(PROGRAM) };
        let node = match start_node(&control_plane, ports, domain, node_dir, machine, host_process).await {
            Ok(node) => node,
            Err(failure) => {
                control_plane.stop().await;
                return Err(failure);
            }
        };
        let mut cloud = Self {
            control_plane,
            node,
            kmses: Vec::new(),
            gateway: None,
            echo: None,
            chain: governance.map(|governance| governance.chain),
            kms_directory,
            inference: gateway.place(),
            http: ports.http,
            https: ports.https,
        };
        if let Err(failure) = cloud.start_services(setups, gateway).await {
            cloud.stop(STOP_AFTER_FAILURE, std::future::pending()).await;
            return Err(failure);
        }
        Ok(cloud)
    }

    async fn start_services(&mut self, kmses: Vec<Setup>, gateway: inference::Setup) -> Result<(), Failure> {
        let echo = EchoUpstream::start(gateway.echo, Manner::default()).await;
        let failed = |error| Failure::local(format!("cannot listen at {}", gateway.echo), error);
        self.echo = Some(echo.map_err(failed)?);
        self.kmses.extend(kmses.into_iter().map(Supervised::start));
        self.gateway = Some(Supervised::start(gateway));
        for service in self.kmses.iter_mut().chain(&mut self.gateway) {
            service.up().await?;
        }
        Ok(())
    }

    /// The development chain, if there is one.
    pub(super) const fn chain(&self) -> Option<&ChainPart> {
        self.chain.as_ref()
    }

    /// How commands on this machine reach it.
    pub(super) async fn access(&self, home: &Home) -> Result<Access, Failure> {
        control_plane::access(&self.control_plane, home).await
    }

    /// Port of the ingress for TLS.
    pub(super) const fn https_port(&self) -> u16 {
        self.https.port()
    }

    /// Where this machine reaches the ingress for a URL.
    pub(super) fn ingress_address(&self, url: &Url) -> SocketAddr {
        local(if url.scheme() == "https" { self.https } else { self.http })
    }

    /// Ends everything. The inference gateway goes first, while there is somebody to tell what was used; the control
    /// plane goes before the node, so that it does not take CVMs that power off for failed ones; the key management
    /// services go last, and then the chain that one of them asks. If `urgent` comes to an end, what is not done by then
    /// is left to the next start. Tells whether everything was done.
    pub(super) async fn stop(self, patience: Duration, urgent: impl Future<Output = ()>) -> bool {
        let orderly = async {
            if let Some(gateway) = self.gateway {
                gateway.stop().await;
            }
            if let Some(echo) = self.echo {
                echo.stop().await;
            }
            self.control_plane.stop().await;
            self.node.stop(OnExit::Shutdown(patience)).await;
            for kms in self.kmses {
                kms.stop().await;
            }
            if let Some(chain) = self.chain {
                chain.stop().await;
            }
        };
        tokio::select! {
            () = orderly => true,
            () = urgent => false,
        }
    }
}

async fn start_node(
    control_plane: &ControlPlane,
    ports: &Ports,
    domain: Domain,
    dir: PathBuf,
    machine: Machine,
    host_process: HostProcess,
) -> Result<NodePart, Failure> {
    let fleet = local(control_plane.node_address()).to_string();
    let credentials = match node::credentials(&dir)? {
        Some(credentials) => credentials,
        None => join(control_plane, ports, &fleet, &dir).await?,
    };
    let failed = |error| Failure::local("cannot make a certificate for the ingress", error);
    let certificate = control_plane.issue_ingress_certificate(&wildcard_names(&domain)).map_err(failed)?;
    let tls = server_config(&certificate).map_err(failed)?;
    let way = Way { http: ports.http, https: Some((ports.https, tls)), domain };
    let mut config = NodeConfig::new(dir, machine.guest_images, credentials, fleet);
    config.port_address = Ipv4Addr::LOCALHOST;
    machine.options.apply(&mut config);
    config.listen = ports.node;
    config.host_process = Some(host_process);
    // No client knows this installation's authority yet, so links are plain HTTP.
    config.ingress_url_template = way.url_template(false);
    NodePart::start(config, way).await
}

async fn join(
    control_plane: &ControlPlane,
    ports: &Ports,
    fleet: &str,
    dir: &std::path::Path,
) -> Result<Credentials, Failure> {
    let token = control_plane
        .invite_node()
        .await
        .map_err(|error| Failure::local("the control plane cannot invite the node", error))?;
    let reached_at = vec![ports.node.ip().to_string()];
    node::join(Newcomer { control_plane: fleet, name: NODE_NAME, reached_at, dir }, &token).await
}
