//! How many of something each owner may have at a time.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

type Taken = Arc<Mutex<HashMap<i64, usize>>>;

/// Hands out at most so many slots to each owner.
pub(crate) struct Slots {
    most: usize,
    taken: Taken,
}

/// One of them; free again when it is dropped.
pub(crate) struct Slot {
    owner: i64,
    taken: Taken,
}

impl Slots {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: Taken::default() }
    }

    /// A slot of an owner; `None` when the owner has all of its own already.
    pub(crate) fn take(&self, owner: i64) -> Option<Slot> {
        let mut taken = self.taken.lock();
        let count = taken.entry(owner).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Slot { owner, taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        if let Some(count) = taken.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_its_own_and_gets_them_back() {
        let slots = Slots::new(2);
        let first = slots.take(1);
        let second = slots.take(1);
        assert!(first.is_some() && second.is_some() && slots.take(1).is_none());
        assert!(slots.take(2).is_some());
        drop(first);
        assert!(slots.take(1).is_some());
        drop(second);
        assert!(slots.taken.lock().is_empty());
    }
}
