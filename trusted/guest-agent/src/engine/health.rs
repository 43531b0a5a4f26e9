//! What happens to containers: their health checks, at the times that their configuration asks for, and the
//! news that one of them may do otherwise than before.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::client::{Engine, EngineError, Healthcheck};
use super::events::{self, Events};
use crate::failure;

/// Docker's interval for containers that name none.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);
/// Docker's interval while a container is within its start period, in which failures do not count.
const START_INTERVAL: Duration = Duration::from_secs(5);
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// Pause before following again an engine that broke off.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// Why containers are not followed.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error("cannot read the engine's events")]
    Events(#[from] io::Error),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The news that containers may do otherwise than before. What comes before somebody waits is not lost, and
/// much at once is one piece of news.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes(Arc<Notify>);

impl Changes {
    /// Something may have changed.
    pub(crate) fn announce(&self) {
        self.0.notify_one();
    }

    /// Waits until something may have changed. For one listener.
    pub(crate) async fn next(&self) {
        self.0.notified().await;
    }
}

/// Checks the health of every container for as long as it runs, and the engine too.
pub(super) async fn supervise(engine: Engine, changes: Changes) {
    let mut watched = Watched { engine, changes, tasks: HashMap::new() };
    let mut events = loop {
        match Events::follow(Path::new(events::FILE)) {
            Ok(events) => break events,
            Err(error) => warn!("cannot listen for the engine's events: {error}"),
        }
        sleep(RECONNECT_PAUSE).await;
    };
    loop {
        let Err(error) = watched.follow(&mut events).await;
        warn!("cannot follow containers for their health checks: {}", failure::chain(&error));
        sleep(RECONNECT_PAUSE).await;
    }
}

struct Watched {
    engine: Engine,
    changes: Changes,
    tasks: HashMap<String, JoinHandle<()>>,
}

impl Watched {
    /// Events are listened for since before the running containers are listed, so that none is missed.
    async fn follow(&mut self, events: &mut Events) -> Result<Infallible, FollowError> {
        self.watch_running().await?;
        // What happened before anybody listened.
        self.changes.announce();
        loop {
            let news = events.next().await?;
            if news.changed {
                self.changes.announce();
            }
            if news.started {
                self.watch_running().await?;
            }
        }
    }

    async fn watch_running(&mut self) -> Result<(), EngineError> {
        let running = self.engine.containers().await?.into_iter().filter(|c| c.state == "running");
        running.for_each(|container| self.watch(container.id));
        Ok(())
    }

    fn watch(&mut self, container: String) {
        self.tasks.retain(|_, task| !task.is_finished());
        let (engine, changes) = (self.engine.clone(), self.changes.clone());
        self.tasks.entry(container).or_insert_with_key(|container| {
            let container = container.clone();
            tokio::spawn(async move { check_while_running(&engine, &container, &changes).await })
        });
    }
}

/// Ends when the container does: the engine then refuses the check.
async fn check_while_running(engine: &Engine, container: &str, changes: &Changes) {
    let Ok(inspection) = engine.inspect(container).await else { return };
    let Some(check) = inspection.config.healthcheck.filter(Healthcheck::is_enabled) else { return };
    let started = Instant::now();
    loop {
        sleep(check.pause(started.elapsed())).await;
        if engine.check_health(container).await.is_err() {
            return;
        }
        changes.announce();
    }
}

impl Healthcheck {
    fn is_enabled(&self) -> bool {
        self.test.first().is_some_and(|kind| !kind.is_empty() && kind != "NONE")
    }

    /// How long to wait for the next check of a container that started `age` ago.
    fn pause(&self, age: Duration) -> Duration {
        let interval = match self.interval {
            0 => DEFAULT_INTERVAL,
            nanoseconds => Duration::from_nanos(nanoseconds).max(MIN_INTERVAL),
        };
        let starting = age < Duration::from_nanos(self.start_period);
        if starting { interval.min(START_INTERVAL) } else { interval }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_as_docker_does() {
        let check = |interval_s: u64, start_period_s: u64| Healthcheck {
            test: vec!["CMD".into(), "true".into()],
            interval: interval_s * 1_000_000_000,
            start_period: start_period_s * 1_000_000_000,
        };
        let seconds = |check: Healthcheck, age| check.pause(Duration::from_secs(age)).as_secs();
        assert_eq!(seconds(check(0, 0), 0), 30);
        assert_eq!(seconds(check(10, 20), 0), 5);
        assert_eq!(seconds(check(10, 20), 20), 10);
        assert_eq!(seconds(check(2, 20), 0), 2);
        assert!(check(1, 0).is_enabled());
        assert!(!Healthcheck { test: vec!["NONE".into()], ..Healthcheck::default() }.is_enabled());
    }
}
