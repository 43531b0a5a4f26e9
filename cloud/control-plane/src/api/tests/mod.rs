//! The whole surface through its router, with a store, a clock that stands still and a node that is only
//! a report.

mod accounts;
mod approvals;
mod apps;
mod attestations;
mod audit;
mod authorisation;
mod billing;
mod contract;
mod copies;
mod cvms;
mod deprecation;
mod device_page;
mod devices;
mod documents;
mod domains;
mod evidence;
mod governance;
mod gpus;
mod idempotency;
mod inference;
mod instance_ids;
mod kms;
mod live;
mod matrix;
mod node;
mod oauth;
mod openapi;
mod openid;
mod os_images;
mod people;
mod provisioning;
mod replicas;
mod requests;
mod rollouts;
mod scopes;
mod ssh_keys;
mod state;
mod tee;
mod updates;
mod webhooks;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use cloister_app_compose::decode::{self, Source};
use cloister_app_compose::{Additions, Draft, OsImageHash};
use cloister_fleet_tls::{Authority, Identity};
use cloister_management_api::{ApiVersion, KeyScope};
use cloister_node_api::{NodeCapacity, NodeImage, NodeReport, Platform};
use http_body_util::BodyExt;
use jiff::civil::date;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use self::tee::Tee;
use super::auth::{hash_key, new_key};
use super::{Api, OauthClient, surface};
use crate::App;
use crate::clock::{Clock, Random};
use crate::dns::Dns;
use crate::fleet::{Fleet, VmChanges};
use crate::governance::NoContracts;
use crate::operations::{CvmStatus, Lifecycle};
use crate::os_images::Library;
use crate::people::People;
use crate::proof_of_cloud::{ProofOfCloud, ProofOfCloudConfig};
use crate::store::tests::{embedded, postgres};
use crate::store::{CvmRow, NewApiKey, Store};
use crate::webhooks::Secrets;

const START: &str = "2026-01-21T10:00:00Z";

/// An installation with one node that is online, an administrator and a tenant in workspaces of their own.
struct Installation {
    router: Router,
    api: Api,
    app: Arc<App>,
    /// The tenant's key.
    tenant: String,
    /// The administrator's key, bound to another workspace.
    admin: String,
    tenant_workspace: i64,
    node: i64,
    stop: CancellationToken,
    /// Where names are asked for; silent until a test answers.
    name_server: std::net::UdpSocket,
    /// The hardware of its nodes and the vendor of that.
    tee: Arc<Tee>,
    /// What it answered.
    answers: contract::Ledger,
    data: TempDir,
    accounts: Accounts,
}

/// Who there is, and the node.
#[derive(Clone)]
struct Accounts {
    tenant: String,
    tenant_workspace: i64,
    admin: String,
    node: i64,
}

/// An answer, read to its end.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    async fn read(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Self { status: parts.status, headers: parts.headers, text }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Status and what kind of failure, in a few words.
    fn summary(&self) -> String {
        let body: Value = serde_json::from_str(&self.text).unwrap_or_default();
        let kind = match (&body["error_code"], &body["detail"]) {
            (Value::String(code), _) => code.clone(),
            (_, Value::String(_)) => "plain".to_owned(),
            (_, Value::Array(_)) => "validation".to_owned(),
            _ => String::new(),
        };
        format!("{} {kind}", self.status.as_u16()).trim_end().to_owned()
    }

    #[track_caller]
    fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }
}

fn report(memory_mb: u32, maintenance: bool) -> NodeReport {
    NodeReport {
        version: "0.1.0".into(),
        region: "home".into(),
        endpoint: "127.0.0.1:9".into(),
        ingress_url_template: "http://{host}.apps.localhost:8080".into(),
        ingress_domain: "apps.localhost".into(),
        platform: Platform::Emulation,
        maintenance,
        capacity: NodeCapacity { cvm_slots: 8, vcpu: 16, memory_mb, disk_gb: 500 },
        images: vec![NodeImage {
            name: "cloister-0.1.0".into(),
            version: "0.1.0".into(),
            is_dev: true,
            os_image_hash: OsImageHash::from_bytes([5; 32]),
            supports_gpu: false,
        }],
        vms: vec![],
        gpus: vec![],
        port_range: None,
    }
}

