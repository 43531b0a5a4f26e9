//! The thread that fetches: one fetch per kind of platform at a time, however many wait for it.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::task::{self, JoinSet};
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use super::cache::{Answer, Entries, Entry, MAX_ENTRIES, Reply, Request};
use super::check::check;
use crate::{Clock, Collateral, CollateralError, CollateralKey, CollateralSources, Update};

/// Most fetches at the same time.
const MAX_FETCHES: usize = 16;
/// Most callers that wait for one fetch.
const MAX_WAITING: usize = 4096;
/// Longest that one fetch takes, with its retries.
const FETCH_TIME: Duration = Duration::from_secs(25);
/// How often entries that nobody asks for are looked at.
const ROUNDS: Duration = Duration::from_secs(30);
/// How long a failure is told to whoever asks again.
const FAILURE_KEPT: SignedDuration = SignedDuration::from_secs(2);
/// How long after a failed refresh the next is tried.
const REFRESH_AGAIN: SignedDuration = SignedDuration::from_mins(1);

type Wanted = (CollateralKey, Update);

pub(super) struct Fetcher {
    sources: CollateralSources,
    clock: Clock,
    entries: Arc<Entries>,
    /// Who waits for each fetch that is under way.
    waiting: HashMap<Wanted, Vec<Reply>>,
    fetches: JoinSet<Result<Collateral, CollateralError>>,
    /// What each of them fetches, also of one that panics.
    running: HashMap<task::Id, Wanted>,
    /// What went wrong, and when.
    failures: HashMap<Wanted, (CollateralError, Timestamp)>,
}

