//! The load that `scripts/build-release.sh` lays a build out for: what gateways do most.

use std::time::Duration;

use crate::process::Without;
use crate::{Failure, USUAL, load, process, streams};

/// How long answers are asked for that come as a whole; streams take about as long.
const DURATION: Duration = Duration::from_secs(10);

/// Loads a gateway and ends it, so that it can write down what it counted.
pub(crate) async fn run() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    process::pin_this(process::cpus().load)?;
    let upstream = process::mock(directory.path()).await?;
    let gateway = process::gateway(directory.path(), upstream.address, Without::Nothing).await?;
    let seen = load(directory.path(), &gateway, USUAL, DURATION).await?;
    if seen.failed > 0.0 {
        return Err(format!("{} of {} requests failed", seen.failed, seen.requests).into());
    }
    streams::some(&gateway).await?;
    gateway.end().await
}
