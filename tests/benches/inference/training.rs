//! The load that `scripts/build-release.sh` lays a build out for: what gateways and management APIs do most.

use std::path::Path;
use std::time::Duration;

use crate::process::{Process, Without};
use crate::{Failure, USUAL, load, process, streams};

/// How long a gateway is asked for answers that come as a whole; streams take about as long.
const ANSWERS: Duration = Duration::from_secs(10);
/// How long each of these is read: of a gateway its models, of a control plane [`PATHS`].
const READS: Duration = Duration::from_secs(2);
const PATHS: [&str; 4] =
    ["/api/v1/cvms/paginated", "/api/v1/auth/me", "/api/v1/instance-types", "/api/v1/kms"];

/// Loads a server, `inference-gateway` or `control-plane`, and ends it, so that it can write down what it counted.
pub(crate) async fn run(server: &str) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    process::pin_this(process::cpus().load)?;
    match server {
        "inference-gateway" => gateway(directory.path()).await,
        "control-plane" => control_plane(directory.path()).await,
        _ => Err(format!("{server}: no load is known for it").into()),
    }
}

async fn gateway(directory: &Path) -> Result<(), Failure> {
    let upstream = process::mock(directory).await?;
    let mut gateway = process::gateway(directory, upstream.address, Without::Nothing).await?;
    all_answered(directory, &gateway, ANSWERS).await?;
    streams::some(&gateway).await?;
    (gateway.path, gateway.body) = ("/v1/models", None);
    all_answered(directory, &gateway, READS).await?;
    gateway.end().await
}

async fn control_plane(directory: &Path) -> Result<(), Failure> {
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
