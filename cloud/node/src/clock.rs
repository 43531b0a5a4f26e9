//! The crate's only source of time and randomness.

use std::io;
use std::time::Duration;

use cloister_guest_channel::NodeToken;
use jiff::Timestamp;

/// Now, to the millisecond: what the wire and the disk keep.
#[expect(clippy::disallowed_methods, reason = "the node's one reading of the wall clock")]
pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

/// A token for a new VM.
pub(crate) fn node_token() -> io::Result<NodeToken> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(NodeToken::from_bytes(bytes))
}

/// Between half of `pause` and the whole: nodes that lost the same control plane do not come back in step.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let share = getrandom::u32().unwrap_or(u32::MAX);
    pause / 2 + (pause / 2).mul_f64(f64::from(share) / f64::from(u32::MAX))
}
