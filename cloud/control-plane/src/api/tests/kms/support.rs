//! An installation with a real key management service: the service itself, within the test's process, on a
//! machine that the tests' development platform plays.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use cloister_app_compose::AppId;
use cloister_chain::{Address, ChainConfig};
use cloister_development_tee::{HostProcess, HostProcessAgent};
use cloister_kms::{Authorization, Kms};
use cloister_kms_api::admin::{GET_POLICY, PolicyDocument, START_ROTATION};
use cloister_kms_api::statements::K256Public;
use cloister_kms_api::{BootstrapRequest, BootstrapResponse, method};
use cloister_ra_tls::{AuthorityPolicy, authority_client_config, public_key_of_pem};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use url::Url;

use super::super::Installation;
use crate::App;
use crate::clock::{Clock, Random};
use crate::governance::Contracts;
use crate::governance::testing::{CHAIN, KMS_CONTRACT};
use crate::kms::{KmsConfig, KmsContract, Kmses};
use crate::operations::tests::fake_nodes::FakeNodes;
use crate::operations::{CvmStatus, Engine, EngineOptions, Lifecycle};
use crate::store::CvmRow;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The installation, its service, and workers with a node in memory.
pub(in crate::api::tests) struct Cloud {
    pub(in crate::api::tests) installation: Installation,
    pub(super) nodes: Arc<FakeNodes>,
    engine: Engine<FakeNodes>,
    kms: Option<Kms>,
    pub(super) config: KmsConfig,
    /// Key of the root, as the bootstrap told it.
    pub(super) root: K256Public,
    _agent: HostProcessAgent,
    _dir: TempDir,
}

impl Cloud {
    pub(in crate::api::tests) async fn new() -> Self {
        Self::on(Installation::with_clock(Clock::system()).await).await
    }

    pub(super) async fn on(installation: Installation) -> Self {
        Self::deciding(installation, None, Authorization::BuiltIn).await
    }

    /// The same with a service that asks a contract, which the installation is configured with or without.
    pub(super) async fn under_contract(configured: Option<KmsContract>) -> Self {
        // Nobody listens there: the service names its contract all the same.
        let chain = ChainConfig::development(CHAIN, "http://127.0.0.1:9".parse().unwrap());
        let kms_contract = Address::from(KMS_CONTRACT.address);
        let authorization = Authorization::Chain { chain, kms_contract };
        let installation = Installation::with_clock(Clock::system()).await;
        Self::deciding(installation, configured, authorization).await
    }

    async fn deciding(
        mut installation: Installation,
        contract: Option<KmsContract>,
        authorization: Authorization,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (agent, socket) = machine(&installation, &dir);
        let clock = cloister_chain::Clock::system();
        let (kms, root) = started(&installation, &dir, socket, authorization, clock).await;
        let config = KmsConfig {
            slug: "local".to_owned(),
            guest_url: format!("https://10.0.2.2:{}", kms.address().port()).parse().unwrap(),
            directory_url: format!("https://{}", kms.directory_address()).parse().unwrap(),
            ca_file: dir.path().join("kms/root-ca.pem"),
            admin_token_file: dir.path().join("token"),
            contract,
        };
        let wake = know(&mut installation, vec![config.clone()]).await;
        let app = &installation.app;
        let kmses = Arc::clone(&app.kmses);
        // The doors open a moment after onboarding ended.
        within("the KMS answers", async || {
            let answered = kmses.all()[0].meta().await;
            answered.is_ok() || kmses.all()[0].known().is_some()
        })
        .await;
        let nodes = Arc::<FakeNodes>::default();
        let engine = workers(app, &nodes, kmses, wake).await;
        Self { installation, nodes, engine, kms: Some(kms), config, root, _agent: agent, _dir: dir }
    }

    /// From now on operations are driven by workers that know of no service.
    pub(super) async fn forget_kms(self) -> Self {
        self.engine.stop().await;
        let engine = workers(&self.installation.app, &self.nodes, Arc::default(), Arc::default()).await;
        Self { engine, ..self }
    }

    /// The service over connections that can be made to break.
    pub(super) async fn kms_over_a_breakable_way(&self) -> (Kmses, Arc<AtomicBool>) {
        let Way { address, cut } = Way::to(&self.config.directory_url).await;
        let directory_url = format!("https://{address}").parse().unwrap();
        let config = KmsConfig { directory_url, ..self.config.clone() };
        let app = &self.installation.app;
        (Kmses::open(vec![config], &app.store, &app.clock).await.unwrap(), cut)
    }

