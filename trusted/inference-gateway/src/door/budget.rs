//! Memory that bodies of requests and answers may have together.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::inbound::MAX_BODY_BYTES;
use super::parts::{Part, Parts};
use crate::admission::KeyHash;

/// What a permit of the budget stands for, in bytes.
const UNIT: usize = 4096;
/// Longest body of an upstream, piece of one, beginning of an event, or answer that anybody may ask for, that does not count,
/// in bytes: few of them wait for each client.
pub const SMALL: usize = 4096;
/// What bodies of each key may take whatever they leave: one whole body.
const WHOLE: usize = MAX_BODY_BYTES / UNIT;

/// Memory that all bodies may have together. Each takes what there is of it, and gives it back when nobody needs its
/// bytes any more: those of a request once it was sent, those of an answer once the client has taken them.
#[derive(Debug, Clone)]
pub struct BodyBudget {
    room: Arc<Semaphore>,
    units: usize,
    parts: Arc<Parts>,
}

/// There is no room for a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for the body")]
pub struct NoRoom;

impl BodyBudget {
    /// Of so many bytes, rounded up to whole pages.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let units = bytes.div_ceil(UNIT).min(Semaphore::MAX_PERMITS);
        Self { room: Arc::new(Semaphore::new(units)), units, parts: Arc::default() }
    }

    /// What is left, in bytes.
    #[must_use]
    pub fn left(&self) -> usize {
        self.room.available_permits().saturating_mul(UNIT)
    }

    /// The share of one body, of which nothing has come yet. Each of its bytes counts `weight` times: more than once
    /// where it goes out longer than it came.
    #[must_use]
    pub fn share(&self, weight: usize) -> Share {
        Share { budget: self.clone(), weight, part: None, permit: None, units: 0, lacks: None }
    }

    /// The same of a request of a key, or of its answer. Those of one key have together no more than they leave to others, or
    /// one whole body.
    #[must_use]
    pub fn share_of(&self, key: KeyHash, weight: usize) -> Share {
        Share { part: Some(Part::of(&self.parts, key)), ..self.share(weight) }
    }
}

/// What one body takes of the budget. It is given back with the body.
#[derive(Debug)]
pub struct Share {
    budget: BodyBudget,
    weight: usize,
    part: Option<Part>,
    permit: Option<OwnedSemaphorePermit>,
    units: usize,
    /// From the beginning of a wait for room until there is some.
    lacks: Option<Lack>,
}

/// What there was no room for.
#[derive(Debug, Clone, Copy)]
struct Lack {
    bytes: usize,
    /// Whether the key has too much, whatever others have.
    is_own: bool,
}

impl Share {
    /// Takes what is lacking for so many bytes in all. Fails where that is not there now, or not for the key.
    pub fn try_cover(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let units = self.units_of(bytes);
        if let Some(more) = self.lacking(units)? {
            let permit = Arc::clone(&self.budget.room).try_acquire_many_owned(more).map_err(|_| NoRoom)?;
            self.take(permit, units)?;
        }
        Ok(())
    }

    /// The same, and waits until others give back theirs. Fails at once for more than there is in all, or for the key.
    pub async fn cover(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let lack = |is_own| Some(Lack { bytes, is_own });
        self.lacks = lack(false);
        let units = self.units_of(bytes);
        if let Some(more) = self.lacking(units)? {
            let is_own = self.is_too_much(units);
            self.check_part(units).inspect_err(|_| self.lacks = lack(is_own))?;
            let permit = Arc::clone(&self.budget.room).acquire_many_owned(more).await.map_err(|_| NoRoom)?;
            self.take(permit, units).inspect_err(|_| self.lacks = lack(is_own))?;
        }
        self.lacks = None;
        Ok(())
    }

    /// Whether [`Self::cover`] failed last, or was given up.
    #[must_use]
    pub const fn lacks_room(&self) -> bool {
        self.lacks.is_some()
    }

    /// For how many bytes in all [`Self::cover`] failed last because the key has too much.
    #[must_use]
    pub fn lacked_by_own_key(&self) -> Option<usize> {
        self.lacks.filter(|lack| lack.is_own).map(|lack| lack.bytes)
    }

