//! The guest's clock.

use jiff::Timestamp;
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
use tracing::warn;

/// A guest clock that is behind the node's by more than this was not running before the boot.
const CREDIBLE_LAG_S: i64 = 24 * 60 * 60;

/// Now, by the guest's clock; the Unix epoch if that shows no possible time.
pub(crate) fn now() -> Timestamp {
    let time = clock_gettime(ClockId::Realtime);
    Timestamp::from_second(time.tv_sec).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Milliseconds since the guest's kernel started.
pub(crate) fn uptime_ms() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec * 1000 + time.tv_nsec / 1_000_000).unwrap_or(0)
}

/// Sets a clock that never ran to the moment at which the node launched the VM, so that certificates
/// can be valid at all. Whoever needs a time that the node cannot choose needs another source.
pub(crate) fn set_if_absent(launched_at_ms: i64) {
    let launch = launched_at_ms / 1000;
    if clock_gettime(ClockId::Realtime).tv_sec >= launch.saturating_sub(CREDIBLE_LAG_S) {
        return;
    }
    if let Err(error) = clock_settime(ClockId::Realtime, Timespec { tv_sec: launch, tv_nsec: 0 }) {
        warn!("cannot set the clock: {error}");
    }
}
