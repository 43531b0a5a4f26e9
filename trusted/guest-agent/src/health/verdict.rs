//! From what the engine says of containers to how the application does.

use cloister_guest_channel::status::Health;
use jiff::{SignedDuration, Timestamp};

use crate::engine::{Checked, ServiceContainer};

/// A container that was restarted and has run for this long since does not fall over and over. Docker takes the
/// same time to forget how long it let such a container wait.
const STEADY: SignedDuration = SignedDuration::from_secs(10);

/// How an application does, and why it is not healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) health: Health,
    pub(crate) detail: Option<String>,
}

/// What speaks against the health of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Complaint {
    /// It may yet come.
    Waiting(String),
    Failing(String),
}

impl Verdict {
    /// Nothing speaks against it.
    pub(crate) const fn healthy() -> Self {
        Self { health: Health::Healthy, detail: None }
    }

    /// Something failed.
    pub(crate) fn unhealthy(why: String) -> Self {
        Self { health: Health::Unhealthy, detail: Some(why) }
    }

    /// An application does as its worst container does; the detail names all that do so badly.
    pub(crate) fn of_containers(containers: &[ServiceContainer], now: Timestamp) -> Self {
        let (mut waiting, mut failing) = (Vec::new(), Vec::new());
        for container in containers {
            let name = container.name.trim_start_matches('/');
            match complaint(container, now) {
                Some(Complaint::Waiting(why)) => waiting.push(format!("{name} {why}")),
                Some(Complaint::Failing(why)) => failing.push(format!("{name} {why}")),
                None => {}
            }
        }
        let of = |health, mut complaints: Vec<String>| {
            complaints.sort();
            Self { health, detail: Some(complaints.join("; ")) }
        };
        match (waiting.is_empty(), failing.is_empty()) {
            (_, false) => of(Health::Unhealthy, failing),
            (false, true) => of(Health::Starting, waiting),
            (true, true) => Self::healthy(),
        }
    }
}

/// What the container is, as the rest of a sentence that begins with its name.
fn complaint(container: &ServiceContainer, now: Timestamp) -> Option<Complaint> {
    match container.state.status.as_str() {
        "running" => while_running(container, now),
        "created" | "configured" | "initialized" => {
            Some(Complaint::Waiting("was not started yet".to_owned()))
        }
        "exited" | "stopped" | "dead" => after_its_end(container),
        // On its way out, by somebody's wish.
        "removing" => None,
        // `paused`, `restarting`, and what later engines may think of.
        other => Some(Complaint::Failing(format!("is {other}"))),
    }
}

fn while_running(container: &ServiceContainer, now: Timestamp) -> Option<Complaint> {
    let age = container.started_at().map(|start| now.duration_since(start));
    let falls = container.restart_count > 0 && age.is_some_and(|age| age < STEADY);
    match container.checked() {
        Checked::Fails => Some(Complaint::Failing("fails its health check".to_owned())),
        Checked::Never | Checked::NotYet if falls => Some(Complaint::Failing(format!(
            "was restarted{} and has run for less than {} seconds since",
            times(container.restart_count),
            STEADY.as_secs()
        ))),
        Checked::NotYet => Some(Complaint::Waiting("has not passed its health check yet".to_owned())),
        Checked::Passes | Checked::Never => None,
    }
}

fn after_its_end(container: &ServiceContainer) -> Option<Complaint> {
    let memory = if container.state.oom_killed { ", out of memory" } else { "" };
    match container.state.exit_code {
        0 if container.always_restarts() => {
            Some(Complaint::Failing("ended and is to be restarted".to_owned()))
        }
        0 => None,
        status => Some(Complaint::Failing(format!(
            "ended with status {status}{memory}{}",
            restarted(container.restart_count)
        ))),
    }
}

fn restarted(count: u32) -> String {
    if count == 0 { String::new() } else { format!(", after it was restarted{}", times(count)) }
}

