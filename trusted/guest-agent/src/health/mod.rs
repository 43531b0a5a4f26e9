//! How the application does: watched from its start, told in the status line.

mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use cloister_guest_channel::status::Health;
use tokio::time::{Instant, sleep, timeout};

use crate::engine::{Changes, Engine};
use crate::failure;
use crate::hidden::Hidden;
use crate::machine::clock;
use crate::progress::Progress;

pub(crate) use verdict::Verdict;

/// News that come within this time are looked at together.
const GATHER: Duration = Duration::from_millis(200);
/// A look happens this often although nothing is new, while not all is well: a container that was restarted counts
/// as steady after a while, of which there is no news.
const NET: Duration = Duration::from_secs(5);
/// The same while all is well, should the engine have kept something to itself, such as the end of a container whose
/// monitor was killed with it. Looks are what an idle guest does most, and without hardware virtualisation one costs
/// its host a second of a processor.
const WIDE_NET: Duration = Duration::from_mins(1);
/// However much is new, looking takes at most a fifth of the engine's time, and without news a twentieth.
const BUSY_SHARE: u32 = 4;
const IDLE_SHARE: u32 = 19;
/// Looks that may fail in a row before it counts: an engine that was killed is started again.
const MAX_FAILURES: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The containers of an application's compose file.
#[derive(Debug)]
pub(crate) struct Containers {
    pub(crate) engine: Engine,
    pub(crate) compose_file: PathBuf,
    /// Words that must not be told, should a container be named by one.
    pub(crate) hidden: Hidden,
}

impl Containers {
    /// Tells how they do, for as long as the agent runs.
    pub(crate) async fn watch(self, changes: Changes, progress: Progress) {
        let mut failures = 0_u32;
        loop {
            let begun = Instant::now();
            match self.engine.service_containers(&self.compose_file).await {
                Ok(containers) => {
                    failures = 0;
                    let verdict = Verdict::of_containers(&containers, clock::now());
                    let net = if verdict.health == Health::Healthy { WIDE_NET } else { NET };
                    self.tell(&progress, verdict);
                    let took = begun.elapsed();
                    sleep(GATHER.max(took * BUSY_SHARE)).await;
                    // Whether there was news or the time is over, the next look tells.
                    let _ = timeout(net.max(took * IDLE_SHARE), changes.next()).await;
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    if failures == MAX_FAILURES {
                        let why = format!("its containers cannot be seen: {}", failure::chain(&error));
                        self.tell(&progress, Verdict::unhealthy(why));
                    }
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    fn tell(&self, progress: &Progress, Verdict { health, detail }: Verdict) {
        let detail = detail.map(|text| self.hidden.hide(text, false));
        progress.health(Verdict { health, detail });
    }
}

#[cfg(test)]
mod tests;
