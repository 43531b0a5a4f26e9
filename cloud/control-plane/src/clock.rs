//! The only places that ask the operating system for the time or for randomness.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use uuid::Uuid;

/// What passed time is counted from.
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Source of the current time; cheap to clone.
#[derive(Clone)]
pub struct Clock(Option<Arc<Manual>>);

/// A clock that only moves when it is told to.
struct Manual {
    /// Milliseconds since the Unix epoch.
    time_ms: AtomicI64,
    passed_ms: AtomicU64,
}

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that stands at `start` until it is moved with [`Clock::advance_ms`].
    #[must_use]
    pub fn manual(start: Timestamp) -> Self {
        Self(Some(Arc::new(Manual {
            time_ms: AtomicI64::new(start.as_millisecond()),
            passed_ms: AtomicU64::new(0),
        })))
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.now_ms()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// The current time in milliseconds since the Unix epoch.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else is given")]
    pub fn now_ms(&self) -> i64 {
        match &self.0 {
            None => Timestamp::now().as_millisecond(),
            Some(manual) => manual.time_ms.load(Ordering::SeqCst),
        }
    }

    /// How much time passed since some moment before. Never goes back, and takes no notice of a clock that is set: what
    /// is counted within a time is counted by this.
    #[must_use]
    pub fn passed(&self) -> Duration {
        match &self.0 {
            None => BEGINNING.elapsed(),
            Some(manual) => Duration::from_millis(manual.passed_ms.load(Ordering::SeqCst)),
        }
    }

    /// Lets time pass on a manual clock; the machine's clock stays as it is.
    pub fn advance_ms(&self, by_ms: i64) {
        self.set_ms(by_ms);
        if let Some(manual) = &self.0 {
            manual.passed_ms.fetch_add(u64::try_from(by_ms).unwrap_or_default(), Ordering::SeqCst);
        }
    }

    /// Sets a manual clock forward or back, as somebody does to a machine's: no time passes.
    pub fn set_ms(&self, by_ms: i64) {
        if let Some(manual) = &self.0 {
            manual.time_ms.fetch_add(by_ms, Ordering::SeqCst);
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Clock(manual)" } else { "Clock(system)" })
    }
}

/// Source of unpredictable bytes; cheap to clone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

/// The operating system gave no randomness.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gives no random bytes")]
pub struct NoRandomness(#[from] getrandom::Error);

impl Random {
    /// `N` random bytes.
    pub fn bytes<const N: usize>(self) -> Result<[u8; N], NoRandomness> {
        let mut bytes = [0; N];
        getrandom::fill(&mut bytes)?;
        Ok(bytes)
    }

    /// A random (version 4) UUID.
    pub fn uuid(self) -> Result<Uuid, NoRandomness> {
        Ok(uuid::Builder::from_random_bytes(self.bytes()?).into_uuid())
    }

    /// A UUID that sorts by this Unix time in milliseconds (version 7, RFC 9562): what was made together lies
    /// together in an index.
    pub fn uuid_at(self, now_ms: i64) -> Result<Uuid, NoRandomness> {
        let millis = u64::try_from(now_ms).unwrap_or_default();
        Ok(uuid::Builder::from_unix_timestamp_millis(millis, &self.bytes()?).into_uuid())
    }
}
