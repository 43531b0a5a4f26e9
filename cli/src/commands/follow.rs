//! Waiting for a CVM to get somewhere, phase by phase.

use std::time::Duration;

use cloister_management_api::v20260121::{CvmInfo, CvmInfoDetail};
use cloister_management_api::{CvmState, OperationPage};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use crate::api::{Client, Event, read};
use crate::failure::{Exit, Failure};
use crate::output::{Progress, printable};

/// Pause before a stream that broke off is opened again, and between looks at a CVM that is going away.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Longest absence of a server that is waited out: a restart, not an end.
const ABSENCE: Duration = Duration::from_secs(30);
/// The server's own limits for one stream, in seconds.
const STREAM_SECONDS: (u64, u64) = (10, 600);

/// Where a CVM shall get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// Started, its application too.
    Running,
    /// Powered off.
    Stopped,
    /// Deleted.
    Gone,
}

impl Goal {
    /// The status of a CVM that is there.
    pub(super) const fn status(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Gone => "gone",
        }
    }

    /// Whether a CVM at rest in `state` will not get here any more.
    fn is_missed(self, state: &CvmState) -> bool {
        let resting = !state.in_progress;
        match state.status.as_str() {
            "error" | "failed" => resting,
            "stopped" | "exited" => self == Self::Running && resting,
            _ => false,
        }
    }
}

/// Waits until the CVM is where it shall be, and shows the way there.
pub(super) async fn follow(
    client: &Client,
    cvm: &str,
    goal: Goal,
    seconds: u64,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let way = async {
        match goal {
            Goal::Gone => until_gone(client, cvm, progress).await,
            Goal::Running | Goal::Stopped => until_at(client, cvm, goal, deadline, progress).await,
        }
    };
    timeout_at(deadline, way).await.unwrap_or_else(|_| Err(gave_up(cvm, goal, seconds)))
}

fn gave_up(cvm: &str, goal: Goal, seconds: u64) -> Failure {
    Failure::new(
        Exit::TimedOut,
        format!("{cvm} is not {} after {seconds} s; the operation goes on", goal.status()),
    )
    .hint(format!("see how far it is: cloister cvms get {cvm}"))
    .hint(format!("see what it says: cloister cvms logs {cvm} --serial"))
    .hint(format!("stop the operation: cloister operations cancel {cvm}"))
}

async fn until_at(
    client: &Client,
    cvm: &str,
    goal: Goal,
    deadline: Instant,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut answered = Instant::now();
    loop {
        let (least, most) = STREAM_SECONDS;
        let left = deadline.saturating_duration_since(Instant::now()).as_secs().clamp(least, most);
        let timeout = left.to_string();
        let query = [("target", goal.status()), ("timeout", timeout.as_str()), ("interval", "5")];
        match client.events(&["cvms", cvm, "state"], &query, Duration::from_secs(left + 5)).await {
            Ok(mut events) => {
                while let Some(event) = events.next().await {
                    answered = Instant::now();
                    if reached(client, cvm, goal, &event, progress).await? {
                        return Ok(());
                    }
                }
            }
            Err(failure) if is_passing(&failure, answered) => {}
            Err(failure) => return Err(failure),
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Whether to ask again: a busy server, or one that was there a moment ago.
fn is_passing(failure: &Failure, answered: Instant) -> bool {
    match failure.exit {
        Exit::Conflict => true,
        Exit::Unreachable => answered.elapsed() < ABSENCE,
        _ => false,
    }
}

async fn reached(
    client: &Client,
    cvm: &str,
    goal: Goal,
    event: &Event,
    progress: &mut Progress,
) -> Result<bool, Failure> {
    if !matches!(event.name.as_str(), "state" | "complete") {
        return Ok(false);
    }
    let Ok(state) = serde_json::from_str::<CvmState>(&event.data) else { return Ok(false) };
    if state.status != goal.status() {
        progress.phase(&phase(&state));
    }
    if goal.is_missed(&state) {
        return Err(missed(client, cvm, &state).await);
    }
    Ok(event.name == "complete" || (state.status == goal.status() && !state.in_progress))
}

/// What a CVM does, and how far it is.
pub(super) fn phase(state: &CvmState) -> String {
    let detail = match state.status.as_str() {
        "shutting_down" | "stopping" => state.shutdown_progress.as_deref(),
        _ => match (state.boot_progress.as_deref(), state.health.as_deref()) {
            // Booted, and not at its goal: a change waits until the application does well for a while.
            (Some("done"), Some(_)) => Some("watching the application's health"),
            (Some("done"), None) => None,
            (progress, _) => progress,
        },
    };
    let status = state.status.replace('_', " ");
    detail.map_or_else(|| status.clone(), |detail| format!("{status}: {}", printable(detail)))
}

/// Why the CVM did not get there: the guest's own words, else those of its last operation, else how it ended.
async fn missed(client: &Client, cvm: &str, state: &CvmState) -> Failure {
    let reason = match &state.boot_error {
        Some(error) if !error.is_empty() => Some(error.clone()),
        _ => last_error(client, cvm).await,
    };
    let reason =
        reason.or_else(|| state.exit_reason.as_ref().map(|reason| format!("the VM ended: {reason}")));
    let reason = reason.unwrap_or_else(|| format!("it is {}", state.status));
    Failure::new(Exit::Failed, format!("{cvm} did not start: {reason}"))
        .hint(format!("see what it said: cloister cvms logs {cvm} --serial"))
        .hint(format!("see every step: cloister operations list {cvm}"))
        .hint(format!("try again: cloister cvms start {cvm}, or remove it: cloister cvms delete {cvm}"))
}

async fn last_error(client: &Client, cvm: &str) -> Option<String> {
    let document = client.get(&["cvms", cvm, "operations"], &[("limit", "1")]).await.ok()?;
    let page: OperationPage = read(&document).ok()?;
    page.items.into_iter().next()?.error_message
}

async fn until_gone(client: &Client, cvm: &str, progress: &mut Progress) -> Result<(), Failure> {
    let mut answered = Instant::now();
    loop {
        match client.get(&["cvms", cvm], &[]).await {
            Err(failure) if failure.exit == Exit::NotFound => return Ok(()),
            Err(failure) if is_passing(&failure, answered) => {}
            Err(failure) => return Err(failure),
            Ok(document) => {
                answered = Instant::now();
                let CvmInfoDetail { info, .. } = read(&document)?;
                if !info.in_progress && matches!(info.status.as_str(), "error" | "failed") {
                    return Err(not_deleted(client, cvm).await);
                }
                progress.phase(&info.status.replace('_', " "));
            }
        }
        sleep(RETRY_PAUSE).await;
    }
}

async fn not_deleted(client: &Client, cvm: &str) -> Failure {
    let reason = last_error(client, cvm).await.unwrap_or_else(|| "no reason was given".to_owned());
    Failure::new(Exit::Failed, format!("{cvm} was not deleted: {reason}"))
        .hint(format!("repeat it: cloister cvms delete {cvm}"))
}

/// The detail document of a CVM.
pub(super) async fn detail(client: &Client, cvm: &str) -> Result<(Value, CvmInfo), Failure> {
    let document = client.get(&["cvms", cvm], &[]).await?;
    let CvmInfoDetail { info, .. } = read(&document)?;
    Ok((document, info))
}
