//! Memory under load, for long.

use std::io::{self, Write as _};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::load::{Load, PATIENCE_S, Seen};
use crate::process::Without;
use crate::{Failure, USUAL, process, streams};

/// Each has new streams, and a row of the table.
const ROUNDS: u32 = 12;
/// How often memory is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// What each connection waits before it asks again. At the full rate the receipts of an hour take some 90 GB.
const PAUSE: Duration = Duration::from_millis(5);
/// After a round, until its streams are recorded.
const REST: Duration = Duration::from_secs(2);

/// Prints the most memory that the gateway has in each twelfth of so many minutes, with many open streams and as many
/// requests as [`PAUSE`] leaves.
pub(crate) async fn run(minutes: u32) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    process::pin_this(process::cpus().load)?;
    let upstream = process::mock(directory.path()).await?;
    let gateway = process::gateway(directory.path(), upstream.address, Without::Nothing).await?;
    let mut out = io::stdout();
    writeln!(
        out,
        "| minutes | requests | failed | after {PATIENCE_S} s | req/s | streams | resident, most | resident, then idle |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    writeln!(out, "| 0 | 0 | 0 | 0 | | | | {:.1} MB |", gateway.resident_mb()?)?;
    let each = Duration::from_secs(60 * u64::from(minutes)) / ROUNDS;
    let (mut requests, mut failed, mut late) = (0.0, 0.0, 0.0);
    for round in 1..=ROUNDS {
        let streams = streams::open(&gateway).await?;
        let load = Load {
            directory: directory.path(),
            to: &gateway,
            connections: USUAL,
            duration: each.saturating_sub(REST),
            pause: PAUSE,
        };
        let (seen, most_mb) = watched(&load).await?;
        requests += seen.requests;
        failed += seen.failed;
        late += seen.late;
        let (rate, streams) = (seen.rate(), streams.close().await?);
        tokio::time::sleep(REST).await;
        let (minutes, idle_mb) = ((each * round).as_secs_f64() / 60.0, gateway.resident_mb()?);
        writeln!(
            out,
            "| {minutes:.1} | {requests} | {failed} | {late} | {rate:.0} | {streams} | {most_mb:.1} MB | {idle_mb:.1} MB |"
        )?;
    }
    Ok(())
}

/// What came of a load, and the most memory in its course, in megabytes.
async fn watched(load: &Load<'_>) -> Result<(Seen, f64), Failure> {
    let mut running = Box::pin(load.run());
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut most_mb = 0.0_f64;
    loop {
        tokio::select! {
            seen = &mut running => return Ok((seen?, most_mb)),
            _ = looks.tick() => most_mb = most_mb.max(load.to.resident_mb()?),
        }
    }
}
