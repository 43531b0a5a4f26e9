//! Memory under load, for long.

use std::io::{self, Write as _};
use std::time::Duration;

use crate::process::Without;
use crate::{Failure, USUAL, load, process};

/// How often memory is looked at.
const LOOKS: u32 = 12;

/// Prints what memory the gateway has in the course of so many minutes.
pub(crate) async fn run(minutes: u32) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    process::pin_this(process::cpus().load)?;
    let upstream = process::mock(directory.path()).await?;
    let gateway = process::gateway(directory.path(), upstream.address, Without::Nothing).await?;
    let mut out = io::stdout();
    writeln!(out, "| minutes | requests | failed | resident |\n|---|---|---|---|")?;
    writeln!(out, "| 0 | 0 | 0 | {:.1} MB |", gateway.resident_mb()?)?;
    let each = Duration::from_secs(60 * u64::from(minutes)) / LOOKS;
    let (mut requests, mut failed) = (0.0, 0.0);
    for look in 1..=LOOKS {
        let seen = load(directory.path(), &gateway, USUAL, each).await?;
        requests += seen.requests;
        failed += seen.failed;
        let minutes = (each * look).as_secs_f64() / 60.0;
        writeln!(out, "| {minutes:.1} | {requests} | {failed} | {:.1} MB |", gateway.resident_mb()?)?;
    }
    Ok(())
}
