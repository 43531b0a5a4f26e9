//! Reads of the management API against a bare axum handler that runs the same SQL, side by side in one
//! run, and the same reads with 100 and with 100,000 CVMs in the store.
//!
//! `cargo bench -p cloister-control-plane --bench api_reads` prints both tables; docs/performance.md
//! quotes them. Server and load share the machine, for the API and the bare handler alike.
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a bench prints; its sizes are small and known"
)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use cloister_app_compose::{AppId, ComposeHash, OsImageHash};
use cloister_control_plane::operations::CvmStatus;
use cloister_control_plane::store::{CvmFilter, CvmRow, GpuSlots, NewCvm, ProvisionRow, Store};
use cloister_control_plane::{Config, ControlPlane};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

const CONNECTIONS: usize = 8;
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;
const NOW_MS: i64 = 1_790_000_000_000;
const SMALL: u32 = 100;
const LARGE: u32 = 100_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, Failure>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let small = Installation::with_cvms(SMALL).await?;
    println!("| Read | API req/s | bare req/s | API / bare |\n|---|---|---|---|");
    compare("single CVM", &small, &format!("/api/v1/cvms/{}", small.a_cvm), "/single").await?;
    compare("page of 50", &small, "/api/v1/cvms/paginated?page_size=50", "/page").await?;

    let large = Installation::with_cvms(LARGE).await?;
    println!("\n| Read | p99 with {SMALL} CVMs | p99 with {LARGE} CVMs | large / small |\n|---|---|---|---|");
    for (name, path) in [("single CVM", None), ("page of 50", Some("/api/v1/cvms/paginated?page_size=50"))] {
        let path_in =
            |of: &Installation| path.map_or_else(|| format!("/api/v1/cvms/{}", of.a_cvm), str::to_owned);
        let mut pairs = Vec::new();
        for _ in 0..ROUNDS {
            let few = load(small.api, &path_in(&small), &small.key).await?.p99;
            let many = load(large.api, &path_in(&large), &large.key).await?.p99;
            pairs.push((few, many));
        }
        let few = median(pairs.iter().map(|pair| pair.0.as_secs_f64() * 1e3));
        let many = median(pairs.iter().map(|pair| pair.1.as_secs_f64() * 1e3));
        println!("| {name} | {few:.2} ms | {many:.2} ms | {:.2} |", many / few);
    }
    Ok(())
}

