//! What the inference gateway costs: the load generator (`wrk`) and a bare upstream on one processor, the gateway alone
//! on the other, all in one run. Prints the table of docs/performance.md.
//!
//! `cargo bench -p cloister-tests --bench inference` measures the gateway; with `-- --peers` also those of the npm and
//! `PyPI` packages that `tests/inference-sdks/install-peers.sh` installs.

mod load;
mod mock;
mod process;
mod streams;

use std::error::Error;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use load::{Load, Seen};
use process::{LOAD_CPU, Process, Without};

/// How long each measurement takes.
const DURATION: Duration = Duration::from_secs(10);
/// Connections of the load generator.
const CONNECTIONS: [u32; 3] = [1, 16, 64];
/// Above the table.
const HEAD: &str = "\
| 100-byte chat, keep-alive | connections | req/s | of the bare upstream | p50, p99 | added p50, p99 | CPU per request |
|---|---|---|---|---|---|---|";
/// What the gateway is measured without, too, at [`USUAL`] connections.
const WITHOUT: [(&str, Without); 2] =
    [("gateway without access log", Without::AccessLog), ("gateway without public log", Without::ReceiptLog)];
const USUAL: u32 = 16;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "mock", address] => single()?.block_on(mock::serve(address.parse()?)),
        given if given.contains(&"--bench") => single()?.block_on(measure(given.contains(&"--peers"))),
        // `cargo test --benches` runs this, too, with nothing to measure.
        _ => Ok(()),
    }
}

fn single() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn measure(with_peers: bool) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    process::pin_this(LOAD_CPU)?;
    let upstream = process::mock(directory.path()).await?;
    let mut out = io::stdout();
    writeln!(out, "{HEAD}")?;
    let mut bare = Vec::new();
    for connections in CONNECTIONS {
        let seen = load(directory.path(), &upstream, connections, DURATION).await?;
        writeln!(out, "| bare upstream | {connections} | {:.0} | | {} | | |", seen.rate(), seen.latencies())?;
        bare.push((connections, seen));
    }
    let gateway = process::gateway(directory.path(), upstream.address, Without::Nothing).await?;
    rows("gateway", &mut out, directory.path(), &gateway, &bare).await?;
    let first = streams::first_bytes(upstream.address, gateway.address).await?;
    let memory = streams::open(&gateway).await?;
    drop(gateway);
    let usual: Vec<_> = bare.iter().filter(|(connections, _)| *connections == USUAL).copied().collect();
    for (what, without) in WITHOUT {
        let gateway = process::gateway(directory.path(), upstream.address, without).await?;
        rows(what, &mut out, directory.path(), &gateway, &usual).await?;
    }
    if with_peers {
        for (what, start) in process::PEERS {
            let peer = start(directory.path(), upstream.address).await?;
            rows(what, &mut out, directory.path(), &peer, &bare).await?;
        }
    }
    writeln!(out, "\n| Streams | bare upstream | gateway |\n|---|---|---|\n{first}{memory}")?;
    Ok(())
}

/// Measures a gateway with as many connections as the bare upstream was, and prints a row for each.
async fn rows(
    what: &str,
    out: &mut impl io::Write,
    directory: &Path,
    through: &Process,
    bare: &[(u32, Seen)],
) -> Result<(), Failure> {
    for (connections, bare) in bare {
        // What is built up at first, such as connections, does not count.
        load(directory, through, *connections, Duration::from_secs(1)).await?;
        let before = through.cpu()?;
        let seen = load(directory, through, *connections, DURATION).await?;
        let cpu = through.cpu()?.saturating_sub(before).as_secs_f64() * 1e6 / seen.requests.max(1.0);
        writeln!(
            out,
            "| {what} | {connections} | {:.0} | {:.3} | {} | {} | {cpu:.0} µs |{}",
            seen.rate(),
            seen.rate() / bare.rate(),
            seen.latencies(),
            seen.added_to(bare),
            if seen.failed > 0.0 { format!(" {} FAILED", seen.failed) } else { String::new() }
        )?;
    }
    Ok(())
}

async fn load(directory: &Path, to: &Process, connections: u32, duration: Duration) -> Result<Seen, Failure> {
    Load { directory, connections, duration, path: to.path, headers: &to.headers }.run(to.address).await
}
