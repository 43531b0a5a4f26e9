use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cloister_fleet_tls::Authority;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use uuid::Uuid;

use crate::ingress::{Domain, Ingress, IngressConfig, Limits, server_config, wildcard_names};
use crate::{Backend, Backends, Flow, Flows, NoPeers, Peers, Readiness};

pub(super) const APP_A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
pub(super) const APP_B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
pub(super) const VM_A: Uuid = Uuid::from_u128(0xa);
pub(super) const VM_B: Uuid = Uuid::from_u128(0xb);

/// More VMs of app A, for [`Apps::replica`].
pub(super) const VM_A2: Uuid = Uuid::from_u128(0xa2);
pub(super) const VM_A3: Uuid = Uuid::from_u128(0xa3);

/// A port upon whose use the VM is found to be gone.
pub(super) const GONE: u16 = 7;
/// A port beyond the number that a VM may have in use.
pub(super) const ONE_TOO_MANY: u16 = 8;

/// Longest wait of a test for anything.
const PATIENCE: Duration = Duration::from_mins(2);

/// Fails a test that would hang.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it happens soon")
}

/// VMs whose ports are loopback listeners: one of each app, unless there are replicas.
pub(super) struct Apps {
    ports: Mutex<HashMap<(Uuid, u16), SocketAddr>>,
    vms: Mutex<Vec<(&'static str, Backend)>>,
    flows: Mutex<HashMap<Uuid, Flows>>,
    /// Every port for which a connection was asked for.
    pub(super) connections: Mutex<Vec<(Uuid, u16)>>,
}

impl Default for Apps {
    fn default() -> Self {
        let vms = [(APP_A, VM_A), (APP_B, VM_B)];
        let apps = Self::none();
        vms.into_iter().fold(apps, |apps, (app, vm)| apps.replica(app, vm))
    }
}

impl Apps {
    pub(super) fn none() -> Self {
        Self {
            ports: Mutex::default(),
            vms: Mutex::default(),
            flows: Mutex::default(),
            connections: Mutex::default(),
        }
    }

    pub(super) fn with(self, vm: Uuid, port: u16, address: SocketAddr) -> Self {
        self.serve(vm, port, address);
        self
    }

    pub(super) fn serve(&self, vm: Uuid, port: u16, address: SocketAddr) {
        self.ports.lock().unwrap().insert((vm, port), address);
    }

    pub(super) fn replica(mut self, app: &'static str, vm: Uuid) -> Self {
        let backend = Backend { vm, readiness: Readiness::Ready, is_claim: false };
        self.vms.get_mut().unwrap().push((app, backend));
        self
    }

    /// A VM whose guest says that an identifier is its own.
    pub(super) fn claim(mut self, id: &'static str, vm: Uuid) -> Self {
        let backend = Backend { vm, readiness: Readiness::Ready, is_claim: true };
        self.vms.get_mut().unwrap().push((id, backend));
        self
    }

    pub(super) fn set(&self, vm: Uuid, readiness: Readiness) {
        for (_, backend) in self.vms.lock().unwrap().iter_mut().filter(|(_, backend)| backend.vm == vm) {
            backend.readiness = readiness;
        }
    }

    pub(super) fn flows(&self, vm: Uuid) -> Flows {
        self.flows.lock().unwrap().entry(vm).or_default().clone()
    }
}

impl Backends for Apps {
    fn resolve(&self, id: &str) -> Vec<Backend> {
        let vms = self.vms.lock().unwrap();
        vms.iter().filter(|(app, _)| *app == id).map(|(_, backend)| *backend).collect()
    }

    fn begin(&self, vm: Uuid) -> Option<Flow> {
        let flow = self.flows(vm).begin();
        let is_ready = |backend: &Backend| backend.vm == vm && backend.readiness == Readiness::Ready;
        self.vms.lock().unwrap().iter().any(|(_, backend)| is_ready(backend)).then_some(flow)
    }

