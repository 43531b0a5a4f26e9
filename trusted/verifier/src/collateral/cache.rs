//! Collateral for everybody in this process: fetched once for any number of callers, refreshed daily and before
//! it expires, on a thread of its own, so that callers with and without a runtime use the same mechanism.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc as blocking};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot};

use super::fetcher::Fetcher;
use super::validity::Validity;
use crate::{Clock, Collateral, CollateralError, CollateralKey, CollateralSource, TrustRoot, Update};

/// Most platforms' collateral that is kept; the least recently used goes first.
pub(super) const MAX_ENTRIES: usize = 256;
/// Most requests that wait for the fetching thread to look at them.
const MAX_REQUESTS: usize = 4096;
/// Longest that a caller waits.
const PATIENCE: Duration = Duration::from_secs(30);
/// An entry is refreshed when a tenth of its time, or this, is left, ...
const REFRESH_AHEAD: SignedDuration = SignedDuration::from_hours(24);
/// ... and when it is this old: vendors revoke and find faults while older lists still hold for weeks.
const REFRESH_EVERY: SignedDuration = SignedDuration::from_hours(24);
/// Entries are not used in their last moments: what is verified now is often looked at a little later.
const LAST_MOMENTS: SignedDuration = SignedDuration::from_secs(30);

/// Where the collateral of each root comes from.
#[derive(Clone, Default)]
pub struct CollateralSources(BTreeMap<TrustRoot, Arc<dyn CollateralSource>>);

impl CollateralSources {
    /// No source.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Also this source, instead of a former one of the same root.
    #[must_use]
    pub fn with(mut self, root: TrustRoot, source: impl CollateralSource) -> Self {
        self.0.insert(root, Arc::new(source));
        self
    }

    pub(super) fn of(&self, root: TrustRoot) -> Option<&Arc<dyn CollateralSource>> {
        self.0.get(&root)
    }
}