impl Fetcher {
    pub(super) fn start(
        sources: CollateralSources,
        clock: Clock,
        entries: Arc<Entries>,
        requests: mpsc::Receiver<Request>,
    ) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let fetcher = Self {
            sources,
            clock,
            entries,
            waiting: HashMap::new(),
            fetches: JoinSet::new(),
            running: HashMap::new(),
            failures: HashMap::new(),
        };
        thread::Builder::new()
            .name("collateral".into())
            .spawn(move || runtime.block_on(fetcher.run(requests)))
            .map(drop)
    }

    /// Works until the cache is dropped.
    async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut rounds = tokio::time::interval(ROUNDS);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Some(Request::Get(key, update, reply)) => self.get((key, update), reply),
                    Some(Request::Refresh(key)) => self.refresh(key),
                    None => return,
                },
                Some(fetched) = self.fetches.join_next_with_id() => {
                    let (id, result) = match fetched {
                        Ok((id, result)) => (id, result),
                        Err(error) => (error.id(), Err(CollateralError::Unreachable("its client failed".into()))),
                    };
                    if let Some(wanted) = self.running.remove(&id) {
                        self.fetched(wanted, result);
                    }
                }
                _ = rounds.tick() => self.refresh_all(),
            }
        }
    }

    fn get(&mut self, wanted: Wanted, reply: Reply) {
        // Somebody's fetch may have ended since the caller looked.
        let now = self.clock.now();
        if wanted.1 == Update::Standard
            && let Some(kept) = self.entries.read().get(&wanted.0).and_then(|entry| entry.usable(now))
        {
            return reply.send(Ok(kept));
        }
        match self.failures.get(&wanted) {
            Some((error, at)) if is_recent(*at, now) => return reply.send(Err(error.clone())),
            _ => {}
        }
        if let Err((error, reply)) = self.wait(wanted, reply) {
            reply.send(Err(error));
        }
    }

    /// Adds to those who wait, starting the fetch for the first.
    fn wait(&mut self, wanted: Wanted, reply: Reply) -> Result<(), (CollateralError, Reply)> {
        if let Some(waiting) = self.waiting.get_mut(&wanted) {
            if waiting.len() >= MAX_WAITING {
                return Err((CollateralError::Busy, reply));
            }
            waiting.push(reply);
            return Ok(());
        }
        match self.begin(wanted) {
            Ok(()) => self.waiting.entry(wanted).or_default().push(reply),
            Err(error) => return Err((error, reply)),
        }
        Ok(())
    }

    fn begin(&mut self, wanted: Wanted) -> Result<(), CollateralError> {
        let (key, update) = wanted;
        if self.fetches.len() >= MAX_FETCHES {
            return Err(CollateralError::Busy);
        }
        let source = Arc::clone(self.sources.of(key.root).ok_or(CollateralError::NoSource(key.root))?);
        self.waiting.entry(wanted).or_default();
        let fetch = self.fetches.spawn(async move {
            let fetched = tokio::time::timeout(FETCH_TIME, source.fetch(&key, update)).await;
            let too_slow =
                || CollateralError::Unreachable(format!("no answer within {} seconds", FETCH_TIME.as_secs()));
            fetched.unwrap_or_else(|_| Err(too_slow()))
        });
        self.running.insert(fetch.id(), wanted);
        Ok(())
    }

    fn refresh(&mut self, key: CollateralKey) {
        let wanted = (key, Update::Standard);
        let due = self.entries.read().get(&key).is_some_and(|entry| entry.is_due(self.clock.now()));
        if due && !self.waiting.contains_key(&wanted) {
            // Without room for it now, a later round does it.
            let _ = self.begin(wanted);
        }
    }

    fn refresh_all(&mut self) {
        let now = self.clock.now();
        self.failures.retain(|_, (_, at)| is_recent(*at, now));
        let due: Vec<_> =
            self.entries.read().iter().filter(|(_, entry)| entry.is_due(now)).map(|(key, _)| *key).collect();
        for key in due {
            self.refresh(key);
        }
    }

    fn fetched(&mut self, wanted: Wanted, result: Result<Collateral, CollateralError>) {
        let waiting = self.waiting.remove(&wanted).unwrap_or_default();
        let now = self.clock.now();
        let entry = result.and_then(|collateral| {
            let validity = check(&wanted.0, &collateral)?;
            let collateral = Arc::new(collateral);
            let entry = Entry::new(Arc::clone(&collateral), validity, now);
            entry.usable(now).map(|_| (collateral, entry)).ok_or_else(|| {
                let (from, until) = (validity.from, validity.until);
                CollateralError::Malformed(format!("collateral for {from} to {until}; now it is {now}"))
            })
        });
        let answer: Answer = match entry {
            Ok((collateral, entry)) => {
                self.failures.remove(&wanted);
                if wanted.1 == Update::Standard {
                    self.keep(wanted.0, entry);
                }
                Ok(collateral)
            }
            Err(error) => {
                self.failed(wanted, &error, now);
                Err(error)
            }
        };
        for reply in waiting {
            reply.send(answer.clone());
        }
    }

    fn keep(&self, key: CollateralKey, entry: Entry) {
        info!(platforms = %key, "collateral fetched");
        let mut entries = self.entries.write();
        if entries.len() >= MAX_ENTRIES && !entries.contains_key(&key) {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.last_used()).map(|(key, _)| *key);
            if let Some(oldest) = oldest {
                entries.remove(&oldest);
            }
        }
        entries.insert(key, entry);
    }

    fn failed(&mut self, wanted: Wanted, error: &CollateralError, now: Timestamp) {
        warn!(platforms = %wanted.0, %error, "collateral cannot be fetched");
        if wanted.1 == Update::Standard
            && let Some(entry) = self.entries.write().get_mut(&wanted.0)
        {
            entry.put_off(now.saturating_add(REFRESH_AGAIN).unwrap_or(Timestamp::MAX));
        }
        if self.failures.len() < MAX_ENTRIES {
            self.failures.insert(wanted, (error.clone(), now));
        }
    }
}

/// Whether a failure is told to whoever asks again: not after the clock was set back either.
fn is_recent(failed_at: Timestamp, now: Timestamp) -> bool {
    (SignedDuration::ZERO..FAILURE_KEPT).contains(&failed_at.duration_until(now))
}
