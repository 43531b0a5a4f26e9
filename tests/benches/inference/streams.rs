//! Streams: how soon they begin, and what many open ones take.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::process::Process;

/// Streams one after the other.
const STREAMS: usize = 2000;
/// Streams at once.
const OPEN: usize = 1000;
/// How long they stay open: `CLOISTER_BENCH_STREAM_SECONDS`, or this.
const OPEN_SECONDS: u64 = 30;

const FAST: &str =
    r#"{"model":"bench","stream":true,"messages":[{"role":"user","content":"Say something quickly."}]}"#;
const SLOW: &str =
    r#"{"model":"bench","stream":true,"messages":[{"role":"user","content":"Say something slowly."}]}"#;

/// Times to first bytes and to ends, each sorted, in milliseconds.
struct Times {
    first: Vec<f64>,
    whole: Vec<f64>,
}

/// What a table shows of both ways.
pub(crate) struct FirstBytes {
    bare: Times,
    through: Times,
}

fn quantile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or(f64::NAN)
}

impl fmt::Display for FirstBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, bare, through) in [
            ("first byte", &self.bare.first, &self.through.first),
            ("last byte", &self.bare.whole, &self.through.whole),
        ] {
            for percent in [50, 99] {
                let (bare, through) = (quantile(bare, percent), quantile(through, percent));
                writeln!(f, "| {what}, p{percent} | {bare:.3} ms | {through:.3} ms |")?;
            }
        }
        Ok(())
    }
}

impl FirstBytes {
    /// What the gateway adds to the first byte, the median.
    pub(crate) fn added_ms(&self) -> f64 {
        quantile(&self.through.first, 50) - quantile(&self.bare.first, 50)
    }
}

/// Streams over one kept-alive connection, with and without the gateway in between.
pub(crate) async fn first_bytes(bare: SocketAddr, through: SocketAddr) -> Result<FirstBytes, Failure> {
    Ok(FirstBytes { bare: times(bare).await?, through: times(through).await? })
}

/// Streams through a gateway.
pub(crate) async fn some(through: &Process) -> Result<(), Failure> {
    times(through.address).await.map(drop)
}

async fn times(address: SocketAddr) -> Result<Times, Failure> {
    let http = client()?;
    let (mut first, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..STREAMS {
        let begun = Instant::now();
        let mut answer = post(&http, address, FAST).send().await?.error_for_status()?;
        // A fast stream may come as one piece.
        let mut end = answer.chunk().await?.ok_or("an empty stream")?;
        first.push(begun.elapsed().as_secs_f64() * 1e3);
        while let Some(piece) = answer.chunk().await? {
            end = piece;
        }
        whole.push(begun.elapsed().as_secs_f64() * 1e3);
        if !end.ends_with(b"[DONE]\n\n") {
            return Err("a stream ended without its terminator".into());
        }
    }
    first.sort_by(f64::total_cmp);
    whole.sort_by(f64::total_cmp);
    Ok(Times { first, whole })
}

fn client() -> Result<reqwest::Client, Failure> {
    Ok(reqwest::Client::builder().no_proxy().tls_certs_only([]).tcp_nodelay(true).build()?)
}

fn post(http: &reqwest::Client, address: SocketAddr, body: &'static str) -> reqwest::RequestBuilder {
    http.post(format!("http://{address}/v1/chat/completions"))
        .header("content-type", "application/json")
        .header("authorization", "Bearer sk-of-the-bench")
        .body(body)
}

/// Streams that stay open.
pub(crate) struct Open(Vec<tokio::task::JoinHandle<()>>);

impl Open {
    /// Closes them and tells how many they were. Fails if one did not stay open.
    pub(crate) async fn close(self) -> Result<usize, Failure> {
        let number = self.0.len();
        for reader in self.0 {
            reader.abort();
            if reader.await.is_ok() {
                return Err("a stream did not stay open".into());
            }
        }
        Ok(number)
    }
}

/// Opens many streams.
pub(crate) async fn open(gateway: &Process) -> Result<Open, Failure> {
    let http = client()?;
    let mut readers = Vec::with_capacity(OPEN);
    for _ in 0..OPEN {
        let mut answer = post(&http, gateway.address, SLOW).send().await?.error_for_status()?;
        readers.push(tokio::spawn(async move { while let Ok(Some(_)) = answer.chunk().await {} }));
    }
    Ok(Open(readers))
}

/// Resident memory, in megabytes, with many streams that have been open for a while.
pub(crate) async fn resident_mb_with_many(gateway: &Process) -> Result<f64, Failure> {
    let seconds = std::env::var("CLOISTER_BENCH_STREAM_SECONDS").ok().and_then(|text| text.parse().ok());
    let open = open(gateway).await?;
    tokio::time::sleep(Duration::from_secs(seconds.unwrap_or(OPEN_SECONDS))).await;
    let resident_mb = gateway.resident_mb()?;
    open.close().await?;
    Ok(resident_mb)
}
