//! The status channel: one JSON object per line, in both directions.
//!
//! The guest sends its *whole* status after every change and at least every
//! [`HEARTBEAT_INTERVAL`], so that a node that was restarted, or missed lines, knows everything after
//! the next one. A line longer than [`MAX_LINE_BYTES`] ends the connection. The first line after a
//! connection was made may be the rest of one that an earlier peer began: receivers skip what is not
//! JSON.

use std::time::Duration;

use cloister_app_compose::InstanceId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Longest line that either side accepts, in bytes, newline included.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// Longest pause between two status lines of a living guest.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// Longest free text in a status, in bytes; longer ones are cut by the sender.
pub const MAX_TEXT_BYTES: usize = 4 * 1024;

/// How far a guest has come. The order is the order of a successful boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootPhase {
    /// The agent runs and has read its configuration.
    AgentStarted,
    /// The guest proves itself to the KMS and waits for its keys.
    RequestingKeys,
    /// The data disk is being made or mounted.
    PreparingDisk,
    /// The container engine is starting.
    StartingEngine,
    /// The tenant's pre-launch script runs.
    PreLaunch,
    /// Images are being pulled and containers started, or the main script runs.
    StartingContainers,
    /// The application was started; the guest is up.
    Done,
}

impl BootPhase {
    /// The platform's wording for this phase (`boot.progress` events; `boot_progress` of the API).
    #[must_use]
    pub const fn as_progress(self) -> &'static str {
        match self {
            Self::AgentStarted => "booting",
            Self::RequestingKeys => "requesting app keys",
            Self::PreparingDisk => "mounting data disk",
            Self::StartingEngine => "setting up docker",
            Self::PreLaunch => "pre-launch",
            Self::StartingContainers => "starting containers",
            Self::Done => "done",
        }
    }
}

/// When a phase began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseStart {
    /// The phase.
    pub phase: BootPhase,
    /// Milliseconds since the guest kernel started.
    pub uptime_ms: u64,
}

/// How the application does, once it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Something is still within its start period, or was not checked yet.
    Starting,
    /// Everything that should run runs, and every health check passes. A container without a check is
    /// healthy while it runs; one that ended with success and is not to be restarted stays healthy.
    Healthy,
    /// A container ended with a failure, is being restarted, or fails its health check.
    Unhealthy,
}

/// Everything that a guest tells about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestStatus {
    /// New for every boot of the guest.
    pub boot_id: Uuid,
    /// Identity of this CVM among those of its app; absent where the document forbids one.
    pub instance_id: Option<InstanceId>,
    /// The phases that began so far, oldest first; the last one is current.
    pub phases: Vec<PhaseStart>,
    /// Detail of the current phase for people, such as the image being pulled.
    pub detail: Option<String>,
    /// Why the boot failed; a guest with an error makes no further progress.
    pub boot_error: Option<String>,
    /// Progress of an orderly shutdown, once one has begun.
    pub shutdown_progress: Option<String>,
    /// How the application does; absent before it was started, and from agents that do not watch it.
    #[serde(default)]
    pub health: Option<Health>,
    /// Which service is not healthy and why, for people.
    #[serde(default)]
    pub health_detail: Option<String>,
}

impl GuestStatus {
    /// The current phase.
    #[must_use]
    pub fn phase(&self) -> Option<BootPhase> {
        self.phases.last().map(|start| start.phase)
    }
}

/// A line from the node to the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NodeMessage {
    /// Stop the application in order, then power off.
    Shutdown {
        /// Seconds that the application gets before it is killed.
        timeout_s: u32,
    },
}