async fn compare(name: &str, on: &Installation, api_path: &str, bare_path: &str) -> Outcome<()> {
    let (mut api, mut bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let of_api = load(on.api, api_path, &on.key).await?.rate;
        let of_bare = load(on.bare, bare_path, &on.key).await?.rate;
        api.push(of_api);
        bare.push(of_bare);
        ratios.push(of_api / of_bare);
    }
    let [api, bare, ratio] = [api, bare, ratios].map(|figures| median(figures.into_iter()));
    println!("| {name} | {api:.0} | {bare:.0} | {ratio:.2} |");
    Ok(())
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A control plane and a bare handler over one embedded database.
struct Installation {
    _dir: tempfile::TempDir,
    _control_plane: ControlPlane,
    api: SocketAddr,
    bare: SocketAddr,
    key: String,
    a_cvm: i64,
}

impl Installation {
    async fn with_cvms(count: u32) -> Outcome<Self> {
        let dir = tempfile::tempdir()?;
        let any: SocketAddr = "127.0.0.1:0".parse()?;
        let config = Config::embedded(dir.path().to_owned(), any, any);
        let first_start = ControlPlane::start(config.clone()).await?;
        let key = first_start.first_key().ok_or("no first key")?.reveal().to_owned();
        first_start.stop().await;
        let a_cvm = fill(dir.path(), count).await?;
        let control_plane = ControlPlane::start(config).await?;
        let bare = serve_bare(dir.path(), &key, a_cvm).await?;
        let api = control_plane.api_address();
        Ok(Self { _dir: dir, _control_plane: control_plane, api, bare, key, a_cvm })
    }
}

/// Adds CVMs to the first workspace; the id of one in the middle.
async fn fill(data_dir: &Path, count: u32) -> Outcome<i64> {
    let store = Store::open_file(&data_dir.join("cloister.db")).await?;
    let mut change = store.change().await?;
    let node = change.insert_node("alpha", NOW_MS).await?;
    let mut ids = Vec::new();
    for number in 0..count {
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        let provision = provision(node, &format!("bench-{number}"), seed);
        let new = NewCvm::of_provision(&provision, 1, Uuid::from_u128(u128::from(number)), None);
        let id = change.insert_cvm(&new, NOW_MS).await?;
        change.set_cvm_status(id, CvmStatus::Stopped, NOW_MS).await?;
        ids.push(id);
    }
    change.commit().await?;
    store.close().await;
    Ok(ids.get(ids.len() / 2).copied().ok_or("no CVM")?)
}

fn provision(node_id: i64, name: &str, seed: [u8; 32]) -> ProvisionRow {
    let app_compose = json!({
        "docker_compose_file": "services:\n  web:\n    image: cloister.local/hello:1\n    ports: [\"80:80\"]\n",
        "features": ["kms", "tproxy-net"], "manifest_version": 2, "name": name,
        "public_logs": true, "public_sysinfo": true, "runner": "docker-compose",
    });
    let mut app_id = [0; 20];
    app_id.copy_from_slice(&seed[..20]);
    ProvisionRow {
        workspace_id: 1,
        compose_hash: ComposeHash::from_bytes(seed),
        app_id: AppId::from_bytes(app_id),
        name: name.to_owned(),
        app_compose: app_compose.to_string(),
        node_id,
        os_image_hash: OsImageHash::from_bytes([1; 32]),
        os_image_name: "cloister-0.1.0".to_owned(),
        instance_type: Some("tdx.small".to_owned()),
        vcpu: 2,
        memory_mb: 1024,
        disk_gb: 20,
        listed: 0,
        env_keys: "[]".to_owned(),
        user_config: None,
        kms_id: None,
        env_pubkey: None,
        encrypted_env: None,
        gpus: GpuSlots::default(),
        awaits_contract: 0,
        device_id: None,
        expires_at_ms: NOW_MS,
    }
}

#[derive(Clone)]
struct Bare {
    store: Store,
    key_hash: String,
    cvm: i64,
}

/// The baseline: the same statements, the rows as JSON, nothing else.
async fn serve_bare(data_dir: &Path, key: &str, cvm: i64) -> Outcome<SocketAddr> {
    let store = Store::open_file(&data_dir.join("cloister.db")).await?;
    let state = Bare { store, key_hash: hex::encode(Sha256::digest(key)), cvm };
    let router =
        Router::new().route("/single", get(bare_single)).route("/page", get(bare_page)).with_state(state);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

async fn bare_single(State(bare): State<Bare>) -> Json<Value> {
    let _ = bare.store.caller(&bare.key_hash, NOW_MS).await;
    let row = bare.store.cvm(bare.cvm).await.ok().flatten();
    Json(row.as_ref().map_or(Value::Null, columns))
}

async fn bare_page(State(bare): State<Bare>) -> Json<Value> {
    let _ = bare.store.caller(&bare.key_hash, NOW_MS).await;
    let filter = CvmFilter { workspace_id: Some(1), ..CvmFilter::default() };
    let total = bare.store.count_cvms(&filter).await.unwrap_or_default();
    let rows = bare.store.list_cvms(&filter, 50, 0).await.unwrap_or_default();
    Json(json!({ "items": rows.iter().map(columns).collect::<Vec<_>>(), "total": total }))
}

fn columns(row: &CvmRow) -> Value {
    json!({
        "id": row.id, "name": row.name, "status": row.status.as_str(), "app_id": row.app_id,
        "vm_uuid": row.vm_uuid, "instance_id": row.instance_id, "compose_hash": row.compose_hash,
        "app_compose": row.app_compose, "os_image_hash": row.os_image_hash,
        "os_image_name": row.os_image_name, "instance_type": row.instance_type, "vcpu": row.vcpu,
        "memory_mb": row.memory_mb, "disk_gb": row.disk_gb, "listed": row.listed,
        "boot_progress": row.boot_progress, "boot_error": row.boot_error,
        "created_at_ms": row.created_at_ms, "updated_at_ms": row.updated_at_ms,
    })
}

struct Figures {
    /// Requests per second.
    rate: f64,
    p99: Duration,
}

/// Keeps every connection busy for one round.
async fn load(server: SocketAddr, path: &str, key: &str) -> Outcome<Figures> {
    let end = Instant::now() + ROUND;
    let connections: Vec<_> = (0..CONNECTIONS)
        .map(|_| tokio::spawn(keep_asking(server, path.to_owned(), key.to_owned(), end)))
        .collect();
    let mut latencies = Vec::new();
    for connection in connections {
        latencies.extend(connection.await??);
    }
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied().ok_or("no answers")?;
    Ok(Figures { rate: latencies.len() as f64 / ROUND.as_secs_f64(), p99 })
}

async fn keep_asking(server: SocketAddr, path: String, key: String, end: Instant) -> Outcome<Vec<Duration>> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut latencies = Vec::new();
    while Instant::now() < end {
        let asked = Instant::now();
        ask(&mut sender, &path, &key).await?;
        latencies.push(asked.elapsed());
    }
    Ok(latencies)
}

async fn ask(sender: &mut SendRequest<Empty<Bytes>>, path: &str, key: &str) -> Outcome<()> {
    let request = Request::get(path).header("host", "bench").header("x-api-key", key).body(Empty::new())?;
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        return Err(format!("{path}: {status} {}", String::from_utf8_lossy(&body)).into());
    }
    Ok(())
}
