//! Keys that a control plane has just known: their requests need not be asked about before they are read.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::admission::KeyHash;

/// How long a key is remembered.
const TIME: Duration = Duration::from_mins(5);
/// Most keys that are remembered.
const MOST: usize = 1 << 16;

/// When each was known last. Nothing is granted by it but that a body is read.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashMap<KeyHash, Instant>>);

impl Known {
    pub(super) fn has(&self, key: KeyHash) -> bool {
        self.0.lock().get(&key).is_some_and(|noted| noted.elapsed() < TIME)
    }

    pub(super) fn note(&self, key: KeyHash) {
        self.note_at(key, Instant::now());
    }

    fn note_at(&self, key: KeyHash, now: Instant) {
        let mut known = self.0.lock();
        if known.len() >= MOST && !known.contains_key(&key) {
            known.retain(|_, noted| now.saturating_duration_since(*noted) < TIME);
            if known.len() >= MOST {
                // All are asked about again, one after the other.
                known.clear();
            }
        }
        known.insert(key, now);
    }

    pub(super) fn forget(&self, key: KeyHash) {
        self.0.lock().remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_forgotten_when_they_are_told_to_be_or_too_many() {
        let known = Known::default();
        let key = |number: usize| KeyHash::of(&number.to_string());
        known.note(key(0));
        assert!(known.has(key(0)) && !known.has(key(1)));
        known.forget(key(0));
        assert!(!known.has(key(0)));
        for number in 0..=MOST {
            known.note(key(number));
        }
        assert!(known.has(key(MOST)) && !known.has(key(0)));
        assert_eq!(known.0.lock().len(), 1);
    }
}