    fn connect(&self, vm: Uuid, port: u16) -> BoxFuture<'_, io::Result<TcpStream>> {
        self.connections.lock().unwrap().push((vm, port));
        let address = self.ports.lock().unwrap().get(&(vm, port)).copied();
        Box::pin(async move {
            match address {
                Some(address) => TcpStream::connect(address).await,
                None if port == GONE => Err(io::ErrorKind::NotFound.into()),
                None if port == ONE_TOO_MANY => Err(io::ErrorKind::QuotaExceeded.into()),
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

/// An HTTP/1.1 and HTTP/2 app that answers with its name and what it saw: version, method, path, headers,
/// body.
pub(super) async fn echo_app(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(move |request| echo(name, request));
            tokio::spawn(async move {
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}

async fn echo(name: &'static str, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let mut seen = format!("app {name}\n{:?} {} {}\n", head.version, head.method, head.uri);
    for (field, value) in &head.headers {
        seen += &format!("{field}: {}\n", value.to_str().unwrap());
    }
    seen += &format!("\nbody {}", String::from_utf8_lossy(&body.collect().await.unwrap().to_bytes()));
    Ok(Response::new(Full::from(seen)))
}

/// An app that hands every connection to `serve`.
pub(super) async fn raw_app<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// An ingress for `apps.localhost` on free ports, and a client configuration that trusts it.
pub(super) async fn ingress(apps: impl Into<Arc<Apps>>, limits: Limits) -> (Ingress, ClientConfig) {
    ingress_among(apps, Arc::new(NoPeers), limits).await
}

/// The same on a node that is not alone.
pub(super) async fn ingress_among(
    apps: impl Into<Arc<Apps>>,
    peers: Arc<dyn Peers>,
    limits: Limits,
) -> (Ingress, ClientConfig) {
    let domain: Domain = crate::ingress::DEFAULT_DOMAIN.parse().unwrap();
    let (credentials, authority) = issue(&wildcard_names(&domain));
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let https = Some((loopback, server_config(&credentials).unwrap()));
    let config = IngressConfig { http_listen: loopback, https, domain, limits };
    (Ingress::start(config, apps.into(), peers).await.unwrap(), trusting(authority))
}

/// A server certificate for names, and the authority that signed it.
pub(super) fn issue(names: &[String]) -> (cloister_fleet_tls::Credentials, CertificateDer<'static>) {
    let dir = tempfile::tempdir().unwrap();
    let now = "2026-11-21T00:00:00Z".parse().unwrap();
    let authority = Authority::load_or_create(dir.path(), now).unwrap();
    (authority.issue_server(names, now).unwrap(), authority.certificate_der().clone())
}

pub(super) fn trusting(authority: CertificateDer<'static>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority).unwrap();
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

pub(super) async fn tls(
    address: SocketAddr,
    config: ClientConfig,
    name: &str,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    soon(TlsConnector::from(Arc::new(config)).connect(name.to_owned().try_into().unwrap(), stream)).await
}

/// Sends raw bytes on a fresh connection and reads until the other side closes.
pub(super) async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    exchange_on(TcpStream::connect(address).await.unwrap(), bytes).await
}

pub(super) async fn exchange_on(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> String {
    let mut answer = Vec::new();
    stream.write_all(bytes).await.unwrap();
    // A peer that closes without reading everything resets the connection; what came before counts.
    let _ = soon(stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads one response with a `content-length`, leaving the connection usable.
pub(super) async fn read_response(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        answer.push(char::from(soon(stream.read_u8()).await.unwrap()));
    }
    let length = answer.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    let mut body = vec![0; length.parse().unwrap()];
    soon(stream.read_exact(&mut body)).await.unwrap();
    answer + &String::from_utf8(body).unwrap()
}

/// A request without a body whose connection ends with it.
pub(super) fn get(host: &str) -> Vec<u8> {
    format!("GET /path?q=1 HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").into_bytes()
}

/// An app that switches to the protocol `websocket`, greets, and then echoes bytes.
pub(super) async fn websocket_like() -> SocketAddr {
    raw_app(|mut stream| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        assert!(
            head.contains("\r\nupgrade: websocket\r\n") && head.contains("\r\nconnection: upgrade\r\n"),
            "{head}"
        );
        let switch =
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\nhi";
        stream.write_all(switch).await.unwrap();
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await
}

/// A request for that protocol.
pub(super) fn switch(host: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\r\n")
        .into_bytes()
}

/// Checks that the switched connection greets and echoes, then ends.
pub(super) async fn check_switched(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let head = read_response(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 101") && head.contains("upgrade: websocket"), "{head}");
    let mut echoed = [0; 9];
    stream.write_all(b"\x00raw\xff..").await.unwrap();
    stream.flush().await.unwrap();
    soon(stream.read_exact(&mut echoed)).await.unwrap();
    assert_eq!(&echoed, b"hi\x00raw\xff..");
    stream.shutdown().await.unwrap();
    assert_eq!(soon(stream.read_to_end(&mut Vec::new())).await.unwrap(), 0);
}
