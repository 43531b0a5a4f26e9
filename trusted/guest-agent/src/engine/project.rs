//! The containers of a compose file, with what decides how they do.

use std::collections::HashMap;
use std::path::Path;

use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;

use super::client::{DOCKER_API, Engine, EngineError, encoded, patiently};

/// Labels by which the compose front end knows its containers again.
const CONFIG_FILES: &str = "com.docker.compose.project.config_files";
const ONE_OFF: &str = "com.docker.compose.oneoff";

/// A container as Docker's API lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    labels: Option<HashMap<String, String>>,
}

/// A container of a service, as an inspection shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ServiceContainer {
    /// With a leading slash.
    pub(crate) name: String,
    /// How often it was restarted by its policy since somebody started it.
    #[serde(default)]
    pub(crate) restart_count: u32,
    pub(crate) state: State,
    #[serde(default)]
    pub(crate) host_config: HostConfig,
}

/// The state of a container.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct State {
    /// One word: `running`, `exited`, …
    pub(crate) status: String,
    /// Of its last run.
    #[serde(default)]
    pub(crate) exit_code: i64,
    #[serde(default, rename = "OOMKilled")]
    pub(crate) oom_killed: bool,
    /// RFC 3339; of its last run.
    #[serde(default)]
    started_at: String,
    #[serde(default)]
    health: Option<CheckedHealth>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CheckedHealth {
    #[serde(default)]
    status: String,
}

/// The part of a container's configuration that is about its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct HostConfig {
    #[serde(default)]
    restart_policy: RestartPolicy,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RestartPolicy {
    #[serde(default)]
    name: String,
}

/// What the last health check of a container said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked {
    /// There is no check.
    Never,
    /// None has passed yet, and not too many have failed.
    NotYet,
    Passes,
    Fails,
}

impl ServiceContainer {
    /// The result of its health check.
    pub(crate) fn checked(&self) -> Checked {
        match self.state.health.as_ref().map(|health| health.status.as_str()) {
            Some("starting") => Checked::NotYet,
            Some("healthy") => Checked::Passes,
            Some("unhealthy") => Checked::Fails,
            _ => Checked::Never,
        }
    }

    /// Whether it is started again although it ended with success.
    pub(crate) fn always_restarts(&self) -> bool {
        matches!(self.host_config.restart_policy.name.as_str(), "always" | "unless-stopped")
    }

    /// When its last run began, if it ever did.
    pub(crate) fn started_at(&self) -> Option<Timestamp> {
        self.state.started_at.parse().ok()
    }
}

impl Engine {
    /// The containers of the services in a compose file. What was started beside it is not among them:
    /// neither commands that were run once in a service's container, nor what the application starts by itself.
    pub(crate) async fn service_containers(
        &self,
        compose_file: &Path,
    ) -> Result<Vec<ServiceContainer>, EngineError> {
        let label = format!("{CONFIG_FILES}={}", compose_file.display());
        let filters = serde_json::json!({ "label": [label] }).to_string();
        let path = format!("{DOCKER_API}/containers/json?all=true&filters={}", encoded(&filters));
        let listed: Vec<Listed> = patiently(self.json(&path)).await?;
        let mut containers = Vec::new();
        for container in listed.iter().filter(|container| !container.is_one_off()) {
            match patiently(self.json(&format!("{DOCKER_API}/containers/{}/json", container.id))).await {
                Ok(container) => containers.push(container),
                // Removed meanwhile.
                Err(EngineError::Status(StatusCode::NOT_FOUND)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(containers)
    }
}

impl Listed {
    fn is_one_off(&self) -> bool {
        let label = self.labels.as_ref().and_then(|labels| labels.get(ONE_OFF));
        label.is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }
}
