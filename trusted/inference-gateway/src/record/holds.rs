//! Sessions that somebody needs who has no receipt yet.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::tables::NameHash;

/// How many hold a session.
#[derive(Debug, Default)]
pub(super) struct Holds(Mutex<HashMap<NameHash, usize>>);

/// A session record that stays, whatever its end, until this is dropped: for a request whose receipt will cite it.
#[derive(Debug)]
pub struct SessionHold {
    holds: Arc<Holds>,
    name: NameHash,
}

impl Holds {
    pub(super) fn hold(self: &Arc<Self>, name: NameHash) -> SessionHold {
        *self.0.lock().entry(name).or_default() += 1;
        SessionHold { holds: Arc::clone(self), name }
    }

    /// All that are held now.
    pub(super) fn names(&self) -> HashSet<NameHash> {
        self.0.lock().keys().copied().collect()
    }
}

impl Drop for SessionHold {
    fn drop(&mut self) {
        let mut holds = self.holds.0.lock();
        if let Some(count) = holds.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                holds.remove(&self.name);
            }
        }
    }
}