    /// From now on the installation has another service, too, which has a root of its own and is reached only while
    /// its gate is open.
    pub(super) async fn add_service(&mut self) -> Sibling {
        let dir = tempfile::tempdir().unwrap();
        let (agent, socket) = machine(&self.installation, &dir);
        let late_s = Arc::<AtomicI64>::default();
        let late = Arc::clone(&late_s);
        let now = Clock::system();
        let clock = cloister_chain::Clock::from_fn(move || {
            now.now() - SignedDuration::from_secs(late.load(Ordering::SeqCst))
        });
        let (kms, _) = started(&self.installation, &dir, socket, Authorization::BuiltIn, clock).await;
        let (gate, is_open) = gate(kms.directory_address()).await;
        let config = KmsConfig {
            slug: "sibling".to_owned(),
            guest_url: format!("https://10.0.2.2:{}", kms.address().port()).parse().unwrap(),
            directory_url: format!("https://{gate}").parse().unwrap(),
            ca_file: dir.path().join("kms/root-ca.pem"),
            admin_token_file: dir.path().join("token"),
            contract: None,
        };
        know(&mut self.installation, vec![self.config.clone(), config]).await;
        let app = &self.installation.app;
        let kms_id = app.kmses.all()[1].id();
        within("the other KMS answers", async || app.kmses.all()[1].meta().await.is_ok()).await;
        Sibling { kms_id, is_open, late_s, _kms: kms, _agent: agent, _dir: dir }
    }

    /// The service ends.
    pub(super) async fn stop_kms(&mut self) {
        self.kms.take().unwrap().stop().await;
    }

    /// Which documents the service lets an application run.
    pub(super) async fn allowed(&self, app_id: AppId) -> Vec<String> {
        let policy: PolicyDocument = self.administer(GET_POLICY).await.json().await.unwrap();
        policy.apps.get(&app_id).into_iter().flatten().map(ToString::to_string).collect()
    }

    /// The service gets a new root.
    pub(super) async fn rotate(&self) {
        self.administer(START_ROTATION).await;
    }

    async fn administer(&self, method: &str) -> reqwest::Response {
        let root = public_key_of_pem(&fs::read_to_string(&self.config.ca_file).unwrap()).unwrap();
        let clock = self.installation.app.clock.clone();
        let tls = authority_client_config(AuthorityPolicy::kms(Some(root)), None, move || clock.now());
        let client = reqwest::Client::builder().tls_backend_preconfigured(tls.unwrap()).no_proxy().build();
        let url = self.config.directory_url.join(method).unwrap();
        let answer = client.unwrap().post(url).bearer_auth(TOKEN).send().await.unwrap();
        answer.error_for_status().unwrap()
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        self.installation.call("GET", path, Value::Null).await.expect(200).json()
    }

    /// Provisions an app that takes one variable, and creates its CVM with a sealed environment.
    pub(super) async fn create(&self, name: &str, encrypted_env: &str) -> Value {
        let mut body = super::super::provision_body(name);
        body["env_keys"] = json!(["API_KEY"]);
        let provision = self.installation.call("POST", "/cvms/provision", body).await.expect(200).json();
        let create = json!({
            "app_id": provision["app_id"], "compose_hash": provision["compose_hash"],
            "encrypted_env": encrypted_env, "env_keys": ["API_KEY"], "kms_id": "local",
        });
        self.installation.call("POST", "/cvms", create).await.expect(200).json()
    }

    /// Waits until no operation holds the CVM.
    pub(super) async fn settled(&self, vm: &Value) {
        within("the CVM comes to rest", async || self.installation.row(vm).await.operation_id.is_none())
            .await;
    }

    /// Waits until no operation holds the CVM and it is in this status.
    pub(super) async fn at_rest(&self, vm: &Value, status: CvmStatus) -> CvmRow {
        self.settled(vm).await;
        let row = self.installation.row(vm).await;
        assert_eq!(row.status, status, "{:?}", row.boot_error);
        row
    }
}

/// Another service of the installation.
pub(super) struct Sibling {
    pub(super) kms_id: i64,
    pub(super) is_open: Arc<AtomicBool>,
    /// How far its clock is behind.
    pub(super) late_s: Arc<AtomicI64>,
    _kms: Kms,
    _agent: HostProcessAgent,
    _dir: TempDir,
}

/// A way to `target` for those who come while it is open; it is at first.
async fn gate(target: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, is_open) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(true)));
    let open = Arc::clone(&is_open);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let open = Arc::clone(&open);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(target).await.unwrap();
                let closed = async {
                    while open.load(Ordering::SeqCst) {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    () = closed => {}
                }
            });
        }
    });
    (address, is_open)
}

async fn workers(
    app: &App,
    nodes: &Arc<FakeNodes>,
    kmses: Arc<Kmses>,
    wake: Arc<Notify>,
) -> Engine<FakeNodes> {
    let (store, clock, options) = (app.store.clone(), app.clock.clone(), EngineOptions::default());
    Engine::start(store, Arc::clone(nodes), kmses, clock, Random, wake, options).await.unwrap()
}

/// A way to the directory on which every connection that is open breaks when `cut` is set and it is used again.
struct Way {
    address: SocketAddr,
    cut: Arc<AtomicBool>,
}

