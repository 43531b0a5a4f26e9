//! Changes that the owner of a contract has to allow.

mod commits;
mod half_two;
mod pages;
mod replicas;
mod updates;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use cloister_app_compose::{AppId, ComposeHash};
use cloister_contracts::abi::App as AppContract;
use cloister_contracts::{B256, SolEvent};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{Answer, Installation, START, contract};
use crate::App;
use crate::api::{Api, surface};
use crate::clock::{Clock, Random};
use crate::governance::testing::{CHAIN, FakeContracts, KMS_CONTRACT};
use crate::governance::{BlockRef, ContractReceipt, ReceiptLog};
use crate::kms::{KmsConfig, Kmses};
use crate::operations::{CvmStatus, Lifecycle};
use crate::store::tests::prepared_changes::put_under_kms;
use crate::store::{CvmRow, DeviceRow, RevisionRow};

const YAML: &str = "services:\n  web:\n    image: nginx:2\n";
const OTHER_YAML: &str = "services:\n  web:\n    image: nginx:3\n";
const DEVICE: [u8; 32] = [0xd1; 32];
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// An installation whose only application is under a contract, with one CVM that is up.
pub(super) struct Governed {
    pub(super) installation: Installation,
    pub(super) contracts: Arc<FakeContracts>,
    pub(super) vm: Value,
    pub(super) app_id: AppId,
}

/// A change that waits, as its 465 tells it.
pub(super) struct Prepared {
    pub(super) hash: ComposeHash,
    pub(super) token: String,
    details: Value,
    answer: Value,
}

impl Governed {
    /// One on each engine.
    async fn both() -> [Self; 2] {
        let clock = || Clock::manual(START.parse().unwrap());
        [
            Self::on(Installation::with_clock(clock()).await).await,
            Self::on(Installation::on_postgres_at(clock()).await).await,
        ]
    }

    pub(super) async fn on(mut installation: Installation) -> Self {
        let vm = installation.create("my-app").await;
        installation.settle(&vm, CvmStatus::Running).await;
        let contracts = Arc::<FakeContracts>::default();
        let kms = govern(&mut installation, Arc::clone(&contracts)).await;
        let row = installation.row(&vm).await;
        put_under_kms(&installation.app.store, row.id, kms).await;
        contracts.deploy(row.app_id);
        contracts.add_hash(row.app_id, row.compose_hash);
        contracts.add_device(row.app_id, DEVICE);
        let governed = Self { installation, contracts, vm, app_id: row.app_id };
        governed.prove_device(governed.installation.node, DEVICE).await;
        governed
    }

    /// A node is seen to be this device.
    async fn prove_device(&self, node_id: i64, device: [u8; 32]) {
        let device = DeviceRow {
            node_id,
            device_id: hex::encode(device),
            ppid: "00".repeat(16),
            fmspc: "00".repeat(6),
            trust_root: "test".into(),
            tcb_status: "UpToDate".into(),
            first_verified_at_ms: 0,
            last_verified_at_ms: 0,
        };
        let mut change = self.installation.app.store.change().await.unwrap();
        change.put_device(&device).await.unwrap();
        change.commit().await.unwrap();
    }

    async fn row(&self) -> CvmRow {
        self.installation.row(&self.vm).await
    }

    pub(super) fn path(&self, below: &str) -> String {
        format!("/cvms/{}{below}", self.vm["vm_uuid"].as_str().unwrap())
    }

    pub(super) async fn call(&self, method: &str, below: &str, body: Value) -> Answer {
        self.call_with(&[], method, below, body).await
    }

    pub(super) async fn call_with(
        &self,
        headers: &[(&str, &str)],
        method: &str,
        below: &str,
        body: Value,
    ) -> Answer {
        let key = [("x-api-key", self.installation.tenant.as_str())];
        let headers = [&key, headers].concat();
        self.installation.call_with(&headers, method, &self.path(below), body).await
    }

    /// A request whose body is a text.
    async fn text(&self, headers: &[(&str, &str)], below: &str, text: &str) -> Answer {
        let mut request = Request::builder().method("PATCH").uri(format!("/api/v1{}", self.path(below)));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request =
            request.header("x-api-key", &self.installation.tenant).header("content-type", "text/plain");
        self.installation.send(request.body(Body::from(text.to_owned())).unwrap()).await
    }

