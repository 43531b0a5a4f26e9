//! A machine for one process of the host.

use std::io;
use std::sync::Arc;

use cloister_development_tee::{HostProcess as Machine, HostProcessAgent, TeeError};

use super::DevelopmentPlatform;
use crate::config::HostProcess;
use crate::vms::blocking;

/// Why a process cannot be given a machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostProcessError {
    #[error(transparent)]
    Tee(#[from] TeeError),
    #[error("cannot serve its socket {}", .0.display())]
    Socket(std::path::PathBuf, #[source] io::Error),
}

/// Measures the process's program and answers on its socket until the result is dropped.
pub(crate) async fn serve(
    process: &HostProcess,
    platform: &DevelopmentPlatform,
) -> Result<HostProcessAgent, HostProcessError> {
    let (dir, executable) = (platform.dir.clone(), process.executable.clone());
    let machine = blocking(move || Machine::measure(&dir, &executable)).await?;
    let measurement = hex::encode(machine.mr_aggregated());
    let agent = HostProcessAgent::serve(&process.socket, Arc::new(machine), platform.certified.subscribe())
        .map_err(|error| HostProcessError::Socket(process.socket.clone(), error))?;
    tracing::info!(measurement, "plays a machine for a process of this host, which protects it from nobody");
    Ok(agent)
}
