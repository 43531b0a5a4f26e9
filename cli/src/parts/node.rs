//! A node with its ingress.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cloister_fleet_tls::{Credentials, JoinToken};
use cloister_node::ingress::{Domain, Ingress, IngressConfig, Limits};
use cloister_node::{Config, Node, OnExit, enrol};
use rustls::ServerConfig;

use super::sockets;
use crate::failure::Failure;

/// Name of the node's certificate and key in its directory.
const CREDENTIALS: &str = "node";
/// Longest time that requests under way get when the ingress stops.
const INGRESS_GRACE: Duration = Duration::from_secs(5);

/// The way from the network to the applications.
pub(crate) struct Way {
    /// Plain HTTP.
    pub(crate) http: SocketAddr,
    /// HTTPS, with the certificate for it.
    pub(crate) https: Option<(SocketAddr, Arc<ServerConfig>)>,
    /// Domain of the applications.
    pub(crate) domain: Domain,
}

impl Way {
    /// URLs of the applications with `{host}` for their name: HTTPS where it is served with a certificate
    /// that browsers know, plain HTTP otherwise.
    pub(crate) fn url_template(&self, https: bool) -> String {
        let (scheme, address, usual) = match (https, &self.https) {
            (true, Some((address, _))) => ("https", *address, 443),
            _ => ("http", self.http, 80),
        };
        let port = if address.port() == usual { String::new() } else { format!(":{}", address.port()) };
        format!("{scheme}://{{host}}.{}{port}", self.domain)
    }
}

/// A running node.
pub(crate) struct NodePart {
    node: Node,
    ingress: Ingress,
}

impl NodePart {
    /// Starts the node, then its ingress.
    pub(crate) async fn start(mut config: Config, way: Way) -> Result<Self, Failure> {
        config.socket_dir = sockets::directory(&config.data_dir)?;
        config.ingress_domain = way.domain.to_string();
        config.relay_command = relay_command()?;
        let node =
            Node::start(config).await.map_err(|error| Failure::local("the node did not start", error))?;
        let http = way.http;
        let ingress = IngressConfig {
            http_listen: way.http,
            https: way.https,
            domain: way.domain,
            limits: Limits::default(),
        };
        let ingress = Ingress::start(ingress, node.backends(), node.peers())
            .await
            .map_err(|error| Failure::local(format!("the ingress cannot listen on {http}"), error))?;
        Ok(Self { node, ingress })
    }

    /// Closes the ingress, then the node. CVMs that were told to power off start again with the node.
    pub(crate) async fn stop(self, on_exit: OnExit) {
        self.ingress.stop(INGRESS_GRACE).await;
        self.node.stop(on_exit).await;
    }
}

/// Where a node in `dir` answers the services beside it, as their guest agent. They are processes of one program, so
/// their machine is one, too.
pub(crate) fn agent_socket(dir: &Path) -> Result<PathBuf, Failure> {
    let sockets = sockets::directory(dir)?.unwrap_or_else(|| dir.join("run"));
    Ok(sockets.join("services.sock"))
}

/// This program, as QEMU starts it for connections of guests.
fn relay_command() -> Result<Vec<String>, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::local("cannot find this program's own file", error))?
        .into_os_string()
        .into_string()
        .map_err(|path| Failure::usage(format!("the program's path {} is not UTF-8", path.display())))?;
    Ok(vec![program, "relay".to_owned()])
}

/// The node's certificate of an earlier start.
pub(crate) fn credentials(dir: &Path) -> Result<Option<Credentials>, Failure> {
    Credentials::load(dir, CREDENTIALS)
        .map_err(|error| Failure::local("the node's certificate is unusable", error))
}

/// What a new node says about itself.
pub(crate) struct Newcomer<'a> {
    /// `host:port` of the control plane.
    pub(crate) control_plane: &'a str,
    /// Name, unique in the installation.
    pub(crate) name: &'a str,
    /// Host or address under which the control plane will reach it.
    pub(crate) reached_at: Vec<String>,
    /// Where its certificate is kept.
    pub(crate) dir: &'a Path,
}

/// Joins the installation that issued the token.
pub(crate) async fn join(newcomer: Newcomer<'_>, token: &JoinToken) -> Result<Credentials, Failure> {
    let failed = |error| Failure::local("the node could not join", error);
    let credentials =
        enrol(newcomer.control_plane, token, newcomer.name, newcomer.reached_at).await.map_err(failed)?;
    std::fs::create_dir_all(newcomer.dir)
        .map_err(|error| Failure::local(format!("cannot make {}", newcomer.dir.display()), error))?;
    credentials
        .save(newcomer.dir, CREDENTIALS)
        .map_err(|error| Failure::local("cannot keep the node's certificate", error))?;
    Ok(credentials)
}

/// Where guest images are if nobody says otherwise.
pub(crate) fn default_guest_images(data_dir: &Path) -> PathBuf {
    data_dir.join("guest-images")
}
