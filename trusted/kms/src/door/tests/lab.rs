//! A KMS with open doors on loopback, and machines that ask it, with evidence minted for the test.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use cloister_app_compose::{AppId, ComposeHash};
use cloister_development_tee::{
    CollateralOptions, HostProcess, HostProcessAgent, Platform, PlatformKey, Ppid, Vendor, VendorOptions,
};
use cloister_kms_api::admin::{AllowApp, PlatformRules, PolicyDocument};
use cloister_kms_api::log::{Event, Record};
use cloister_kms_api::{Hex, KmsError, KmsErrorCode};
use cloister_ra_tls::{AuthorityConnector, AuthorityPolicy};
use cloister_verifier::{
    Clock, Collateral, CollateralCache, CollateralError, CollateralSources, InProcess, TrustRoot, TrustRoots,
    Verifier,
};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

use crate::clock::Random;
use crate::door::{Doors, Limits, Parts};
use crate::policy::Authority;
use crate::state::{Boundaries, Keys, NewState, Store, make_root};
use cloister_agent_client::Agent;

pub(crate) use super::machine::{Holder, Machine};

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub(crate) fn now() -> Timestamp {
    "2026-11-21T12:34:56Z".parse().unwrap()
}

pub(crate) fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

pub(crate) fn app(number: u8) -> AppId {
    AppId::from_bytes([number; 20])
}

/// What the vendor says otherwise than usual, of this platform too.
pub(crate) type Word = Box<dyn FnOnce(&mut CollateralOptions, Ppid)>;

/// How a KMS is started.
pub(crate) struct Options {
    pub(crate) limits: Limits,
    /// Changes the vendor's word about this platform.
    pub(crate) collateral: Word,
    /// The vendor cannot be asked.
    pub(crate) outage: bool,
    pub(crate) production: bool,
    pub(crate) rules: PlatformRules,
    pub(crate) authority: Authority,
    /// The KMS runs in this machine; without one it is a process of a host.
    pub(crate) machine: Option<Machine>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            collateral: Box::new(|_, _| {}),
            outage: false,
            production: false,
            rules: PlatformRules::default(),
            authority: Authority::BuiltIn,
            machine: None,
        }
    }
}

pub(crate) struct Lab {
    pub(crate) keys: Keys,
    pub(crate) release: SocketAddr,
    pub(crate) directory: SocketAddr,
    pub(crate) platform: Arc<Platform>,
    pub(crate) verifier: Verifier,
    /// The agent of the KMS's own machine.
    pub(crate) own: Agent,
    clock: Arc<Mutex<Timestamp>>,
    doors: Doors,
    _agent: HostProcessAgent,
    dir: TempDir,
}

impl Lab {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let vendor = Vendor::in_memory(VendorOptions::default(), now()).unwrap();
        let key = PlatformKey::generate().unwrap();
        let ppid = *key.ppid();
        let chain = vendor.issue_platform_certificate(key.ppid(), key.public_key(), now()).unwrap();
        let platform = Arc::new(Platform::new(key, &chain).unwrap());
        let clock = Arc::new(Mutex::new(now()));
        let read = Arc::clone(&clock);
        let time = Clock::from_fn(move || *read.lock());

        let dir = tempfile::tempdir().unwrap();
        let executable = dir.path().join("kms");
        std::fs::write(&executable, "the KMS").unwrap();
        let process = Arc::new(HostProcess::measure(&dir.path().join("tee"), &executable).unwrap());
        let socket = dir.path().join("agent/socket");
        let (_, platforms) = watch::channel(Some(Arc::clone(&platform)));
        let agent = HostProcessAgent::serve(&socket, process, platforms).unwrap();
        let own = match &options.machine {
            Some(machine) => machine.serve(dir.path(), &platform),
            None => Agent::new(&socket),
        };

        let mut collateral = CollateralOptions::at(now());
        (options.collateral)(&mut collateral, ppid);
        let collateral = vendor.collateral_with(&collateral).unwrap();
        let collateral: Collateral =
            serde_json::from_value(serde_json::to_value(collateral).unwrap()).unwrap();
        let source = InProcess::new(move |_| {
            let gone = || CollateralError::Unreachable("nobody is there".to_owned());
            if options.outage { Err(gone()) } else { Ok(collateral.clone()) }
        });
        let sources = CollateralSources::new().with(TrustRoot::Development, source);
        let cache = CollateralCache::start(sources, time.clone()).unwrap();
        let roots = TrustRoots::vendors().with_development_root(vendor.root_der()).unwrap();

        let secret = Zeroizing::new([7; 32]);
        let data = dir.path().join("data");
        let store =
            Store::take(&data, secret, options.authority, time.clone(), Boundaries::default()).unwrap();
        let (root, _) = make_root(None, Random::system(), now()).unwrap();
        let origin = Event::Bootstrapped {
            k256_pubkey: root.info.k256_pubkey.clone(),
            domain: "kms.example".to_owned(),
        };
        let state = NewState {
            domain: "kms.example".to_owned(),
            roots: vec![root],
            bootstrap: None,
            policy: PolicyDocument { platform: options.rules, ..PolicyDocument::default() },
            owned: BTreeMap::new(),
            origin,
        };
        let keys = store.create(state, "bootstrap").unwrap();