impl Way {
    async fn to(directory: &Url) -> Self {
        let target = directory.socket_addrs(|| None).unwrap()[0];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, cut) = (listener.local_addr().unwrap(), Arc::<AtomicBool>::default());
        let is_cut = Arc::clone(&cut);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(target).await.unwrap();
                let is_new = is_cut.load(Ordering::SeqCst);
                tokio::spawn(carry(client, server, Arc::clone(&is_cut), is_new));
            }
        });
        Self { address, cut }
    }
}

async fn carry(client: TcpStream, server: TcpStream, is_cut: Arc<AtomicBool>, is_new: bool) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let answers = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
        if is_cut.load(Ordering::SeqCst) && !is_new {
            break;
        }
        to_server.write_all(&buffer[..count]).await.unwrap();
    }
    answers.abort();
}

/// Gives an installation these services. Returns what wakes its workers.
pub(in crate::api::tests) async fn know(
    installation: &mut Installation,
    configured: Vec<KmsConfig>,
) -> Arc<Notify> {
    let contracts = Arc::clone(&installation.app.contracts);
    know_with(installation, configured, contracts).await
}

/// The same with the chain that decides for them.
pub(in crate::api::tests) async fn know_with(
    installation: &mut Installation,
    configured: Vec<KmsConfig>,
    contracts: Arc<dyn Contracts>,
) -> Arc<Notify> {
    let (old, wake) = (&installation.app, Arc::new(Notify::new()));
    let kmses = Kmses::open(configured, &old.store, &old.clock).await.unwrap();
    let app = Arc::new(App {
        kmses: Arc::new(kmses),
        contracts,
        lifecycle: Lifecycle::new(old.store.clone(), old.clock.clone(), Random, Arc::clone(&wake)),
        verifier: old.verifier.clone(),
        development_vendor: old.development_vendor.clone(),
        collateral: Arc::clone(&old.collateral),
        proof_of_cloud: Arc::clone(&old.proof_of_cloud),
        store: old.store.clone(),
        fleet: Arc::clone(&old.fleet),
        os_images: Arc::clone(&old.os_images),
        authority: Arc::clone(&old.authority),
        clock: old.clock.clone(),
        random: Random,
        public_url: old.public_url.clone(),
        log_url_key: old.log_url_key,
        audit_head_key: old.audit_head_key,
        dns: old.dns.clone(),
        outbound: old.outbound.clone(),
        people: Arc::clone(&old.people),
        oauth_clients: old.oauth_clients.clone(),
        openid: old.openid.clone(),
        webhook_secrets: Arc::clone(&old.webhook_secrets),
        webhook_figures: Arc::default(),
        requests_per_minute: None,
        sunsets: old.sunsets.clone(),
        inference: None,
    });
    installation.serves(app);
    wake
}

/// The machine of the service: evidence and a sealing key on a Unix socket.
fn machine(installation: &Installation, dir: &TempDir) -> (HostProcessAgent, PathBuf) {
    let program = dir.path().join("program");
    fs::write(&program, "stands for the program of the KMS").unwrap();
    let process = HostProcess::measure(&dir.path().join("platform"), &program).unwrap();
    let platform = installation.tee.further_platform("local");
    let socket = dir.path().join("run/agent.sock");
    let agent = HostProcessAgent::serve(&socket, Arc::new(process), watch::channel(Some(platform)).1);
    (agent.unwrap(), socket)
}

/// A bootstrapped service. Its collateral comes from the installation's own listener, as in development.
async fn started(
    installation: &Installation,
    dir: &TempDir,
    agent_socket: PathBuf,
    authorization: Authorization,
    clock: cloister_chain::Clock,
) -> (Kms, K256Public) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pccs = format!("http://{}/development-pccs", listener.local_addr().unwrap());
    let router = installation.router.clone();
    tokio::spawn(async move {
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(listener, service).await.unwrap();
    });
    let (token, root) = (dir.path().join("token"), dir.path().join("development-root.pem"));
    fs::write(&token, TOKEN).unwrap();
    installation.tee.vendor.publish_root(&root).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = cloister_kms::Config {
        agent_socket,
        authorization,
        clock,
        admin_token_file: Some(token),
        pccs_url: Some(pccs.parse().unwrap()),
        development_root: Some(root),
        ..cloister_kms::Config::new(dir.path().join("kms"), any, any)
    };
    let kms = Kms::start(config).await.unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let url = |path: &str| format!("http://{}{path}", kms.address());
    let request = BootstrapRequest { domain: "localhost".to_owned() };
    let answer = client.post(url(method::BOOTSTRAP)).json(&request).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    let answer: BootstrapResponse = answer.json().await.unwrap();
    client.get(url(method::FINISH)).send().await.unwrap().error_for_status().unwrap();
    (kms, answer.k256_pubkey.0.try_into().unwrap())
}

/// Looks until something is so.
pub(in crate::api::tests) async fn within(what: &str, mut so: impl AsyncFnMut() -> bool) {
    for _ in 0..12_000 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never became true that {what}");
}
