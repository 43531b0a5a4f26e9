//! Source of the current time.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// Tells the time; cheap to clone. Whoever verifies decides what "now" is.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's clock.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else is given")]
    pub fn system() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// A clock that always says `time`.
    #[must_use]
    pub fn fixed(time: Timestamp) -> Self {
        Self(Arc::new(move || time))
    }

    /// A clock that somebody else keeps.
    #[must_use]
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
