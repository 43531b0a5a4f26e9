//! Intervals: all that is stored of usage. Everything else is computed from them.

use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use uuid::Uuid;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// What is used. The order is that of the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UsageType {
    /// Virtual CPUs and memory of a CVM that serves its tenant.
    Compute,
    /// Its GPUs.
    Gpu,
    /// Its data disk, as long as the CVM exists.
    Storage,
}

impl UsageType {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Compute, Self::Gpu, Self::Storage];

    /// Name on the wire and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Gpu => "gpu",
            Self::Storage => "storage",
        }
    }
}

impl fmt::Display for UsageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No usage type has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no usage type is called {0:?}")]
pub struct UnknownUsageType(String);

impl FromStr for UsageType {
    type Err = UnknownUsageType;

    fn from_str(name: &str) -> Result<Self, UnknownUsageType> {
        let known = Self::ALL.into_iter().find(|usage_type| usage_type.as_str() == name);
        known.ok_or_else(|| UnknownUsageType(name.to_owned()))
    }
}

/// A stretch of time, `[start_ms, end_ms)`, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its first moment.
    pub start_ms: i64,
    /// The moment after its last one.
    pub end_ms: i64,
}

impl Window {
    /// From the beginning to the end of time.
    pub const EVER: Self = Self { start_ms: i64::MIN, end_ms: i64::MAX };

    /// What both windows share.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        Self { start_ms: self.start_ms.max(other.start_ms), end_ms: self.end_ms.min(other.end_ms) }
    }

    /// The whole hours that it reaches into: records of these are never parts of others with the same key.
    #[must_use]
    pub fn whole_hours(self) -> Self {
        let begin = |at_ms: i64| at_ms.saturating_sub(at_ms.rem_euclid(HOUR_MS));
        if self.start_ms >= self.end_ms {
            return self;
        }
        Self { start_ms: begin(self.start_ms), end_ms: begin(self.end_ms.saturating_add(HOUR_MS - 1)) }
    }
}

/// The part of an interval that its price is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Whose.
    pub cvm_id: i64,
    /// Of what.
    pub usage_type: UsageType,
    /// What an hour of it costs.
    pub rate: Decimal,
    /// When it began.
    pub from_ms: i64,
    /// When it ended; `None` while it goes on.
    pub to_ms: Option<i64>,
}

impl Span {
    /// Numbers of the first whole minute of this within a window and of the one after the last. Minutes are
    /// counted by where they begin, so adjacent spans share none and leave none out.
    pub(crate) fn minutes(&self, window: Window, now_ms: i64) -> (i64, i64) {
        let end_ms = self.to_ms.unwrap_or(now_ms).min(now_ms).min(window.end_ms);
        (minute_of(self.from_ms.max(window.start_ms)), minute_of(end_ms))
    }
}

/// Number of the minute that a moment lies in.
#[must_use]
pub fn minute_of(at_ms: i64) -> i64 {
    at_ms.div_euclid(MINUTE_MS)
}

/// Something that a CVM uses, from a moment to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// What it costs, and when.
    pub span: Span,
    /// Workspace of the CVM.
    pub workspace_id: i64,
    /// Application of the CVM, 40 hex digits.
    pub app_id: String,
    /// The CVM's identity on its node.
    pub vm_uuid: Uuid,
    /// What of its kind is used: the members of a JSON object, such as `"vcpu":2,"memory_mb":4096`.
    pub what: String,
}
