//! Placing 10,000 CVMs on 500 simulated nodes, one after the other: the decision alone; with what a creation checks
//! and writes, one flushed transaction each, in an embedded database on disk; and with all that the two calls of
//! the API do in the store, from the provision to the accepted operation.
//!
//! `cargo bench -p cloister-control-plane --bench placement` prints it; docs/performance.md quotes it.
#![expect(clippy::print_stdout, reason = "a bench prints")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use cloister_app_compose::{AppId, ComposeHash};
use cloister_control_plane::clock::{Clock, Random};
use cloister_control_plane::fleet::{Choice, Demand, NodeStanding, Reports, Requirements, Scheduler};
use cloister_control_plane::operations::{CreateRequest, Lifecycle};
use cloister_control_plane::store::{Caller, GpuSlots, NewCvm, ProvisionRow, Store};
use cloister_management_api::KeyScope;
use serde_json::json;
use tokio::sync::Notify;
use uuid::Uuid;

const NODES: u32 = 500;
const CVMS: u32 = 10_000;
const HOUR_MS: i64 = 3_600_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// One worker thread: figures are for one core, the database's own threads aside.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    println!("| Placing {CVMS} CVMs on {NODES} nodes | total | per CVM |\n|---|---|---|");
    row("decision alone", decide(Cloud::open().await?).await?);
    row("through the store, one transaction each", store(&Cloud::open().await?).await?);
    row("provision and create, two transactions each", create(&Cloud::open().await?).await?);
    Ok(())
}

fn row(name: &str, took: Duration) {
    let each = took.as_secs_f64() * 1e6 / f64::from(CVMS);
    println!("| {name} | {:.2} s | {each:.0} µs |", took.as_secs_f64());
}

/// An installation as far as placing is concerned.
struct Cloud {
    _dir: tempfile::TempDir,
    store: Store,
    scheduler: Scheduler,
    clock: Clock,
    user: i64,
    workspace: i64,
}

impl Cloud {
    async fn open() -> Outcome<Self> {
        let dir = tempfile::tempdir()?;
        let store = Store::open_file(&dir.path().join("cloister.db")).await?;
        let clock = Clock::system();
        let (user, workspace) = fleet(&store, clock.now_ms()).await?;
        Ok(Self { _dir: dir, store, scheduler: Scheduler::default(), clock, user, workspace })
    }

    async fn place(&self, demand: &Demand) -> Outcome<Choice> {
        Ok(self.scheduler.place(&self.store, demand, self.clock.now_ms()).await?)
    }
}

async fn fleet(store: &Store, now_ms: i64) -> Outcome<(i64, i64)> {
    let mut change = store.change().await?;
    let user = change.insert_user("ada", "ada@example.org", "user", now_ms).await?;
    let workspace = change.insert_workspace("ada-lab", "Ada Lab", [9; 20], user, now_ms).await?;
    for number in 0..NODES {
        let node = change.insert_node(&format!("node-{number}"), now_ms).await?;
        // Of different sizes, so that the scores differ.
        let vcpu = 64 + number % 64;
        let images: Vec<_> = (1..=8)
            .map(|image| {
                json!({"name": format!("image-{image}"), "version": format!("0.{image}.0"), "is_dev": false,
                       "os_image_hash": hex::encode([image; 32])})
            })
            .collect();
        let report = json!({
            "version": "0.1.0", "region": format!("region-{}", number % 5), "endpoint": "localhost:1",
            "ingress_url_template": "https://{host}.example", "ingress_domain": "example",
            "platform": "tdx", "maintenance": false,
            "capacity": {"cvm_slots": 64, "vcpu": vcpu, "memory_mb": 262_144, "disk_gb": 4000},
            "images": images, "vms": [],
        });
        // From the future, so that no node goes offline meanwhile.
        change.put_node_report(node, &report.to_string(), now_ms + HOUR_MS).await?;
    }
    change.commit().await?;
    Ok((user, workspace))
}

fn demand(number: u32) -> Demand {
    let vcpu = 1 + i64::from(number % 4);
    Demand {
        needs: Requirements { vcpu, memory_mb: vcpu * 2048, disk_gb: 20, ..Requirements::default() },
        ..Demand::default()
    }
}

