//! Delivering webhooks to receivers on this machine, with an embedded database on disk: how many a second, how long
//! from an event to its first attempt, and what that becomes when half of the receivers hang. Receivers, requests
//! and database share this machine's cores.
//!
//! `cargo bench -p cloister-control-plane --bench webhooks` prints it; docs/performance.md quotes it.
#![expect(clippy::print_stdout, reason = "a bench prints")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloister_app_compose::AppId;
use cloister_control_plane::clock::{Clock, Random};
use cloister_control_plane::store::{NewWebhook, Store};
use cloister_control_plane::webhooks::{
    Dispatcher, DispatcherOptions, Emission, Limits, Secrets, Subject, emit,
};
use cloister_outbound::{Outbound, OutboundConfig, SystemResolver};
use cloister_webhooks::{EventKind, Secret};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Receivers, each of a workspace of its own.
const RECEIVERS: usize = 20;
/// Events for throughput, and deliveries: each goes to one receiver.
const MANY: usize = 40_000;
/// Events a second for latency, for so long.
const RATE: usize = 500;
const SECONDS: usize = 20;
/// Events that one transaction writes.
const TOGETHER: usize = 5;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let cloud = Cloud::open(0).await?;
    for first in (0..MANY).step_by(500) {
        cloud.happen(first..first + 500).await?;
    }
    let began = Instant::now();
    let dispatcher = cloud.deliver();
    cloud.arrived(MANY).await;
    let took = began.elapsed().as_secs_f64();
    dispatcher.stop().await;
    let rate = f64::from(u32::try_from(MANY)?) / took;
    println!("{MANY} deliveries to {RECEIVERS} receivers: {took:.1} s, {rate:.0} a second\n");

    println!(
        "| {RATE} events a second for {SECONDS} s, event to first attempt | p50 | p99 | most |\n|---|---|---|---|"
    );
    latency("all receivers answer", 0).await?;
    latency("half of the receivers hang; the others", RECEIVERS / 2).await?;
    Ok(())
}

/// How long events take to those receivers that answer in both cases.
async fn latency(name: &str, hanging: usize) -> Outcome<()> {
    let cloud = Cloud::open(hanging).await?;
    let dispatcher = cloud.deliver();
    let mut ticks =
        tokio::time::interval(Duration::from_secs(1) * u32::try_from(TOGETHER)? / u32::try_from(RATE)?);
    let mut happened = Vec::new();
    for first in (0..RATE * SECONDS).step_by(TOGETHER) {
        ticks.tick().await;
        happened.resize(first + TOGETHER, Instant::now());
        cloud.happen(first..first + TOGETHER).await?;
    }
    let answering = |number: &usize| number % RECEIVERS >= RECEIVERS / 2;
    let measured = (0..RATE * SECONDS).filter(answering).count();
    cloud.arrived(if hanging == 0 { RATE * SECONDS } else { measured }).await;
    let mut waits: Vec<_> = cloud
        .got
        .lock()
        .iter()
        .filter(|(number, _)| answering(number))
        .filter_map(|(number, at)| Some(at.saturating_duration_since(*happened.get(*number)?)))
        .collect();
    waits.sort();
    let at =
        |share: usize| waits.get(waits.len() * share / 100).copied().unwrap_or_default().as_secs_f64() * 1e3;
    let most = waits.last().copied().unwrap_or_default().as_secs_f64() * 1e3;
    println!("| {name} | {:.1} ms | {:.1} ms | {most:.1} ms |", at(50), at(99));
    if hanging == 0 {
        dispatcher.stop().await;
    } else {
        // It would wait for what hangs; the process ends here.
        std::mem::forget(dispatcher);
    }
    Ok(())
}

/// Which event arrived when.
type Got = Arc<Mutex<Vec<(usize, Instant)>>>;

struct Cloud {
    _dir: tempfile::TempDir,
    store: Store,
    secrets: Arc<Secrets>,
    workspaces: Vec<i64>,
    got: Got,
}

