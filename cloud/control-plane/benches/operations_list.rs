//! The history of one CVM with 100, 10,000 and 1,000,000 events, in the embedded database: full pages of equal
//! length at its beginning, in its middle and at its end, and the first page of a kind of which there are twelve.
//!
//! `cargo bench -p cloister-control-plane --bench operations_list` prints the table; docs/performance.md
//! quotes it. Server and load share the machine.
#![expect(clippy::print_stdout, reason = "a bench prints")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use cloister_app_compose::{AppId, ComposeHash, OsImageHash};
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

const NOW_MS: i64 = 1_790_000_000_000;
const EVENTS: [i64; 3] = [100, 10_000, 1_000_000];
/// Events of an operation, about as many as a restart has.
const EVENTS_EACH: i64 = 8;
/// Operations of a page; the smallest history fills one.
const PAGE: i64 = 10;
/// How many operations are of the rare kind, however many there are.
const OPERATIONS_OF_RARE_KIND: i64 = 12;
/// Timed requests of a page.
const REQUESTS: usize = 400;
const WARM_UP: usize = 50;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, Failure>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut tables = Vec::new();
    for events in EVENTS {
        tables.push(measure(events).await?);
    }
    println!("| Page of {PAGE} | {} | p99, largest / smallest |", EVENTS.map(heading).join(" | "));
    println!("|---|---|---|---|---|");
    for (index, name) in PAGES.iter().enumerate() {
        let row: Vec<Figures> = tables.iter().filter_map(|table| table.get(index).copied()).collect();
        let cells: Vec<_> = row.iter().map(|cell| format!("{:.2} / {:.2} ms", cell.p50, cell.p99)).collect();
        let (Some(small), Some(large)) = (row.first(), row.last()) else { return Err("no figures".into()) };
        println!("| {name} | {} | {:.2} |", cells.join(" | "), large.p99 / small.p99);
    }
    Ok(())
}

const PAGES: [&str; 4] = ["first", "middle", "last", "first, a rare kind"];

fn heading(events: i64) -> String {
    format!("{events} events, p50 / p99")
}

#[derive(Clone, Copy)]
struct Figures {
    p50: f64,
    p99: f64,
}

/// Times the pages of [`PAGES`] for a CVM with this many events.
async fn measure(events: i64) -> Outcome<Vec<Figures>> {
    let dir = tempfile::tempdir()?;
    let any: SocketAddr = "127.0.0.1:0".parse()?;
    let config = Config::embedded(dir.path().to_owned(), any, any);
    let first_start = ControlPlane::start(config.clone()).await?;
    let key = first_start.first_key().ok_or("no first key")?.reveal().to_owned();
    first_start.stop().await;
    let operations = events / EVENTS_EACH;
    let cvm = fill(dir.path(), operations).await?;
    let control_plane = ControlPlane::start(config).await?;
    let mut client = Client::connect(control_plane.api_address(), key).await?;

    let path = format!("/api/v1/cvms/{cvm}/operations?limit={PAGE}");
    let (middle, last) = client.cursors(&path, operations).await?;
    let behind = |cursor: &Option<String>| {
        cursor.as_ref().map_or_else(|| path.clone(), |cursor| format!("{path}&cursor={cursor}"))
    };
    let mut figures = Vec::new();
    for path in [path.clone(), behind(&middle), behind(&last), format!("{path}&operation_types=resize")] {
        figures.push(client.time(&path).await?);
    }
    control_plane.stop().await;
    Ok(figures)
}

/// A CVM with a history, written by the database itself.
async fn fill(data_dir: &Path, operations: i64) -> Outcome<i64> {
    let file = data_dir.join("cloister.db");
    let store = Store::open_file(&file).await?;
    let mut change = store.change().await?;
    let node = change.insert_node("alpha", NOW_MS).await?;
    let id = change.insert_cvm(&new_cvm(node), NOW_MS).await?;
    change.set_cvm_status(id, CvmStatus::Stopped, NOW_MS).await?;
    change.commit().await?;
    store.close().await;

    let pool = sqlx::SqlitePool::connect(&format!("sqlite://{}", file.display())).await?;
    let mut transaction = pool.begin().await?;
    sqlx::query(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $1) \
         INSERT INTO operations (correlation_id, cvm_id, kind, status, arguments, triggered_by, step, \
         step_deadline_ms, cancel_requested, started_at_ms, completed_at_ms, lease_until_ms) \
         SELECT printf('%08x-%04x-7000-8000-%012x', ($3 + i * 1000) / 65536, ($3 + i * 1000) % 65536, \
         (i * 2654435761) % 4294967296), $2, \
         CASE WHEN i % $4 = 0 THEN 'resize' ELSE 'restart' END, 'completed', '{}', 1, 0, 0, 0, \
         $3 + i * 1000, $3 + i * 1000 + 900, 0 FROM n",
    )
    .bind(operations)
    .bind(id)
    .bind(NOW_MS)
    // Lies as far apart as it can, and fills a page all the same.
    .bind(operations / OPERATIONS_OF_RARE_KIND)
    .execute(&mut *transaction)
    .await?;
    sqlx::query(
        "WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i + 1 < $1) \
         INSERT INTO operation_events (correlation_id, sequence, event_type, state, at_ms) \
         SELECT o.correlation_id, s.i, 'instance.restart.start_vm', 'restarting', o.started_at_ms + s.i \
         FROM operations o, s",
    )
    .bind(EVENTS_EACH)
    .execute(&mut *transaction)
    .await?;
    sqlx::query("UPDATE cvms SET operation_count = $1 WHERE id = $2")
        .bind(operations)
        .bind(id)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    pool.close().await;
    Ok(id)
}

fn new_cvm(node_id: i64) -> NewCvm {
    NewCvm {
        workspace_id: 1,
        user_id: 1,
        node_id,
        vm_uuid: Uuid::from_u128(1),
        name: "bench".to_owned(),
        app_id: AppId::from_bytes([1; 20]),
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

/// What is read of a page.
#[derive(Deserialize)]
struct Page {
    items: Vec<serde::de::IgnoredAny>,
    next_cursor: Option<String>,
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

    /// Cursors of the middle page and of the last one, found by walking through all.
    async fn cursors(&mut self, path: &str, operations: i64) -> Outcome<(Option<String>, Option<String>)> {
        let path = path.replace(&format!("limit={PAGE}"), "limit=500");
        let (mut cursor, mut middle, mut seen) = (None::<String>, None, 0);
        loop {
            let page = match &cursor {
                Some(cursor) => self.get(&format!("{path}&cursor={cursor}")).await?,
                None => self.get(&path).await?,
            };
            let page: Page = serde_json::from_slice(&page)?;
            seen += i64::try_from(page.items.len())?;
            if page.next_cursor.is_none() {
                break;
            }
            cursor = page.next_cursor;
            if seen * 2 <= operations {
                middle.clone_from(&cursor);
            }
        }
        if seen != operations {
            return Err(format!("{seen} of {operations} operations were listed").into());
        }
        Ok((middle, cursor))
    }

    async fn time(&mut self, path: &str) -> Outcome<Figures> {
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
        Ok(Figures { p50: at(50), p99: at(99) })
    }
}