async fn decide(cloud: Cloud) -> Outcome<Duration> {
    let mut nodes = Reports::default().standings(&cloud.store, cloud.clock.now_ms()).await?;
    let begun = Instant::now();
    for number in 0..CVMS {
        let demand = demand(number);
        let choice = demand.place(&nodes)?;
        let node = nodes.iter_mut().find(|node| node.node.id == choice.node_id).ok_or("no such node")?;
        node.node.usage.cvms += 1;
        node.node.usage.vcpu += demand.needs.vcpu;
        node.node.usage.memory_mb += demand.needs.memory_mb;
        node.node.usage.disk_gb += demand.needs.disk_gb;
    }
    Ok(begun.elapsed())
}

async fn store(cloud: &Cloud) -> Outcome<Duration> {
    let begun = Instant::now();
    for number in 0..CVMS {
        let demand = demand(number);
        let choice = cloud.place(&demand).await?;
        let now_ms = cloud.clock.now_ms();
        let mut change = cloud.store.change().await?;
        change.lock_workspace(cloud.workspace).await?;
        let node = change.lock_node(choice.node_id).await?.ok_or("no such node")?;
        NodeStanding::of(&node, now_ms).accept(&demand.needs)?;
        let provision = provision(cloud, number, &demand.needs, &choice);
        let vm_uuid = Uuid::from_u128(u128::from(number) + 1);
        change.insert_cvm(&NewCvm::of_provision(&provision, cloud.user, vm_uuid, None), now_ms).await?;
        change.commit().await?;
    }
    Ok(begun.elapsed())
}

async fn create(cloud: &Cloud) -> Outcome<Duration> {
    let lifecycle = Lifecycle::new(cloud.store.clone(), cloud.clock.clone(), Random, Arc::new(Notify::new()));
    let caller = caller(cloud);
    let begun = Instant::now();
    for number in 0..CVMS {
        let demand = demand(number);
        let choice = cloud.place(&demand).await?;
        let provision = provision(cloud, number, &demand.needs, &choice);
        let mut change = cloud.store.change().await?;
        change.put_provision(&provision).await?;
        change.commit().await?;
        let request = CreateRequest {
            compose_hash: provision.compose_hash,
            app_id: provision.app_id,
            is_allowed_by_contract: false,
            encrypted_env: None,
            scheduled_delete_at_ms: None,
        };
        lifecycle.create(&caller, request).await?;
    }
    Ok(begun.elapsed())
}

fn caller(cloud: &Cloud) -> Caller {
    Caller {
        api_key_id: 0,
        user_id: cloud.user,
        username: "ada".to_owned(),
        email: "ada@example.org".to_owned(),
        user_role: "user".to_owned(),
        workspace_id: cloud.workspace,
        workspace_slug: "ada-lab".to_owned(),
        default_version: "2026-01-21".to_owned(),
        scope: KeyScope::Admin,
        key_prefix: String::new(),
        oauth_client: None,
        stepped_up_at_ms: None,
    }
}

fn provision(cloud: &Cloud, number: u32, needs: &Requirements, choice: &Choice) -> ProvisionRow {
    let (mut app, mut document) = ([0; 20], [0; 32]);
    app[..4].copy_from_slice(&number.to_be_bytes());
    document[..4].copy_from_slice(&number.to_be_bytes());
    ProvisionRow {
        workspace_id: cloud.workspace,
        compose_hash: ComposeHash::from_bytes(document),
        app_id: AppId::from_bytes(app),
        name: format!("app-{number}"),
        app_compose: json!({"docker_compose_file": "services: {}"}).to_string(),
        node_id: choice.node_id,
        os_image_hash: choice.image.os_image_hash,
        os_image_name: choice.image.name.clone(),
        instance_type: None,
        vcpu: needs.vcpu,
        memory_mb: needs.memory_mb,
        disk_gb: needs.disk_gb,
        listed: 0,
        env_keys: "[]".to_owned(),
        user_config: None,
        kms_id: None,
        env_pubkey: None,
        encrypted_env: None,
        gpus: GpuSlots(choice.gpus.clone()),
        awaits_contract: 0,
        device_id: None,
        expires_at_ms: cloud.clock.now_ms() + HOUR_MS,
    }
}
