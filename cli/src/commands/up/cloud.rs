//! The parts of a cloud in this process.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use cloister_control_plane::{Config as ControlPlaneConfig, ControlPlane, DEVELOPMENT_ROOT_FILE};
use cloister_fleet_tls::Credentials;
use cloister_node::ingress::{Domain, server_config, wildcard_names};
use cloister_node::{Config as NodeConfig, HostProcess, OnExit};
use url::Url;

use super::ports::Ports;
use crate::failure::Failure;
use crate::parts::control_plane::{self, Access};
use crate::parts::kms::{self, KmsPart, Setup};
use crate::parts::node::{self, Newcomer, NodePart, Way};
use crate::parts::{Home, HostOptions, local};

/// Name of the only node.
const NODE_NAME: &str = "local";
/// How long CVMs of an earlier start get when this start fails.
const STOP_AFTER_FAILURE: Duration = Duration::from_secs(10);

/// What CVMs get of this machine.
pub(super) struct Machine {
    /// Where its guest images are.
    pub(super) guest_images: PathBuf,
    pub(super) options: HostOptions,
}

/// A running control plane with a node and a key management service on the same machine.
pub(super) struct Cloud {
    control_plane: ControlPlane,
    node: NodePart,
    kms: KmsPart,
    /// Where the directory of the key management service is.
    pub(super) kms_directory: String,
    http: SocketAddr,
    https: SocketAddr,
}

impl Cloud {
    /// Starts the control plane, then the node, which joins at its first start, then the key management
    /// service, for which the node plays a machine. `log` is what that service logs.
    pub(super) async fn start(
        ports: &Ports,
        domain: Domain,
        home: &Home,
        machine: Machine,
        log: &str,
    ) -> Result<Self, Failure> {
        let node_dir = home.join("node");
        let control_plane_dir = home.join("control-plane");
        let kms = Setup {
            dir: home.join(kms::DIRECTORY),
            listen: ports.kms,
            directory: ports.kms_directory,
            agent_socket: node::kms_agent_socket(&node_dir)?,
            development_root: control_plane_dir.join(DEVELOPMENT_ROOT_FILE),
            pccs_url: format!("http://{}/development-pccs", local(ports.api)),
            log: log.to_owned(),
        };
        kms.prepare()?;
        let mut config = ControlPlaneConfig::embedded(control_plane_dir, ports.api, ports.fleet);
        config.kms = vec![kms.config()?];
        let control_plane = control_plane::start(config).await?;
        let host_process =
            HostProcess { socket: kms.agent_socket.clone(), executable: PathBuf::from(kms::PROGRAM) };
        let node = match start_node(&control_plane, ports, domain, node_dir, machine, host_process).await {
            Ok(node) => node,
            Err(failure) => {
                control_plane.stop().await;
                return Err(failure);
            }
        };
        let kms_directory = kms.directory_url();
        match KmsPart::start(kms).await {
            Ok(kms) => {
                Ok(Self { control_plane, node, kms, kms_directory, http: ports.http, https: ports.https })
            }
            Err(failure) => {
                control_plane.stop().await;
                node.stop(OnExit::Shutdown(STOP_AFTER_FAILURE)).await;
                Err(failure)
            }
        }
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
    /// failed ones; the key management service goes last. If `urgent` comes to an end, what is not done by then is left to the next start.
    /// Tells whether everything was done.
    pub(super) async fn stop(self, patience: Duration, urgent: impl Future<Output = ()>) -> bool {
        let orderly = async {
            self.control_plane.stop().await;
            self.node.stop(OnExit::Shutdown(patience)).await;
            self.kms.stop().await;
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