async fn account(store: &Store, name: &str, role: &str, wallet: u8, now_ms: i64) -> (i64, i64, String) {
    let (key, shown) = new_key([wallet; 32]);
    let mut change = store.change().await.unwrap();
    let user = change.insert_user(name, &format!("{name}@example.org"), role, now_ms).await.unwrap();
    let workspace = change.insert_workspace(name, name, [wallet; 20], user, now_ms).await.unwrap();
    let new = NewApiKey {
        user_id: user,
        workspace_id: workspace,
        name: "first".into(),
        key_hash: hash_key(&key),
        key_prefix: shown,
        scope: KeyScope::Admin,
        default_version: "2026-01-21".into(),
        expires_at_ms: None,
    };
    change.insert_api_key(&new, now_ms).await.unwrap();
    change.commit().await.unwrap();
    (user, workspace, key)
}

impl Installation {
    async fn new() -> Self {
        Self::with_clock(Clock::manual(START.parse().unwrap())).await
    }

    async fn with_clock(clock: Clock) -> Self {
        let data = tempfile::tempdir().unwrap();
        let store = embedded(data.path()).await;
        Self::on(store, clock, data).await
    }

    async fn on_postgres() -> Self {
        Self::on_postgres_at(Clock::manual(START.parse().unwrap())).await
    }

    async fn on_postgres_at(clock: Clock) -> Self {
        let store = postgres().await;
        Self::on(store, clock, tempfile::tempdir().unwrap()).await
    }

    async fn on(store: Store, clock: Clock, data: TempDir) -> Self {
        let now_ms = clock.now_ms();
        let (_, _, admin) = account(&store, "operator", "admin", 1, now_ms).await;
        let (_, tenant_workspace, tenant) = account(&store, "tenant", "user", 2, now_ms).await;
        let mut change = store.change().await.unwrap();
        let node = change.insert_node("local", now_ms).await.unwrap();
        change.commit().await.unwrap();
        let accounts = Accounts { tenant, tenant_workspace, admin, node };
        let tee = Arc::new(Tee::new(&clock));
        let installation = Self::over(store, clock, data, accounts, tee);
        installation.report(&report(65536, false)).await;
        installation
    }

    /// One with a database in which all that is there already.
    fn over(store: Store, clock: Clock, data: TempDir, accounts: Accounts, tee: Arc<Tee>) -> Self {
        let random = Random;
        let authority = Arc::new(Authority::load_or_create(&data.path().join("fleet"), clock.now()).unwrap());
        let credentials =
            authority.issue(&Identity::ControlPlane, &["localhost".to_owned()], clock.now()).unwrap();
        let fleet = Fleet::new(store.clone(), clock.clone(), VmChanges::default(), credentials);
        let name_server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let collateral = tee.collateral();
        let app = Arc::new(App {
            verifier: tee.verifier(&collateral),
            development_vendor: Some(Arc::clone(&tee.vendor)),
            collateral,
            proof_of_cloud: Arc::new(ProofOfCloud::new(Some(platform_list()), store.clone(), clock.clone())),
            lifecycle: Lifecycle::new(store.clone(), clock.clone(), random, Arc::new(Notify::new())),
            store,
            fleet: Arc::new(fleet),
            kmses: Arc::default(),
            contracts: Arc::new(NoContracts),
            os_images: Arc::new(Library::open(data.path().join("os-images")).unwrap()),
            authority,
            clock,
            random,
            public_url: "https://cloud.example".parse().unwrap(),
            log_url_key: [3; 32],
            audit_head_key: [4; 32],
            dns: Dns::at(name_server.local_addr().unwrap()),
            outbound: webhooks::outbound(),
            webhook_secrets: Arc::new(Secrets::open(data.path(), random).unwrap()),
            people: Arc::new(People::open(data.path(), random).unwrap()),
            openid: None,
            oauth_clients: OauthClient::checked(oauth::apps()).unwrap(),
            webhook_figures: Arc::default(),
            requests_per_minute: None,
            sunsets: [(ApiVersion::V20251028, date(2027, 3, 31))].into(),
            inference: Some(inference::served(data.path())),
        });
        let stop = CancellationToken::new();
        let api = Api::new(Arc::clone(&app), stop.clone());
        let answers = contract::Ledger::default();
        let router = contract::checked(surface(api.clone()), &answers);
        let Accounts { tenant, tenant_workspace, admin, node } = accounts.clone();
        Self {
            router,
            api,
            app,
            tenant,
            admin,
            tenant_workspace,
            node,
            stop,
            name_server,
            tee,
            answers,
            data,
            accounts,
        }
    }