    /// Asks for another compose file, which waits for approval.
    pub(super) async fn prepare(&self, yaml: &str) -> Prepared {
        Prepared::of(&self.call("PATCH", "", json!({"docker_compose_file": yaml})).await.expect(465))
    }

    /// Asks for a commit, without any other credential than the token.
    pub(super) async fn commit(&self, kind: &str, body: Value) -> Answer {
        self.installation.call_with(&[], "POST", &self.path(&format!("/commit-{kind}")), body).await
    }

    /// A transaction that the chain has confirmed: its own number and what it wrote.
    fn mined(&self, seed: u8, to: [u8; 20], logs: Vec<ReceiptLog>, succeeded: bool) -> String {
        let block = BlockRef { number: 7, hash: [7; 32] };
        self.contracts
            .mine([seed; 32], ContractReceipt { succeeded, from: [9; 20], to: Some(to), block, logs });
        format!("0x{}", hex::encode([seed; 32]))
    }

    /// The owner allows a document; the transaction.
    fn allow(&self, seed: u8, hash: ComposeHash) -> String {
        self.contracts.add_hash(self.app_id, hash);
        let contract = *self.app_id.as_bytes();
        self.mined(seed, contract, vec![hash_added(contract, hash)], true)
    }

    /// The revision that the operation at work on the CVM brings.
    async fn coming(&self, vm: &Value) -> RevisionRow {
        let store = &self.installation.app.store;
        let operation = self.installation.row(vm).await.operation_id.unwrap().parse().unwrap();
        let operation = store.operation(operation).await.unwrap().unwrap();
        store.revision(operation.to_revision.unwrap()).await.unwrap().unwrap()
    }

    /// Types of the events that webhooks are to be told, and their data.
    async fn events(&self) -> Vec<(String, Value)> {
        let store = &self.installation.app.store;
        let events = store.events_after(self.installation.tenant_workspace, 0, 100).await.unwrap();
        events.into_iter().map(|row| (row.event_type, serde_json::from_str(&row.data).unwrap())).collect()
    }

    /// The same service once more, as another control plane of the installation has it.
    fn second_router(&self) -> Router {
        let api = Api::new(Arc::clone(&self.installation.app), self.installation.stop.clone());
        contract::checked(surface(api), &self.installation.answers)
    }
}

impl Prepared {
    pub(super) fn of(answer: &Answer) -> Self {
        assert_eq!(answer.summary(), "465 ERR-01-005");
        let answer = answer.json();
        let fields = answer["details"].as_array().unwrap().iter();
        let details: serde_json::Map<String, Value> = fields
            .map(|detail| (detail["field"].as_str().unwrap().to_owned(), detail["value"].clone()))
            .collect();
        let text = |name: &str| details[name].as_str().unwrap().to_owned();
        let hash = text("compose_hash").parse().unwrap();
        Self { hash, token: text("commit_token"), details: details.into(), answer }
    }
}

fn hash_added(contract: [u8; 20], hash: ComposeHash) -> ReceiptLog {
    log(contract, &AppContract::ComposeHashAdded { composeHash: B256::from(*hash.as_bytes()) })
}

fn device_added(contract: [u8; 20], device: [u8; 32]) -> ReceiptLog {
    log(contract, &AppContract::DeviceAdded { deviceId: B256::from(device) })
}

fn log(address: [u8; 20], event: &impl SolEvent) -> ReceiptLog {
    let data = event.encode_log_data();
    ReceiptLog {
        address,
        topics: data.topics().iter().map(|topic| topic.0).collect(),
        data: data.data.to_vec(),
    }
}

/// Gives an installation a key management service that a contract owns, and that does not answer itself.
async fn govern(installation: &mut Installation, contracts: Arc<FakeContracts>) -> i64 {
    let (old, wake) = (&installation.app, Arc::new(Notify::new()));
    let config = KmsConfig {
        slug: "local".to_owned(),
        guest_url: "https://10.0.2.2:12001".parse().unwrap(),
        directory_url: "https://127.0.0.1:9".parse().unwrap(),
        ca_file: "/nowhere/ca.pem".into(),
        admin_token_file: "/nowhere/token".into(),
        contract: Some(KMS_CONTRACT),
    };
    let kmses = Kmses::open(vec![config], &old.store, &old.clock).await.unwrap();
    let id = kmses.all()[0].id();
    let app = Arc::new(App {
        kmses: Arc::new(kmses),
        contracts,
        lifecycle: Lifecycle::new(old.store.clone(), old.clock.clone(), Random, wake),
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
    id
}