    /// Gives back what was taken: nothing of the body is kept any more.
    pub fn give_back(&mut self) {
        (self.permit, self.units) = (None, 0);
        if let Some(part) = &mut self.part {
            part.shrink(0);
        }
    }

    /// Bytes that keep the share until nobody needs them any more.
    #[must_use]
    pub fn hold(self, bytes: Bytes) -> Bytes {
        if self.permit.is_none() {
            return bytes;
        }
        Bytes::from_owner(Held { bytes, _share: self })
    }

    fn units_of(&self, bytes: usize) -> usize {
        bytes.saturating_mul(self.weight).div_ceil(UNIT)
    }

    fn lacking(&self, units: usize) -> Result<Option<u32>, NoRoom> {
        if units > self.budget.units {
            return Err(NoRoom);
        }
        let more = u32::try_from(units.saturating_sub(self.units)).map_err(|_| NoRoom)?;
        Ok((more > 0).then_some(more))
    }

    /// Whether the key may have so much: one that has its part does not stand in line for what others give back.
    fn check_part(&self, units: usize) -> Result<(), NoRoom> {
        let left = self.budget.room.available_permits();
        self.part.as_ref().map_or(Ok(()), |part| part.check(units, left, WHOLE))
    }

    /// Whether the key could not have so much if there were nobody else.
    fn is_too_much(&self, units: usize) -> bool {
        self.part.as_ref().is_some_and(|part| part.exceeds(units, WHOLE.max(self.budget.units / 2)))
    }

    /// Keeps a permit, for so many units in all. Fails, and gives it back, where the key may not have so much.
    fn take(&mut self, permit: OwnedSemaphorePermit, units: usize) -> Result<(), NoRoom> {
        if let Some(part) = &mut self.part {
            let left = self.budget.room.available_permits().saturating_add(permit.num_permits());
            part.try_grow(units, left, WHOLE)?;
        }
        self.units = units;
        match &mut self.permit {
            Some(held) => held.merge(permit),
            None => self.permit = Some(permit),
        }
        Ok(())
    }
}

/// Bytes with their share of the budget.
struct Held {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_waits_gets_what_others_give_back() {
        let budget = BodyBudget::new(2 * UNIT);
        let (mut one, mut other) = (budget.share(1), budget.share(1));
        one.try_cover(UNIT + 1).unwrap();
        assert_eq!(other.try_cover(1), Err(NoRoom));
        let held = one.hold(Bytes::from_static(b"x"));
        assert!(other.cover(1).now_or_never().is_none());
        drop(held.slice(..));
        assert_eq!(budget.left(), 0);
        drop(held);
        assert_eq!(other.cover(1).now_or_never(), Some(Ok(())));
        other.give_back();
        assert_eq!(budget.left(), 2 * UNIT);
        assert_eq!(other.cover(2 * UNIT).now_or_never(), Some(Ok(())), "it may be used again");
        assert_eq!(other.cover(2 * UNIT + 1).now_or_never(), Some(Err(NoRoom)), "more than there ever is");
    }

    proptest! {
        /// Whatever bodies come and go, what is left is what nobody holds.
        #[test]
        fn nothing_is_lost(steps in prop::collection::vec((0_usize..4, 0_usize..100_000, 1_usize..4), 0..60)) {
            let budget = BodyBudget::new(64 * UNIT);
            let mut shares: Vec<(Share, usize)> = Vec::new();
            for (step, bytes, weight) in steps {
                if step == 0 && !shares.is_empty() {
                    shares.remove(bytes % shares.len());
                } else {
                    let mut share = budget.share(weight);
                    let units = (bytes * weight).div_ceil(UNIT);
                    let is_room = units * UNIT <= budget.left();
                    prop_assert_eq!(share.try_cover(bytes / 2).and_then(|()| share.try_cover(bytes)).is_ok(), is_room);
                    if is_room {
                        shares.push((share, units));
                    }
                }
                let held: usize = shares.iter().map(|(_, units)| units).sum();
                prop_assert_eq!(budget.left(), (64 - held) * UNIT);
            }
        }
    }
}