    /// The node reports now.
    async fn report(&self, report: &NodeReport) {
        let text = serde_json::to_string(report).unwrap();
        let mut change = self.app.store.change().await.unwrap();
        change.put_node_report(self.node, &text, self.app.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
    }

    /// Serves another application instead, with the same answers.
    fn serves(&mut self, app: Arc<App>) {
        self.api = Api::new(Arc::clone(&app), self.stop.clone());
        self.router = contract::checked(surface(self.api.clone()), &self.answers);
        self.app = app;
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        Answer::read(self.router.clone().oneshot(request).await.unwrap()).await
    }

    /// A request of the tenant; the body may be left out with null.
    async fn call(&self, method: &str, path: &str, body: Value) -> Answer {
        self.call_with(&[("x-api-key", &self.tenant)], method, path, body).await
    }

    async fn call_with(&self, headers: &[(&str, &str)], method: &str, path: &str, body: Value) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("/api/v1{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.send(request.header("content-type", "application/json").body(body).unwrap()).await
    }

    /// The tenant's request in a version.
    async fn get_in(&self, version: &str, path: &str) -> Answer {
        let headers = [("x-api-key", self.tenant.as_str()), ("x-phala-version", version)];
        self.call_with(&headers, "GET", path, Value::Null).await
    }

    async fn provision(&self, name: &str) -> Value {
        self.call("POST", "/cvms/provision", provision_body(name)).await.expect(200).json()
    }

    /// A CVM of the tenant, just accepted.
    async fn create(&self, name: &str) -> Value {
        let provision = self.provision(name).await;
        let body = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
        self.call("POST", "/cvms", body).await.expect(200).json()
    }

    /// The same when the key management service of the installation does not answer.
    async fn create_with_kms(&self, name: &str) -> Value {
        let refused = self.call("POST", "/cvms/provision", provision_body(name)).await;
        assert_eq!(refused.summary(), "503 plain");
        // The provision is kept all the same.
        let draft: Draft = decode::decode(&provision_body(name)["compose_file"], Source::Json, &[]).unwrap();
        let compose_hash = draft.prepare(&Additions { name, ..Additions::default() }).unwrap().compose_hash();
        let now_ms = self.app.clock.now_ms();
        let provision = self.app.store.provision(self.tenant_workspace, compose_hash, now_ms).await;
        let app_id = provision.unwrap().unwrap().app_id.to_string();
        let body = json!({"app_id": app_id, "compose_hash": compose_hash.to_string()});
        self.call("POST", "/cvms", body).await.expect(200).json()
    }

    async fn row(&self, vm: &Value) -> CvmRow {
        self.app.store.cvm(vm["id"].as_i64().unwrap()).await.unwrap().unwrap()
    }

    /// Lets the operation of a CVM end as if a worker had done it.
    async fn settle(&self, vm: &Value, status: CvmStatus) {
        let cvm = self.row(vm).await;
        let operation = cvm.operation_id.unwrap().parse().unwrap();
        let mut change = self.app.store.change().await.unwrap();
        change.release_cvm(cvm.id, operation).await.unwrap();
        change.set_cvm_status(cvm.id, status, self.app.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
    }
}

/// A list of registered platforms, which nobody has read yet.
fn platform_list() -> ProofOfCloudConfig {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/src/proof_of_cloud/fixtures");
    let signer = include_str!("../../proof_of_cloud/fixtures/signer.txt");
    ProofOfCloudConfig {
        source: format!("{fixtures}/serial-7.json").parse().unwrap(),
        signer: signer.trim().parse().unwrap(),
    }
}

fn provision_body(name: &str) -> Value {
    json!({
        "name": name,
        "compose_file": {"name": "", "docker_compose_file": "services:\n  web:\n    image: nginx:1\n"},
    })
}

/// A document with what is new in every run replaced: UUIDs and signatures.
fn stable(value: Value) -> Value {
    let hidden = |text: String| match text.split_once("signature=") {
        Some((url, rest)) => {
            let tail = rest.find('&').map_or("", |at| &rest[at..]);
            let path: Vec<_> =
                url.split(['/', '?']).filter(|part| part.parse::<uuid::Uuid>().is_err()).collect();
            format!("{}?signature=[signature]{tail}", path.join("/"))
        }
        None if text.parse::<uuid::Uuid>().is_ok() => "[uuid]".to_owned(),
        None => text,
    };
    match value {
        Value::String(text) => hidden(text).into(),
        Value::Array(items) => items.into_iter().map(stable).collect(),
        Value::Object(map) => map.into_iter().map(|(name, value)| (name, stable(value))).collect(),
        other => other,
    }
}
