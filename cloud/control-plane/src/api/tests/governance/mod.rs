//! Applications under contracts, with a chain that is a table.

mod allowances;
mod creation;
mod services;

use std::sync::Arc;

use cloister_app_compose::AppId;
use cloister_app_compose::OsImageHash;
use cloister_node_api::NodeImage;
use serde_json::{Value, json};
use uuid::Uuid;

use super::kms::support::know_with;
use super::{Answer, Installation, START, provision_body, report};
use crate::clock::Clock;
use crate::governance::testing::{CHAIN, FakeContracts, KMS_CONTRACT, OWNER};
use crate::kms::KmsConfig;
use crate::store::{CvmRow, DeviceRow, NewCvm};

const DEVICE: [u8; 32] = [0xd1; 32];
const OTHER_DEVICE: [u8; 32] = [0xd2; 32];
const PRODUCTION_IMAGE: [u8; 32] = [6; 32];

/// An installation with two services that nobody runs: one without a contract, and one of the contract.
struct World {
    installation: Installation,
    contracts: Arc<FakeContracts>,
    /// Number of the service of the contract.
    kms: i64,
}

impl World {
    /// One on each engine.
    async fn both() -> [Self; 2] {
        let clock = || Clock::manual(START.parse().unwrap());
        [
            Self::on(Installation::with_clock(clock()).await).await,
            Self::on(Installation::on_postgres_at(clock()).await).await,
        ]
    }

    async fn new() -> Self {
        Self::on(Installation::new().await).await
    }

    async fn on(mut installation: Installation) -> Self {
        let contracts = Arc::<FakeContracts>::default();
        let plain = KmsConfig { contract: None, ..absent("local") };
        let chain: Arc<FakeContracts> = Arc::clone(&contracts);
        know_with(&mut installation, vec![plain, absent("chained")], chain).await;
        let mut with_images = report(65536, false);
        with_images.images.push(NodeImage {
            name: "cloister-prod".into(),
            version: "0.1.0".into(),
            is_dev: false,
            os_image_hash: OsImageHash::from_bytes(PRODUCTION_IMAGE),
            supports_gpu: false,
        });
        installation.report(&with_images).await;
        let world = Self { installation, contracts, kms: 2 };
        world.prove_device(world.installation.node, DEVICE).await;
        world
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

    async fn call(&self, method: &str, path: &str, body: Value) -> Answer {
        self.installation.call(method, path, body).await
    }

    async fn get(&self, path: &str) -> Value {
        self.call("GET", path, Value::Null).await.expect(200).json()
    }

    /// A CVM that keeps its keys at a service, as if it had been made before.
    async fn cvm(&self, name: &str, kms: Option<i64>) -> CvmRow {
        let vm =
            self.installation.call("POST", "/cvms/provision", without_keys(name)).await.expect(200).json();
        let body = json!({"app_id": vm["app_id"], "compose_hash": vm["compose_hash"]});
        let vm = self.installation.call("POST", "/cvms", body).await.expect(200).json();
        let row = self.installation.row(&vm).await;
        self.like(&row, &format!("{name}-2"), kms, row.app_id, row.node_id).await
    }

    /// Another CVM with the same configuration.
    async fn like(
        &self,
        row: &CvmRow,
        name: &str,
        kms_id: Option<i64>,
        app_id: AppId,
        node_id: i64,
    ) -> CvmRow {
        let mut ids = self.many_like(row, &[name.to_owned()], kms_id, app_id, node_id).await;
        self.installation.app.store.cvm(ids.remove(0)).await.unwrap().unwrap()
    }

    async fn many_like(
        &self,
        row: &CvmRow,
        names: &[String],
        kms_id: Option<i64>,
        app_id: AppId,
        node_id: i64,
    ) -> Vec<i64> {
        let mut change = self.installation.app.store.change().await.unwrap();
        let mut ids = Vec::new();
        for name in names {
            let new = NewCvm {
                workspace_id: row.workspace_id,
                user_id: row.user_id,
                node_id,
                vm_uuid: Uuid::from_u128(row.vm_uuid.as_u128().wrapping_add(ids.len() as u128 + 1)),
                name: name.clone(),
                app_id,
                kms_id,
                listed: 0,
                configuration: row.configuration(),
            };
            ids.push(change.insert_cvm(&new, 0).await.unwrap());
        }
        change.commit().await.unwrap();
        ids
    }

    /// An application under a contract that allows its document on its node, with one CVM.
    async fn governed(&self) -> CvmRow {
        let template = self.cvm("template", None).await;
        let app_id = AppId::from_bytes([0xaa; 20]);
        let cvm = self.like(&template, "governed", Some(self.kms), app_id, template.node_id).await;
        self.contracts.deploy(app_id);
        self.contracts.add_hash(app_id, cvm.compose_hash);
        self.contracts.add_device(app_id, DEVICE);
        cvm
    }

    /// A key of another workspace.
    async fn stranger(&self) -> String {
        let now_ms = self.installation.app.clock.now_ms();
        super::account(&self.installation.app.store, "stranger", "user", 7, now_ms).await.2
    }
}

fn without_keys(name: &str) -> Value {
    let mut body = provision_body(name);
    body["compose_file"]["kms_enabled"] = json!(false);
    body
}

/// A service of the contract that nobody runs.
fn absent(slug: &str) -> KmsConfig {
    KmsConfig {
        slug: slug.to_owned(),
        guest_url: "https://10.0.2.2:12001".parse().unwrap(),
        directory_url: "https://127.0.0.1:9".parse().unwrap(),
        ca_file: "/nonexistent/root-ca.pem".into(),
        admin_token_file: "/nonexistent/token".into(),
        contract: Some(KMS_CONTRACT),
    }
}
