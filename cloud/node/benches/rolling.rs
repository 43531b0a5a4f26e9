//! A rolling change of three replicas under constant load: each is drained, goes away and comes back, one after
//! the other, while `wrk` (package `wrk`) sends requests through the ingress. Prints a table and fails when a
//! request was lost.
//!
//! The guests are HTTP servers on loopback: what is measured is the ingress.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cloister_node::ingress::{DEFAULT_DOMAIN, Ingress, IngressConfig, Limits};
use cloister_node::{Backend, Backends, Flow, Flows, NoPeers, Readiness};
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const APP: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const REPLICAS: [Uuid; 3] = [Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3)];
/// Connections of the load generator.
const CONNECTIONS: usize = 32;
/// How long each measurement takes.
const DURATION: Duration = Duration::from_secs(12);
/// Pause between two steps of the change: nine of them fit into a measurement.
const STEP: Duration = Duration::from_secs(1);
/// Bytes of a body.
const BODY_BYTES: usize = 1024;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<ExitCode, Failure> {
    // `cargo test --benches` runs this, too, with nothing to measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(ExitCode::SUCCESS);
    }
    tokio::runtime::Runtime::new()?.block_on(measure())
}

async fn measure() -> Result<ExitCode, Failure> {
    let replicas = Arc::new(Replicas::default());
    let mut guests = Vec::new();
    for vm in REPLICAS {
        guests.push(replicas.boot(vm).await?);
    }
    let config = IngressConfig {
        http_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        https: None,
        domain: DEFAULT_DOMAIN.parse()?,
        limits: Limits::default(),
    };
    let ingress = Ingress::start(config, Arc::clone(&replicas) as _, Arc::new(NoPeers)).await?;
    let scripts = tempfile::tempdir()?;
    let through = ingress.http_address();

    let mut out = io::stdout();
    writeln!(
        out,
        "| {CONNECTIONS} connections | req/s | p50 | p99 | requests | lost |\n|---|---|---|---|---|---|"
    )?;
    let mut lost = 0;
    for method in ["GET", "POST"] {
        let load = Load { method, scripts: scripts.path() };
        // A change gave it another address.
        let first = guests.first().ok_or("there is a guest")?.address;
        for (what, address, rolls) in [
            ("one guest, no ingress", first, false),
            ("ingress, three replicas at rest", through, false),
            ("ingress, rolling change", through, true),
        ] {
            let seen = if rolls {
                let (seen, rolled) = tokio::join!(load.run(address), replicas.roll(&mut guests));
                rolled?;
                seen?
            } else {
                load.run(address).await?
            };
            lost += seen.lost;
            writeln!(out, "| {method}, {what} | {seen}")?;
        }
    }
    ingress.stop(Duration::from_secs(1)).await;
    Ok(if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the load generator sends.
struct Load<'a> {
    method: &'static str,
    scripts: &'a Path,
}

/// What it saw.
struct Seen {
    requests: u64,
    seconds: f64,
    lost: u64,
    p50_us: f64,
    p99_us: f64,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "requests of a few seconds, far below 2^52")]
        let rate = self.requests as f64 / self.seconds;
        let (p50, p99) = (self.p50_us / 1000.0, self.p99_us / 1000.0);
        write!(f, "{rate:.0} | {p50:.2} ms | {p99:.2} ms | {} | {} |", self.requests, self.lost)
    }
}

impl Load<'_> {
    async fn run(&self, address: SocketAddr) -> Result<Seen, Failure> {
        let script = self.scripts.join("load.lua");
        let body = if self.method == "POST" { BODY_BYTES } else { 0 };
        std::fs::write(
            &script,
            format!("wrk.method = '{}'\nwrk.body = string.rep('x', {body})\n{DONE}", self.method),
        )?;
        let output = Command::new("wrk")
            .args(["--threads", "2", "--connections", &CONNECTIONS.to_string()])
            .args(["--duration", &DURATION.as_secs().to_string(), "--script"])
            .arg(&script)
            .args(["--header", &format!("Host: {APP}.{DEFAULT_DOMAIN}"), &format!("http://{address}/")])
            .output()
            .await
            .map_err(|error| {
                format!("wrk cannot be run; scripts/install-dependencies.sh test installs it: {error}")
            })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("seen "))
            .ok_or_else(|| format!("wrk measured nothing: {}", String::from_utf8_lossy(&output.stderr)))?;
        let numbers: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [requests, micros, lost, p50_us, p99_us] = numbers[..] else { return Err(line.into()) };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts")]
        let (requests, lost) = (requests as u64, lost as u64);
        Ok(Seen { requests, seconds: micros / 1e6, lost, p50_us, p99_us })
    }
}

/// What was lost: connections that broke and answers that say so.
const DONE: &str = "function done(summary, latency)
    local e = summary.errors
    local lost = e.connect + e.read + e.write + e.status + e.timeout
    io.write(string.format('seen %d %d %d %f %f\\n', summary.requests, summary.duration, lost,
        latency:percentile(50), latency:percentile(99)))
end
";

/// The replicas as a node would know them.
#[derive(Default)]
struct Replicas(Mutex<HashMap<Uuid, Replica>>);

struct Replica {
    address: SocketAddr,
    readiness: Readiness,
    flows: Flows,
}

/// A stand-in for a guest; without power its connections break.
struct Guest {
    address: SocketAddr,
    power: CancellationToken,
}

impl Replicas {
    fn with<T>(&self, vm: Uuid, look: impl FnOnce(&mut Replica) -> T) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&vm).map(look)
    }

    /// Turns a guest on and sends requests to it.
    async fn boot(&self, vm: Uuid) -> io::Result<Guest> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let guest = Guest { address: listener.local_addr()?, power: CancellationToken::new() };
        let off = guest.power.clone();
        tokio::spawn(guest.power.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(echo));
                tokio::spawn(off.clone().run_until_cancelled_owned(connection));
            }
        }));
        let replica =
            Replica { address: guest.address, readiness: Readiness::Ready, flows: Flows::default() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(vm, replica);
        Ok(guest)
    }

    /// Replaces one replica after the other.
    async fn roll(&self, guests: &mut [Guest]) -> io::Result<()> {
        for (vm, guest) in REPLICAS.into_iter().zip(guests) {
            sleep(STEP).await;
            let flows = self.with(vm, |replica| {
                replica.readiness = Readiness::Leaving;
                replica.flows.clone()
            });
            flows.unwrap_or_default().ended().await;
            guest.power.cancel();
            sleep(STEP).await;
            *guest = self.boot(vm).await?;
        }
        Ok(())
    }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    Ok(Response::new(Full::from(body)))
}

impl Backends for Replicas {
    fn resolve(&self, id: &str) -> Vec<Backend> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_app = known.iter().filter(|_| id == APP);
        of_app
            .map(|(vm, replica)| Backend { vm: *vm, readiness: replica.readiness, is_claim: false })
            .collect()
    }

    fn begin(&self, vm: Uuid) -> Option<Flow> {
        self.with(vm, |replica| (replica.readiness == Readiness::Ready).then(|| replica.flows.begin()))
            .flatten()
    }

    fn connect(&self, vm: Uuid, _: u16) -> BoxFuture<'_, io::Result<TcpStream>> {
        let address = self.with(vm, |replica| replica.address);
        Box::pin(async move { TcpStream::connect(address.ok_or(io::ErrorKind::NotFound)?).await })
    }
}
