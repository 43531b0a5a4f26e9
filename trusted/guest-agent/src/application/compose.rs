//! Applications that are compose files.

use tokio::process::Command;
use tracing::warn;

use super::{Application, ApplicationError};
use crate::failure;
use crate::output::{self, CommandError, Running};
use crate::progress::Progress;

const COMPOSE_FILE: &str = "docker-compose.yaml";

impl Application {
    /// Pulls what is missing and starts all services; ones that left the file are removed.
    pub(super) async fn compose_up(&self, file: &str, progress: &Progress) -> Result<(), ApplicationError> {
        super::write_private(&self.directory.join(COMPOSE_FILE), file.as_bytes())?;
        let mut up = self.compose();
        up.args(["up", "--detach", "--remove-orphans"]);
        let running = Running::start(&mut up).map_err(ApplicationError::Compose)?;
        running.finish(|line| progress.detail(line)).await.map_err(ApplicationError::Compose)
    }

    /// Stops all services in the reverse order of their dependencies. Each gets the time that the compose
    /// file gives it.
    pub(super) async fn compose_stop(&self) {
        if let Err(error) = output::check(self.compose().arg("stop")).await {
            warn!("cannot stop the application in order: {}", failure::chain(&error));
        }
    }

    fn compose(&self) -> Command {
        let mut compose = self.command("docker-compose");
        compose.args(["--ansi", "never", "--progress", "plain", "--file", COMPOSE_FILE]);
        compose
    }
}

/// What went wrong, for the person who wrote the compose file.
pub(super) fn explain(error: &CommandError) -> String {
    format!("the compose file could not be started: {}", failure::chain(error))
}
