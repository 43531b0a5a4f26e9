//! What is known of the chain's head, and which block is the confirmed one.

use std::sync::Arc;
use std::time::Duration;

use cloister_verifier::Clock;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::answers::BlockRef;
use crate::error::{ChainError, Failure};
use crate::quorum::Endpoints;
use crate::rpc::endpoint::Endpoint;
use crate::rpc::wire::{self, hexadecimal};
use crate::rpc::{Call, Item};

/// What is known is looked up again when it is older: a grant shall not wait longer than that to be seen, and nodes
/// forget the state of old blocks.
const STALE_AFTER: Duration = Duration::from_secs(30);
/// How far a block may be in the future: clocks differ.
const MAX_FUTURE_SECONDS: i64 = 60;

/// What is known of the chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The confirmed block.
    pub(crate) confirmed: BlockRef,
    /// Height of the newest block.
    pub(crate) head: u64,
    seen: Instant,
}

impl Known {
    pub(crate) fn new(confirmed: BlockRef, head: u64) -> Self {
        Self { confirmed, head, seen: Instant::now() }
    }
}

/// Remembers what is known.
#[derive(Debug)]
pub(crate) struct Heads {
    confirmations: u64,
    max_age: Option<Duration>,
    clock: Clock,
    known: Mutex<Option<Known>>,
}

impl Heads {
    pub(crate) fn new(confirmations: u64, max_age: Option<Duration>, clock: Clock) -> Self {
        Self { confirmations, max_age, clock, known: Mutex::new(None) }
    }

    /// Height of the block that is confirmed when `head` is the newest one.
    pub(crate) fn confirmed_at(&self, head: u64) -> u64 {
        head.saturating_sub(self.confirmations)
    }

    /// What is known, unless it is too old.
    pub(crate) fn known(&self) -> Option<Known> {
        self.known.lock().filter(|known| known.seen.elapsed() < STALE_AFTER)
    }

    /// Learns.
    pub(crate) fn learn(&self, known: Known) {
        *self.known.lock() = Some(known);
    }

    /// Forgets everything, because it was found wrong.
    pub(crate) fn forget(&self) {
        *self.known.lock() = None;
    }

    /// Whether a block of this time (seconds since 1970) may be the newest one.
    pub(crate) fn check_age(&self, timestamp: u64) -> Result<(), Failure> {
        let Some(max_age) = self.max_age else { return Ok(()) };
        let age = self.clock.now().as_second().saturating_sub(i64::try_from(timestamp).unwrap_or(i64::MAX));
        if age < MAX_FUTURE_SECONDS.saturating_neg() {
            return Err(Failure::Future);
        }
        match u64::try_from(age) {
            Ok(age) if age > max_age.as_secs() => Err(Failure::Lagging(age)),
            _ => Ok(()),
        }
    }

    /// Looks up the head and the confirmed block: two round trips.
    pub(crate) async fn look_up(&self, endpoints: &Endpoints) -> Result<Known, ChainError> {
        let newest = |endpoint: Arc<Endpoint>| async move {
            let head = block(&endpoint, "latest").await?;
            self.check_age(head.timestamp)?;
            Ok(head.number)
        };
        let mut heights = endpoints.survey(newest).await?;
        // The lowest of the `quorum` highest: fewer liars than that move it neither up nor down for long.
        heights.sort_unstable_by(|a, b| b.cmp(a));
        let head = heights.get(endpoints.quorum.saturating_sub(1)).copied().unwrap_or_default();
        self.confirm(endpoints, head).await
    }

    /// Looks up the block that is confirmed when `head` is the newest one: one round trip.
    pub(crate) async fn confirm(&self, endpoints: &Endpoints, head: u64) -> Result<Known, ChainError> {
        let height = self.confirmed_at(head);
        let at_height = |endpoint: Arc<Endpoint>| async move {
            let found = block(&endpoint, &hexadecimal(height)).await?;
            if found.number == height { Ok(found) } else { Err(Failure::Garbage("another block")) }
        };
        let agreed = endpoints.agree(at_height, |a, b| a == b).await?;
        let confirmed = agreed.first().copied().ok_or_else(|| ChainError::NoQuorum {
            chain: endpoints.chain.clone(),
            needed: endpoints.quorum,
            agreed: 0,
            endpoints: Vec::new(),
        })?;
        let known = Known::new(confirmed, head);
        self.learn(known);
        Ok(known)
    }
}

/// The call for the header of the block at a height, or of `latest`.
pub(crate) fn header_call(which: &str) -> Call {
    Call::new("eth_getBlockByNumber", json!([which, false]))
}

/// The header in the answer to [`header_call`].
pub(crate) fn header(item: Option<Item>) -> Result<BlockRef, Failure> {
    let item = item.ok_or(Failure::Garbage("an answer is missing"))??;
    wire::header(&item)?.ok_or(Failure::UnknownBlock)
}

async fn block(endpoint: &Endpoint, which: &str) -> Result<BlockRef, Failure> {
    let mut items = endpoint.batch(vec![header_call(which)]).await?;
    header(items.pop())
}
