//! The other nodes of the installation, as far as the ingress needs them: where the rest of an app runs,
//! and a way there.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cloister_fleet_tls::{Credentials, FleetTlsError, Identity, client_config_for, peer_identity};
use cloister_node_api::{Routes, VmRoute, paths};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::control_plane::{CallError, ControlPlaneClient};

/// `Upgrade` of the request that opens a tunnel.
const TUNNEL_PROTOCOL: HeaderValue = HeaderValue::from_static("tcp");
/// Nodes whose TLS configuration is kept with its sessions.
const MAX_CONFIGURATIONS: usize = 256;

/// Bytes to and from a guest's port on another node.
pub type Tunnel = TokioIo<Upgraded>;

/// The other nodes.
pub trait Peers: Send + Sync + 'static {
    /// Where the VMs for an identifier of a host name run on other nodes. One of this node may be among
    /// them, as not ready, which tells that it exists.
    fn routes(&self, id: &str) -> BoxFuture<'static, Result<Vec<VmRoute>, CallError>>;

    /// Opens a connection to a TCP port of a guest there. Fails with [`io::ErrorKind::NotFound`] when
    /// nothing new may begin with the VM, and with [`io::ErrorKind::QuotaExceeded`] when its node, or the
    /// VM, takes no more.
    fn connect(&self, route: &VmRoute, port: u16) -> BoxFuture<'static, io::Result<Tunnel>>;
}

/// An installation of one node.
#[derive(Debug, Clone, Copy)]
pub struct NoPeers;

impl Peers for NoPeers {
    fn routes(&self, _: &str) -> BoxFuture<'static, Result<Vec<VmRoute>, CallError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn connect(&self, _: &VmRoute, _: u16) -> BoxFuture<'static, io::Result<Tunnel>> {
        std::future::ready(Err(io::ErrorKind::NotFound.into())).boxed()
    }
}

/// The nodes that the control plane knows, reached over mutual TLS with this node's certificate.
pub(crate) struct Fleet {
    control_plane: ControlPlaneClient,
    credentials: Credentials,
    own_name: Option<String>,
    /// By node. A configuration keeps the sessions of its node, so that later tunnels open faster.
    configurations: Mutex<HashMap<String, Arc<ClientConfig>>>,
}

impl Fleet {
    /// Fails when the credentials hold no certificate.
    pub(crate) fn new(
        control_plane: ControlPlaneClient,
        credentials: Credentials,
    ) -> Result<Self, FleetTlsError> {
        let certificate = CertificateDer::from_pem_slice(credentials.certificate.as_bytes())
            .map_err(|_| FleetTlsError::MissingPem("certificate"))?;
        let own_name = match peer_identity(Some(&[certificate])) {
            Some(Identity::Node(name)) => Some(name),
            _ => None,
        };
        Ok(Self { control_plane, credentials, own_name, configurations: Mutex::default() })
    }

    fn tls_to(&self, node: &str) -> io::Result<TlsConnector> {
        let mut known = self.configurations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(configuration) = known.get(node) {
            return Ok(Arc::clone(configuration).into());
        }
        let peer = Identity::Node(node.to_owned());
        let configuration = Arc::new(client_config_for(&self.credentials, peer).map_err(io::Error::other)?);
        if known.len() >= MAX_CONFIGURATIONS {
            known.clear();
        }
        known.insert(node.to_owned(), Arc::clone(&configuration));
        Ok(configuration.into())
    }
}

impl Peers for Fleet {
    fn routes(&self, id: &str) -> BoxFuture<'static, Result<Vec<VmRoute>, CallError>> {
        let (control_plane, own_name) = (self.control_plane.clone(), self.own_name.clone());
        let path = format!("{}/{id}", paths::ROUTES);
        async move {
            let mut routes: Routes = control_plane.get(&path).await?;
            for route in &mut routes.vms {
                // This node knows better, and leads no tunnel to itself.
                route.ready &= Some(&route.node) != own_name.as_ref();
            }
            Ok(routes.vms)
        }
        .boxed()
    }

    fn connect(&self, route: &VmRoute, port: u16) -> BoxFuture<'static, io::Result<Tunnel>> {
        let (tls, route) = (self.tls_to(&route.node), route.clone());
        async move { open_tunnel(tls?, &route, port).await }.boxed()
    }
}

async fn open_tunnel(tls: TlsConnector, route: &VmRoute, port: u16) -> io::Result<Tunnel> {
    let stream = TcpStream::connect(&route.endpoint).await?;
    stream.set_nodelay(true)?;
    let stream = tls.connect(server_name(&route.endpoint)?, stream).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends with the answer, or hands the connection over to the tunnel.
    tokio::spawn(connection.with_upgrades());
    let request = Request::get(format!("{}/{}/ports/{port}", paths::VMS, route.vm_uuid))
        .header(HOST, &route.endpoint)
        .header(CONNECTION, HeaderValue::from_static("upgrade"))
        .header(UPGRADE, TUNNEL_PROTOCOL)
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            hyper::upgrade::on(response).await.map(TokioIo::new).map_err(io::Error::other)
        }
        StatusCode::NOT_FOUND | StatusCode::CONFLICT => Err(io::ErrorKind::NotFound.into()),
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE => {
            Err(io::ErrorKind::QuotaExceeded.into())
        }
        status => Err(io::Error::other(format!("the node answered {status}"))),
    }
}

/// The name that the node's certificate must be for.
fn server_name(endpoint: &str) -> io::Result<ServerName<'static>> {
    let (host, _) = endpoint.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    ServerName::try_from(host).map_err(|_| io::ErrorKind::InvalidInput.into())
}
