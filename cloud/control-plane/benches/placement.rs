//! Placing 10,000 CVMs on 500 simulated nodes: the decision alone, and with everything that a creation writes,
//! one transaction each, in an embedded database on disk.
//!
//! `cargo bench -p cloister-control-plane --bench placement` prints both; docs/performance.md quotes them.
#![expect(clippy::print_stdout, reason = "a bench prints")]

use std::time::{Duration, Instant};

use cloister_app_compose::{AppId, ComposeHash};
use cloister_control_plane::fleet::{Choice, Demand, NodeStanding, Reports, Requirements};
use cloister_control_plane::store::{Configuration, GpuSlots, NewCvm, Store};
use serde_json::json;
use uuid::Uuid;

const NODES: u32 = 500;
const CVMS: u32 = 10_000;
const NOW_MS: i64 = 1_790_000_000_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// One worker thread: figures are for one core, the database's own threads aside.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let store = Store::open_file(&dir.path().join("cloister.db")).await?;
    let (user, workspace) = fleet(&store).await?;
    let reports = Reports::default();
    let nodes = reports.standings(&store, NOW_MS).await?;
    let pure = decide(nodes)?;
    let stored = create(&store, &reports, user, workspace).await?;
    println!("| Placing {CVMS} CVMs on {NODES} nodes | total | per CVM |\n|---|---|---|");
    for (name, took) in [("decision alone", pure), ("through the store, one transaction each", stored)] {
        let each = took.as_secs_f64() * 1e6 / f64::from(CVMS);
        println!("| {name} | {:.2} s | {each:.0} µs |", took.as_secs_f64());
    }
    Ok(())
}

async fn fleet(store: &Store) -> Outcome<(i64, i64)> {
    let mut change = store.change().await?;
    let user = change.insert_user("ada", "ada@example.org", "user", NOW_MS).await?;
    let workspace = change.insert_workspace("ada-lab", "Ada Lab", [9; 20], user, NOW_MS).await?;
    for number in 0..NODES {
        let node = change.insert_node(&format!("node-{number}"), NOW_MS).await?;
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
        change.put_node_report(node, &report.to_string(), NOW_MS).await?;
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

fn decide(mut nodes: Vec<NodeStanding>) -> Outcome<Duration> {
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

async fn create(store: &Store, reports: &Reports, user: i64, workspace: i64) -> Outcome<Duration> {
    let begun = Instant::now();
    for number in 0..CVMS {
        let demand = demand(number);
        let choice = demand.place(&reports.standings(store, NOW_MS).await?)?;
        let mut change = store.change().await?;
        change.lock_workspace(workspace).await?;
        change.lock_node_usage(choice.node_id).await?;
        let node = change.node(choice.node_id).await?.ok_or("no such node")?;
        NodeStanding::of(&node, NOW_MS).accept(&demand.needs)?;
        change.insert_cvm(&cvm(number, user, workspace, &demand.needs, &choice), NOW_MS).await?;
        change.commit().await?;
    }
    Ok(begun.elapsed())
}

fn cvm(number: u32, user: i64, workspace: i64, needs: &Requirements, choice: &Choice) -> NewCvm {
    let mut seed = [0; 20];
    seed[..4].copy_from_slice(&number.to_be_bytes());
    NewCvm {
        workspace_id: workspace,
        user_id: user,
        node_id: choice.node_id,
        vm_uuid: Uuid::from_u128(u128::from(number) + 1),
        name: format!("app-{number}"),
        app_id: AppId::from_bytes(seed),
        kms_id: None,
        listed: 0,
        configuration: Configuration {
            compose_hash: ComposeHash::from_bytes([7; 32]),
            app_compose: json!({"docker_compose_file": "services: {}"}).to_string(),
            encrypted_env: None,
            env_pubkey: None,
            user_config: None,
            os_image_hash: choice.image.os_image_hash,
            os_image_name: choice.image.name.clone(),
            instance_type: None,
            vcpu: needs.vcpu,
            memory_mb: needs.memory_mb,
            disk_gb: needs.disk_gb,
            gpus: GpuSlots(choice.gpus.clone()),
        },
    }
}
