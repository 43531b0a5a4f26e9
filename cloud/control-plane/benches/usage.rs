//! The usage of an application of 1,000 CVMs over a year, each with a change every two weeks, as the API answers it:
//! totals of the whole window and a page of its hourly records.
//!
//! `cargo bench -p cloister-control-plane --bench usage` prints the table; docs/performance.md quotes it. Server and
//! client share the machine; the database is the embedded one.
#![expect(clippy::print_stdout, reason = "a bench prints")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use cloister_app_compose::{AppId, ComposeHash, OsImageHash};
use cloister_control_plane::clock::Clock;
use cloister_control_plane::operations::CvmStatus;
use cloister_control_plane::store::{Configuration, GpuSlots, NewCvm, Store};
use cloister_control_plane::{Config, ControlPlane};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use uuid::Uuid;

const CVMS: i64 = 1000;
const DAYS: i64 = 365;
/// Compute of a CVM is interrupted this often, and starts again two minutes later.
const CHANGES: i64 = 26;
const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
/// Timed requests of a page.
const REQUESTS: usize = 100;
const WARM_UP: usize = 5;
const APP: AppId = AppId::from_bytes([1; 20]);

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, Failure>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let any: SocketAddr = "127.0.0.1:0".parse()?;
    let config = Config::embedded(dir.path().to_owned(), any, any);
    let first_start = ControlPlane::start(config.clone()).await?;
    let key = first_start.first_key().ok_or("no first key")?.reveal().to_owned();
    first_start.stop().await;
    let now = Clock::system().now();
    let intervals = fill(dir.path(), now.as_millisecond()).await?;
    let control_plane = ControlPlane::start(config).await?;
    let mut client = Client::connect(control_plane.api_address(), key).await?;

    let start = now.checked_sub(jiff::SignedDuration::from_hours(24 * DAYS))?;
    let path = format!("/api/v1/apps/{APP}/usage");
    let year = format!("{path}?start_date={start}&end_date={now}");
    let total = client.records(&format!("{year}&limit=1")).await?.total;
    println!("{intervals} intervals, {total} hourly records in a year");
    println!("| Usage of {CVMS} CVMs | p50 | p99 (target 100 ms) |\n|---|---|---|");
    for (name, path) in [
        ("a year, its newest 500 records", format!("{year}&limit=500")),
        ("a year, 500 records in the middle", format!("{year}&limit=500&offset={}", total / 2)),
        ("a year, its oldest 500 records", format!("{year}&limit=500&offset={}", total - 500)),
        ("a year, its newest 5000 records", format!("{year}&limit=5000")),
        ("seven days, their newest 500 records", path.clone()),
    ] {
        let (p50, p99) = client.time(&path).await?;
        println!("| {name} | {p50:.1} ms | {p99:.1} ms |");
    }
    control_plane.stop().await;
    Ok(())
}

/// CVMs with a year of usage, written by the database itself; how many intervals there are.
async fn fill(data_dir: &Path, now_ms: i64) -> Outcome<i64> {
    let file = data_dir.join("cloister.db");
    let store = Store::open_file(&file).await?;
    let mut change = store.change().await?;
    let node = change.insert_node("alpha", now_ms).await?;
    for number in 0..CVMS {
        let id = change.insert_cvm(&new_cvm(node, number), now_ms).await?;
        change.set_cvm_status(id, CvmStatus::Stopped, now_ms).await?;
    }
    change.commit().await?;
    store.close().await;

    let pool = sqlx::SqlitePool::connect(&format!("sqlite://{}", file.display())).await?;
    let begin_ms = now_ms - (DAYS + 1) * DAY_MS;
    let length_ms = (now_ms - begin_ms) / CHANGES;
    for (usage_type, pieces, what, break_ms) in [
        ("compute", CHANGES, r#""instance_type":"tdx.small","vcpu":2,"memory_mb":4096"#, 2 * MINUTE_MS),
        ("storage", 2, r#""disk_gb":20"#, 0),
    ] {
        let length_ms = length_ms * CHANGES / pieces;
        sqlx::query(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $1) \
             INSERT INTO usage_intervals (cvm_id, usage_type, workspace_id, app_id, what, rate_per_hour, from_ms, to_ms) \
             SELECT c.id, $2, c.workspace_id, c.app_id, $3, CASE i % 2 WHEN 0 THEN '0.058' ELSE '0.0613' END, \
             $4 + i * $5 + c.id * 1000, \
             CASE i + 1 WHEN $1 THEN 9223372036854775807 ELSE $4 + (i + 1) * $5 + c.id * 1000 - $6 END \
             FROM cvms c, n",
        )
        .bind(pieces)
        .bind(usage_type)
        .bind(what)
        .bind(begin_ms)
        .bind(length_ms)
        .bind(break_ms)
        .execute(&pool)
        .await?;
    }
    let (count,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM usage_intervals").fetch_one(&pool).await?;
    pool.close().await;
    Ok(count)
}

fn new_cvm(node_id: i64, number: i64) -> NewCvm {
    NewCvm {
        workspace_id: 1,
        user_id: 1,
        node_id,
        vm_uuid: Uuid::from_u128(number.unsigned_abs().into()),
        name: format!("bench-{number}"),
        app_id: APP,
        kms_id: None,
        listed: 0,
        configuration: Configuration {
            compose_hash: ComposeHash::from_bytes([1; 32]),
            app_compose: "{}".to_owned(),
            encrypted_env: None,
            env_pubkey: None,
            user_config: None,
            os_image_hash: OsImageHash::from_bytes([1; 32]),
            os_image_name: "cloister-0.1.0".to_owned(),
            instance_type: None,
            vcpu: 1,
            memory_mb: 512,
            disk_gb: 10,
            gpus: GpuSlots::default(),
        },
    }
}

/// What is read of an answer.
#[derive(Deserialize)]
struct Usage {
    usage: Vec<serde::de::IgnoredAny>,
    total: u64,
}

/// One connection to the API.
struct Client {
    sender: SendRequest<Empty<Bytes>>,
    key: String,
}

impl Client {
    async fn connect(server: SocketAddr, key: String) -> Outcome<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, key })
    }

    async fn get(&mut self, path: &str) -> Outcome<Bytes> {
        let request =
            Request::get(path).header("host", "bench").header("x-api-key", &self.key).body(Empty::new())?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            return Err(format!("{path}: {status} {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(body)
    }

    async fn records(&mut self, path: &str) -> Outcome<Usage> {
        let usage: Usage = serde_json::from_slice(&self.get(path).await?)?;
        if usage.usage.is_empty() {
            return Err(format!("{path}: no records").into());
        }
        Ok(usage)
    }

    /// Median and 99th percentile in milliseconds.
    async fn time(&mut self, path: &str) -> Outcome<(f64, f64)> {
        self.records(path).await?;
        for _ in 0..WARM_UP {
            self.get(path).await?;
        }
        let mut latencies = Vec::with_capacity(REQUESTS);
        for _ in 0..REQUESTS {
            let asked = Instant::now();
            self.get(path).await?;
            latencies.push(asked.elapsed().as_secs_f64() * 1e3);
        }
        latencies.sort_by(f64::total_cmp);
        let at = |part: usize| latencies.get(latencies.len() * part / 100).copied().unwrap_or(f64::NAN);
        Ok((at(50), at(99)))
    }
}
