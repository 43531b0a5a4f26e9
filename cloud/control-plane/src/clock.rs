//! The only places that ask the operating system for the time or for randomness.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use uuid::Uuid;

/// Source of the current time; cheap to clone.
#[derive(Clone)]
pub struct Clock(Option<Arc<AtomicI64>>);

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that stands at `start` until it is moved with [`Clock::advance_ms`].
    #[must_use]
    pub fn manual(start: Timestamp) -> Self {
        Self(Some(Arc::new(AtomicI64::new(start.as_millisecond()))))
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
            Some(manual) => manual.load(Ordering::SeqCst),
        }
    }

    /// Moves a manual clock; the machine's clock stays as it is.
    pub fn advance_ms(&self, by_ms: i64) {
        if let Some(manual) = &self.0 {
            manual.fetch_add(by_ms, Ordering::SeqCst);
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
