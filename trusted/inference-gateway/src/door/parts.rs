//! How much of the memory for bodies the requests of one key and their answers may take: no key may fill it for all.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::budget::NoRoom;
use crate::admission::KeyHash;

/// What the bodies of each key take, in units of the budget. A key stands here only while they take something.
#[derive(Debug, Default)]
pub(super) struct Parts(Mutex<HashMap<KeyHash, usize>>);

/// What one body takes of its key's part. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Part {
    parts: Arc<Parts>,
    key: KeyHash,
    units: usize,
}

impl Part {
    /// Of a body of which nothing has come yet.
    pub(super) fn of(parts: &Arc<Parts>, key: KeyHash) -> Self {
        Self { parts: Arc::clone(parts), key, units: 0 }
    }

    /// Makes it so many units, with so many left to all. Fails where the key would have more than `whole` units, which each
    /// may have, and more than what it leaves.
    pub(super) fn try_grow(&mut self, units: usize, left: usize, whole: usize) -> Result<(), NoRoom> {
        let mut parts = self.parts.0.lock();
        let all = self.grown(&parts, units, left, whole)?;
        parts.insert(self.key, all);
        self.units = self.units.max(units);
        Ok(())
    }

    /// Whether it could be made so many units; fails like [`Self::try_grow`].
    pub(super) fn check(&self, units: usize, left: usize, whole: usize) -> Result<(), NoRoom> {
        self.grown(&self.parts.0.lock(), units, left, whole).map(drop)
    }

    /// Whether the key would have more than `most` units then.
    pub(super) fn exceeds(&self, units: usize, most: usize) -> bool {
        let all = self.parts.0.lock().get(&self.key).copied().unwrap_or(0);
        all.saturating_add(units.saturating_sub(self.units)) > most
    }

    /// What the key would have then.
    fn grown(
        &self,
        parts: &HashMap<KeyHash, usize>,
        units: usize,
        left: usize,
        whole: usize,
    ) -> Result<usize, NoRoom> {
        let more = units.saturating_sub(self.units);
        let all = parts.get(&self.key).copied().unwrap_or(0).saturating_add(more);
        if all > whole.max(left.saturating_sub(more)) { Err(NoRoom) } else { Ok(all) }
    }

    /// Makes it no more than so many units.
    pub(super) fn shrink(&mut self, units: usize) {
        let less = self.units.saturating_sub(units);
        let mut parts = self.parts.0.lock();
        if let Some(all) = parts.get_mut(&self.key) {
            *all = all.saturating_sub(less);
            if *all == 0 {
                parts.remove(&self.key);
            }
        }
        self.units -= less;
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_leaves_as_much_as_it_takes_but_for_one_whole_body() {
        const WHOLE: usize = 32;
        let (parts, one, other) = (Arc::<Parts>::default(), KeyHash::of("one"), KeyHash::of("other"));
        let (mut first, mut second) = (Part::of(&parts, one), Part::of(&parts, one));
        first.try_grow(32, 200, WHOLE).unwrap();
        second.try_grow(68, 168, WHOLE).unwrap();
        assert_eq!(second.try_grow(69, 100, WHOLE), Err(NoRoom), "101 of 200");
        let (mut third, mut fourth) = (Part::of(&parts, other), Part::of(&parts, other));
        third.try_grow(32, 40, WHOLE).unwrap();
        assert_eq!(fourth.try_grow(1, 8, WHOLE), Err(NoRoom));
        first.shrink(31);
        second.try_grow(69, 101, WHOLE).unwrap();
        drop((first, second, third, fourth));
        assert!(parts.0.lock().is_empty());
    }
}
