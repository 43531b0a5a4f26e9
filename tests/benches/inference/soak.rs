//! Memory under load, for long.

use std::io::{self, Write as _};
use std::time::Duration;

use crate::load::Load;
use crate::process::Without;
use crate::{Failure, USUAL, process, streams};

/// How often memory is looked at. In between many streams are open, new ones each time.
const LOOKS: u32 = 12;
/// What each connection waits before it asks again. At the full rate the receipts of an hour take some 90 GB.
const PAUSE: Duration = Duration::from_millis(5);

/// Prints what memory the gateway has in the course of so many minutes.
pub(crate) async fn run(minutes: u32) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    process::pin_this(process::cpus().load)?;
    let upstream = process::mock(directory.path()).await?;
    let gateway = process::gateway(directory.path(), upstream.address, Without::Nothing).await?;
    let mut out = io::stdout();
    writeln!(out, "| minutes | requests | failed | open streams | resident |\n|---|---|---|---|---|")?;
    writeln!(out, "| 0 | 0 | 0 | 0 | {:.1} MB |", gateway.resident_mb()?)?;
    let each = Duration::from_secs(60 * u64::from(minutes)) / LOOKS;
    let (mut requests, mut failed) = (0.0, 0.0);
    for look in 1..=LOOKS {
        let open = streams::open(&gateway).await?;
        let seen = Load { pause: PAUSE, ..Load::of(directory.path(), &gateway, USUAL, each) }
            .run(gateway.address)
            .await?;
        requests += seen.requests;
        failed += seen.failed;
        let (minutes, resident_mb) = ((each * look).as_secs_f64() / 60.0, gateway.resident_mb()?);
        let open = open.close()?;
        writeln!(out, "| {minutes:.0} | {requests} | {failed} | {open} | {resident_mb:.1} MB |")?;
    }
    Ok(())
}
