//! The event log of this boot, as long as it may become.

use std::sync::{Arc, Mutex, PoisonError};

use cloister_evidence::{EventLogEntry, MAX_EVENTS, RuntimeEvent};

/// Most bytes of names and payloads of all runtime events of a boot.
pub const MAX_RUNTIME_LOG_BYTES: usize = 512 << 10;

/// Readers take the log as it is; the platform's thread alone appends.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedLog {
    entries: Arc<Mutex<Arc<Vec<EventLogEntry>>>>,
}

impl SharedLog {
    pub(crate) fn snapshot(&self) -> Arc<Vec<EventLogEntry>> {
        Arc::clone(&self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn append(&self, entries: impl IntoIterator<Item = EventLogEntry>) {
        let mut current = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut current).extend(entries);
    }
}

/// What is left for runtime events.
#[derive(Debug)]
pub(crate) struct Room {
    events: usize,
    bytes: usize,
}

impl Room {
    pub(crate) const fn beside(boot_events: usize) -> Self {
        Self { events: MAX_EVENTS.saturating_sub(boot_events), bytes: MAX_RUNTIME_LOG_BYTES }
    }

    /// Takes what `event` needs, or tells that it does not fit.
    pub(crate) fn take(&mut self, event: &RuntimeEvent) -> bool {
        let needed = event.name.len().saturating_add(event.payload.len());
        let (Some(events), Some(bytes)) = (self.events.checked_sub(1), self.bytes.checked_sub(needed)) else {
            return false;
        };
        *self = Self { events, bytes };
        true
    }
}