impl Cloud {
    /// An installation with receivers, the first so many of which hang.
    async fn open(hanging: usize) -> Outcome<Self> {
        let dir = tempfile::tempdir()?;
        let store = Store::open_file(&dir.path().join("cloister.db")).await?;
        let secrets = Arc::new(Secrets::open(dir.path(), Random)?);
        let got = Got::default();
        let now_ms = Clock::system().now_ms();
        let mut change = store.change().await?;
        let user = change.insert_user("ada", "ada@example.org", "user", now_ms).await?;
        let mut workspaces = Vec::new();
        for number in 0..RECEIVERS {
            let name = format!("lab-{number}");
            let workspace_id = change.insert_workspace(&name, &name, [9; 20], user, now_ms).await?;
            let id = change.next_webhook_id().await?;
            let path = if number < hanging { "hang" } else { "hook" };
            let new = NewWebhook {
                id,
                workspace_id,
                url: &format!("http://{}/{path}", receiver(&got).await?),
                name: None,
                events: r#"["app.budget.alert"]"#,
                sealed_secret: &secrets.seal(id, &Secret::generate(Random.bytes()?), Random)?,
            };
            change.insert_webhook(&new, now_ms).await?;
            workspaces.push(workspace_id);
        }
        change.commit().await?;
        Ok(Self { _dir: dir, store, secrets, workspaces, got })
    }

    /// Events with these numbers, in one transaction, to one receiver after the other.
    async fn happen(&self, numbers: std::ops::Range<usize>) -> Outcome<()> {
        let mut change = self.store.change().await?;
        let now_ms = Clock::system().now_ms();
        for number in numbers {
            let workspace = self.workspaces.get(number % RECEIVERS).ok_or("a workspace")?;
            let mut app = [0; 20];
            app.iter_mut().zip(number.to_be_bytes()).for_each(|(to, from)| *to = from);
            let emission = Emission {
                workspace_id: *workspace,
                kind: EventKind::BudgetAlert,
                subject: Subject::App(AppId::from_bytes(app)),
                operation: None,
                data: json!({ "number": number, "app_id": format!("0x{}", hex::encode(app)), "percent": 80 }),
            };
            emit(&mut change, Random, &emission, now_ms).await?;
        }
        Ok(change.commit().await?)
    }

    fn deliver(&self) -> Dispatcher {
        let config = OutboundConfig {
            allowed: "127.0.0.0/8".parse().into_iter().collect(),
            plain_http_to_allowed: true,
            ..OutboundConfig::default()
        };
        Dispatcher::start(DispatcherOptions {
            store: self.store.clone(),
            post: Arc::new(Outbound::new(config, Arc::new(SystemResolver::new()))),
            secrets: Arc::clone(&self.secrets),
            clock: Clock::system(),
            token_key: [5; 32],
            public_url: PUBLIC_URL.parse().unwrap_or_else(|_| unreachable!("a constant")),
            limits: Limits::default(),
            figures: Arc::default(),
            observer: None,
        })
    }

    async fn arrived(&self, count: usize) {
        while self.got.lock().len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A receiver on a port of its own.
async fn receiver(got: &Got) -> Outcome<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let got = Arc::clone(got);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&got)));
        }
    });
    Ok(address)
}

const PUBLIC_URL: &str = "https://cloud.example.org";

/// Answers the requests of a connection, or hangs where the path says so.
async fn serve(stream: TcpStream, got: Got) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut line, mut hangs) = (0, String::new(), false);
        loop {
            line.clear();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            hangs |= line.starts_with("POST /hang");
            let header = line.trim_end();
            if header.is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        if hangs {
            std::future::pending::<()>().await;
        }
        let at = Instant::now();
        let event: Value = serde_json::from_slice(&body).ok()?;
        let number = event.get("data")?.get("number")?.as_u64()?;
        got.lock().push((usize::try_from(number).ok()?, at));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.ok()?;
    }
}