impl fmt::Debug for CollateralSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The cache's thread could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the thread that fetches collateral cannot be started")]
pub struct CacheError(#[from] std::io::Error);

/// Collateral by kind of platform. Ends its thread when dropped.
pub struct CollateralCache {
    entries: Arc<Entries>,
    requests: mpsc::Sender<Request>,
    clock: Clock,
}

/// What the cache asks of its thread.
pub(super) enum Request {
    /// Get it now, for somebody who waits.
    Get(CollateralKey, Update, Reply),
    /// Get it anew while the old is still good.
    Refresh(CollateralKey),
}

/// Somebody who waits.
pub(super) enum Reply {
    Async(oneshot::Sender<Answer>),
    Blocking(blocking::SyncSender<Answer>),
}

pub(super) type Answer = Result<Arc<Collateral>, CollateralError>;

impl Reply {
    pub(super) fn send(self, answer: Answer) {
        // Whoever no longer waits needs no answer.
        match self {
            Self::Async(reply) => drop(reply.send(answer)),
            Self::Blocking(reply) => drop(reply.try_send(answer)),
        }
    }
}

/// What is kept, shared between callers and the fetching thread.
pub(super) type Entries = RwLock<HashMap<CollateralKey, Entry>>;

pub(super) struct Entry {
    collateral: Arc<Collateral>,
    from: Timestamp,
    until: Timestamp,
    refresh_at: Timestamp,
    /// Milliseconds since 1970.
    last_used: AtomicI64,
}

impl Entry {
    pub(super) fn new(collateral: Arc<Collateral>, validity: Validity, now: Timestamp) -> Self {
        let usable = validity.until.saturating_sub(LAST_MOMENTS).unwrap_or(Timestamp::MIN);
        let ahead = now.duration_until(usable).as_secs() / 10;
        let ahead = REFRESH_AHEAD.min(SignedDuration::from_secs(ahead.max(0)));
        let before_end = usable.saturating_sub(ahead).unwrap_or(Timestamp::MIN);
        Self {
            collateral,
            from: validity.from,
            until: usable,
            refresh_at: before_end.min(now.saturating_add(REFRESH_EVERY).unwrap_or(Timestamp::MAX)),
            last_used: AtomicI64::new(now.as_millisecond()),
        }
    }

    /// The collateral, if it can be used now.
    pub(super) fn usable(&self, now: Timestamp) -> Option<Arc<Collateral>> {
        (self.from <= now && now < self.until).then(|| Arc::clone(&self.collateral))
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.refresh_at <= now
    }

    /// Puts the next refresh off, after one that failed.
    pub(super) fn put_off(&mut self, until: Timestamp) {
        self.refresh_at = until;
    }

    pub(super) fn last_used(&self) -> i64 {
        self.last_used.load(Ordering::Relaxed)
    }
}

impl CollateralCache {
    /// Starts the fetching thread.
    pub fn start(sources: CollateralSources, clock: Clock) -> Result<Arc<Self>, CacheError> {
        let entries = Arc::new(Entries::default());
        let (requests, received) = mpsc::channel(MAX_REQUESTS);
        Fetcher::start(sources, clock.clone(), Arc::clone(&entries), received)?;
        Ok(Arc::new(Self { entries, requests, clock }))
    }

    /// Collateral that can be used now: kept, or fetched once for all who ask meanwhile.
    pub async fn get(&self, key: &CollateralKey) -> Result<Arc<Collateral>, CollateralError> {
        match self.kept(key) {
            Some(collateral) => Ok(collateral),
            None => self.fetch(key, Update::Standard).await,
        }
    }

    /// The same for callers that cannot wait asynchronously.
    pub fn get_blocking(&self, key: &CollateralKey) -> Result<Arc<Collateral>, CollateralError> {
        if let Some(collateral) = self.kept(key) {
            return Ok(collateral);
        }
        let (reply, answer) = blocking::sync_channel(1);
        self.request(Request::Get(*key, Update::Standard, Reply::Blocking(reply)))?;
        answer.recv_timeout(PATIENCE).map_err(|error| match error {
            blocking::RecvTimeoutError::Timeout => too_slow(),
            blocking::RecvTimeoutError::Disconnected => CollateralError::Ended,
        })?
    }

    /// The vendor's newest evaluation, always fetched and never kept.
    pub async fn early(&self, key: &CollateralKey) -> Result<Arc<Collateral>, CollateralError> {
        self.fetch(key, Update::Early).await
    }

    async fn fetch(&self, key: &CollateralKey, update: Update) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.request(Request::Get(*key, update, Reply::Async(reply)))?;
        tokio::time::timeout(PATIENCE, answer)
            .await
            .map_err(|_| too_slow())?
            .map_err(|_| CollateralError::Ended)?
    }

    /// Whether collateral is kept that can be used now.
    pub(crate) fn has(&self, key: &CollateralKey) -> bool {
        let now = self.clock.now();
        self.entries.read().get(key).is_some_and(|entry| entry.usable(now).is_some())
    }

    /// What is kept and can be used; asks for a refresh when that is due.
    fn kept(&self, key: &CollateralKey) -> Option<Arc<Collateral>> {
        let now = self.clock.now();
        let (collateral, due) = {
            let entries = self.entries.read();
            let entry = entries.get(key)?;
            let collateral = entry.usable(now)?;
            entry.last_used.store(now.as_millisecond(), Ordering::Relaxed);
            (collateral, entry.is_due(now))
        };
        if due {
            // A full queue means that the thread is busy enough; the next caller asks again.
            let _ = self.requests.try_send(Request::Refresh(*key));
        }
        Some(collateral)
    }

    fn request(&self, request: Request) -> Result<(), CollateralError> {
        self.requests.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => CollateralError::Busy,
            mpsc::error::TrySendError::Closed(_) => CollateralError::Ended,
        })
    }
}

fn too_slow() -> CollateralError {
    CollateralError::Unreachable(format!("no answer within {} seconds", PATIENCE.as_secs()))
}

impl fmt::Debug for CollateralCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollateralCache").field("entries", &self.entries.read().len()).finish_non_exhaustive()
    }
}