fn times(count: u32) -> String {
    if count == 1 { String::new() } else { format!(" {count} times") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T00:01:00Z";

    /// A container as an inspection shows it; `check` is the state of its health check, or empty.
    fn container(
        name: &str,
        state: (&str, i64),
        check: &str,
        (policy, restarts, started_at): (&str, u32, &str),
    ) -> ServiceContainer {
        let health = if check.is_empty() { json!(null) } else { json!({ "Status": check, "Log": [] }) };
        serde_json::from_value(json!({
            "Name": format!("/{name}"), "RestartCount": restarts,
            "State": {
                "Status": state.0, "ExitCode": state.1, "OOMKilled": state.1 == 137,
                "StartedAt": started_at, "Health": health,
            },
            "HostConfig": { "RestartPolicy": { "Name": policy, "MaximumRetryCount": 0 } },
        }))
        .unwrap()
    }

    fn judged(containers: &[ServiceContainer]) -> (Health, String) {
        let Verdict { health, detail } = Verdict::of_containers(containers, NOW.parse().unwrap());
        (health, detail.unwrap_or_default())
    }

    #[test]
    fn each_state_of_a_container_has_its_meaning() {
        use Health::{Healthy, Starting, Unhealthy};
        let (old, young, never) = ("2026-01-01T00:00:50Z", "2026-01-01T00:00:51Z", "0001-01-01T00:00:00Z");
        let rows = [
            (("running", 0), "", ("no", 0, young), Healthy, ""),
            (("running", 0), "", ("always", 3, old), Healthy, ""),
            (
                ("running", 0),
                "",
                ("always", 3, young),
                Unhealthy,
                "web was restarted 3 times and has run for less than 10 seconds since",
            ),
            (
                ("running", 1),
                "starting",
                ("always", 1, young),
                Unhealthy,
                "web was restarted and has run for less than 10 seconds since",
            ),
            (("running", 0), "healthy", ("always", 1, young), Healthy, ""),
            (
                ("running", 0),
                "starting",
                ("no", 0, young),
                Starting,
                "web has not passed its health check yet",
            ),
            (("running", 0), "starting", ("no", 2, old), Starting, "web has not passed its health check yet"),
            (("running", 0), "unhealthy", ("no", 0, old), Unhealthy, "web fails its health check"),
            (("running", 0), "none", ("no", 0, old), Healthy, ""),
            (("created", 0), "", ("no", 0, never), Starting, "web was not started yet"),
            (("exited", 0), "", ("no", 0, old), Healthy, ""),
            (("exited", 0), "starting", ("on-failure", 0, old), Healthy, ""),
            (("exited", 0), "", ("always", 0, old), Unhealthy, "web ended and is to be restarted"),
            (("exited", 0), "", ("unless-stopped", 9, old), Unhealthy, "web ended and is to be restarted"),
            (("exited", 3), "", ("no", 0, old), Unhealthy, "web ended with status 3"),
            (
                ("exited", 137),
                "healthy",
                ("on-failure", 2, old),
                Unhealthy,
                "web ended with status 137, out of memory, after it was restarted 2 times",
            ),
            (("restarting", 1), "", ("always", 1, old), Unhealthy, "web is restarting"),
            (("paused", 0), "", ("no", 0, old), Unhealthy, "web is paused"),
            (("removing", 1), "", ("no", 0, old), Healthy, ""),
        ];
        for (state, check, run, health, detail) in rows {
            let judged = judged(&[container("web", state, check, run)]);
            assert_eq!(judged, (health, detail.to_owned()), "{state:?} {check:?} {run:?}");
        }
    }

    #[test]
    fn an_application_does_as_its_worst_containers_do() {
        let run = ("no", 0, "2026-01-01T00:00:00Z");
        let containers = [
            container("web", ("exited", 2), "", run),
            container("api", ("running", 0), "starting", run),
            container("db", ("running", 0), "unhealthy", run),
            container("init", ("exited", 0), "", run),
        ];
        let (health, detail) = judged(&containers);
        assert_eq!(
            (health, detail.as_str()),
            (Health::Unhealthy, "db fails its health check; web ended with status 2")
        );
        assert_eq!(judged(&[]), (Health::Healthy, String::new()));
    }

    #[test]
    fn what_an_engine_leaves_out_is_no_complaint() {
        let sparse = json!({ "Name": "/web", "State": { "Status": "running" } });
        assert_eq!(judged(&[serde_json::from_value(sparse).unwrap()]).0, Health::Healthy);
    }

    fn any_container() -> impl Strategy<Value = ServiceContainer> {
        let states = ["running", "created", "exited", "dead", "removing", "paused", "restarting", "\u{1}?"];
        let checks = ["", "starting", "healthy", "unhealthy", "none"];
        let policies = ["", "no", "always", "unless-stopped", "on-failure"];
        let times = ["2026-01-01T00:00:55Z", "2025-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "never"];
        let words = (
            proptest::sample::select(states.to_vec()),
            proptest::sample::select(checks.to_vec()),
            proptest::sample::select(policies.to_vec()),
            proptest::sample::select(times.to_vec()),
        );
        ("[a-z]{1,5}", words, any::<i64>(), any::<u32>()).prop_map(
            |(name, (state, check, policy, time), exit_code, restarts)| {
                container(&name, (state, exit_code), check, (policy, restarts, time))
            },
        )
    }

    const fn severity(health: Health) -> u8 {
        match health {
            Health::Healthy => 0,
            Health::Starting => 1,
            Health::Unhealthy => 2,
        }
    }

    proptest! {
        #[test]
        fn the_order_does_not_matter_and_no_container_makes_it_better(
            containers in proptest::collection::vec(any_container(), 1..6),
        ) {
            let whole = judged(&containers);
            let worst = containers.iter().map(|one| judged(std::slice::from_ref(one)).0).max_by_key(|h| severity(*h));
            prop_assert_eq!(Some(whole.0), worst);
            prop_assert_eq!(whole.0 == Health::Healthy, whole.1.is_empty());
            let mut turned = containers;
            turned.reverse();
            prop_assert_eq!(judged(&turned), whole);
        }
    }
}