        let token = dir.path().join("token");
        std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let bind = async || TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (release, directory) = (bind().await, bind().await);
        let addresses = (release.local_addr().unwrap(), directory.local_addr().unwrap());
        let verifier = Verifier::new(roots, cache, time);
        let parts = Parts {
            keys: keys.clone(),
            agent: own.clone(),
            verifier: verifier.clone(),
            production: options.production,
            admin_token_file: Some(&token),
            limits: options.limits,
        };
        let doors = Doors::open(parts, release, directory).await.unwrap();
        let (release, directory) = addresses;
        Self { keys, release, directory, platform, verifier, own, clock, doors, _agent: agent, dir }
    }

    /// A machine beside this KMS, with an agent of its own.
    pub(crate) fn agent_of(&self, machine: &Machine) -> Agent {
        machine.serve(self.dir.path(), &self.platform)
    }

    /// The time that this KMS goes by.
    pub(crate) fn time(&self) -> Clock {
        let read = Arc::clone(&self.clock);
        Clock::from_fn(move || *read.lock())
    }

    /// For what belongs to this KMS's machine.
    pub(crate) fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub(crate) fn set_clock(&self, at: Timestamp) {
        *self.clock.lock() = at;
    }

    /// Lets a machine's application run its document.
    pub(crate) async fn allow(&self, machine: &Machine) {
        let compose_hash = ComposeHash::from_bytes(machine.compose_hash);
        self.keys.allow_app(AllowApp::new(machine.app, compose_hash)).await.unwrap();
    }

    /// Everything in the log, after what was counted is recorded.
    pub(crate) async fn events(&self) -> Vec<Event> {
        self.doors.shared.refusals.flush(std::time::Duration::ZERO).await;
        let records = self.keys.log().records(0, 1000).unwrap();
        records.iter().map(|record| serde_json::from_slice::<Record>(record).unwrap().event).collect()
    }

    /// Closes the doors.
    pub(crate) async fn close(self) {
        self.doors.close().await;
    }

    /// A connection with this certificate, or none.
    pub(crate) async fn connect(&self, holder: Option<&Holder>) -> Client {
        Client::connect(self.release, holder).await
    }

    /// A connection of a machine that is booting.
    pub(crate) async fn machine(&self, machine: &Machine) -> Client {
        self.connect(Some(&machine.holder(&self.platform))).await
    }
}

/// A connection.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    /// The root that the server showed.
    pub(crate) root_public_key: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Told {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Its code, which must go with its status.
    pub(crate) fn code(&self) -> KmsErrorCode {
        let error: KmsError = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(error.code.http_status(), self.status.as_u16());
        error.code
    }

    pub(crate) fn reason(&self) -> String {
        serde_json::from_slice::<KmsError>(&self.body).unwrap().error
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, holder: Option<&Holder>) -> Self {
        let (stream, root_public_key) = shake(address, holder).await;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender, root_public_key }
    }

    /// Everything that is answered to these bytes until the other side ends the connection.
    pub(crate) async fn raw(address: SocketAddr, sent: &str) -> String {
        let (mut stream, _) = shake(address, None).await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut told = Vec::new();
        let _ = stream.read_to_end(&mut told).await;
        String::from_utf8(told).unwrap()
    }

    pub(crate) async fn try_send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Told> {
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        Ok(Told { status: head.status, body: body.collect().await?.to_bytes() })
    }

    /// Waits until the other side has ended the connection.
    pub(crate) async fn ended(&mut self) {
        while self.sender.ready().await.is_ok() {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Told {
        let request = Request::get(path).header("host", "kms").body(Full::default()).unwrap();
        self.try_send(request).await.unwrap()
    }

    pub(crate) async fn post(&mut self, path: &str, body: &impl Serialize) -> Told {
        self.try_send(post(path, body)).await.unwrap()
    }

    /// As the administrator.
    pub(crate) async fn admin(&mut self, path: &str, body: &impl Serialize) -> Told {
        let mut request = post(path, body);
        request.headers_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
        self.try_send(request).await.unwrap()
    }

    /// `getKey(name)`.
    pub(crate) async fn key(&mut self, name: &str, vm_config: &str) -> Told {
        self.post(cloister_kms_api::method::KEY, &json!({"name": name, "vm_config": vm_config})).await
    }

    pub(crate) async fn app_key(&mut self, vm_config: &str) -> Told {
        self.post(cloister_kms_api::method::APP_KEY, &json!({"vm_config": vm_config})).await
    }
}

/// A TLS stream, and the root that the server showed.
async fn shake(address: SocketAddr, holder: Option<&Holder>) -> (TlsStream<TcpStream>, Vec<u8>) {
    let own = holder.map(|holder| (&holder.key, &holder.certificate));
    let connector = AuthorityConnector::new(AuthorityPolicy::kms(None), own, &[], now).unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("kms.example").unwrap();
    let (stream, authority) = connector.connect(name, stream).await.unwrap();
    (stream, authority.root_public_key().to_vec())
}

pub(crate) fn post(path: &str, body: &impl Serialize) -> Request<Full<Bytes>> {
    let body = Full::new(serde_json::to_vec(body).unwrap().into());
    Request::post(format!("{path}?json")).header("host", "kms").body(body).unwrap()
}

pub(crate) fn hex_of(value: &Value) -> Hex {
    serde_json::from_value(value.clone()).unwrap()
}
