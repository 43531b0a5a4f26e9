//! The load that `scripts/build-release.sh` lays a build out for: what gateways and management APIs do most.

use std::path::Path;
use std::time::Duration;

use crate::process::{Process, Without};
use crate::{Failure, USUAL, load, process, streams};

/// How long a gateway is asked for answers that come as a whole; streams take about as long.
const ANSWERS: Duration = Duration::from_secs(10);
/// How long a control plane is asked for each of these.
const READS: Duration = Duration::from_secs(2);
const PATHS: [&str; 4] =
    ["/api/v1/cvms/paginated", "/api/v1/auth/me", "/api/v1/instance-types", "/api/v1/kms"];

/// Loads a gateway and a control plane, and ends both, so that they can write down what they counted.
pub(crate) async fn run() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    process::pin_this(process::cpus().load)?;
    let upstream = process::mock(directory).await?;
    let gateway = process::gateway(directory, upstream.address, Without::Nothing).await?;
    all_answered(directory, &gateway, ANSWERS).await?;
    streams::some(&gateway).await?;
    gateway.end().await?;
    let mut control_plane = process::control_plane(directory).await?;
    for path in PATHS {
        control_plane.path = path;
        all_answered(directory, &control_plane, READS).await?;
    }
    control_plane.end().await
}

async fn all_answered(directory: &Path, by: &Process, duration: Duration) -> Result<(), Failure> {
    load(directory, by, USUAL, duration).await?.all_answered().map(drop)
}
