//! The parts of a cloud in this process.

use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use cloister_control_plane::{
    Config as ControlPlaneConfig, ControlPlane, DEFAULT_REQUESTS_PER_MINUTE, DEVELOPMENT_ROOT_FILE,
};
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
use crate::parts::kms::{self, KmsPart, Setup};
use crate::parts::node::{self, Newcomer, NodePart, Way};
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

/// A running control plane with a node and key management services on the same machine.
pub(super) struct Cloud {
    control_plane: ControlPlane,
    node: NodePart,
    kmses: Vec<KmsPart>,
    chain: Option<ChainPart>,
    /// Where the directory of the key management service is.
    pub(super) kms_directory: String,
    http: SocketAddr,
    https: SocketAddr,
}

impl Cloud {
    /// Starts the control plane, then the node, which joins at its first start, then the key management
    /// services, for which the node plays a machine: one with its own rules, and beside it one whose contract
    /// decides, if there is a chain. `log` is what these services log.
    pub(super) async fn start(
        ports: &Ports,
        governance: Option<Governance>,
        domain: Domain,
        home: &Home,
        machine: Machine,
        prices: PriceList,
        log: &str,
    ) -> Result<Self, Failure> {
        let node_dir = home.join("node");
        let control_plane_dir = home.join("control-plane");
        let kms = Setup {
            slug: kms::SLUG,
            governed: None,
            dir: home.join(kms::DIRECTORY),
            listen: ports.kms,
            directory: ports.kms_directory,
            agent_socket: node::kms_agent_socket(&node_dir)?,
            development_root: control_plane_dir.join(DEVELOPMENT_ROOT_FILE),
            pccs_url: format!("http://{}/development-pccs", local(ports.api)),
            log: log.to_owned(),
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
        let mut config = ControlPlaneConfig::embedded(control_plane_dir, ports.api, ports.fleet);
        for setup in &setups {
            setup.prepare()?;
            config.kms.push(setup.config()?);
        }
        config.chains.extend(governance.as_ref().map(|governance| governance.chain.config()));
        // Receivers that are being developed are on this machine.
        config.webhooks.allowed = vec![IpNet::from(LOOPBACK_V4), IpNet::from(LOOPBACK_V6)];
        config.webhooks.plain_http_to_allowed = true;
        config.prices = prices;
        config.requests_per_minute = NonZeroU32::new(DEFAULT_REQUESTS_PER_MINUTE);
        let control_plane = control_plane::start(config).await?;
        let host_process = HostProcess {
            socket: node::kms_agent_socket(&node_dir)?,
            executable: PathBuf::from(kms::PROGRAM),
        };
        let node = match start_node(&control_plane, ports, domain, node_dir, machine, host_process).await {
            Ok(node) => node,
            Err(failure) => {
                control_plane.stop().await;
                return Err(failure);
            }
        };
        let chain = governance.map(|governance| governance.chain);
        let (http, https) = (ports.http, ports.https);
        let mut cloud = Self { control_plane, node, kmses: Vec::new(), chain, kms_directory, http, https };
        for setup in setups {
            match KmsPart::start(setup).await {
                Ok(kms) => cloud.kmses.push(kms),
                Err(failure) => {
                    cloud.stop(STOP_AFTER_FAILURE, std::future::pending()).await;
                    return Err(failure);
                }
            }
        }
        Ok(cloud)
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

    /// Ends everything. The control plane goes first, so that it does not take CVMs that power off for
    /// failed ones; the key management services go last, and then the chain that one of them asks. If `urgent`
    /// comes to an end, what is not done by then is left to the next start.
    /// Tells whether everything was done.
    pub(super) async fn stop(self, patience: Duration, urgent: impl Future<Output = ()>) -> bool {
        let orderly = async {
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
