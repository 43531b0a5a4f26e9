//! Refusals on their way into the log: the first at once, those that follow it together. So nothing that
//! a stranger does makes the log grow faster than some records a minute.

use std::collections::HashMap;
use std::time::Duration;

use cloister_kms_api::log::{Caller, Event, Released};
use cloister_kms_api::{KmsError, KmsErrorCode};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::peers::Network;
use crate::state::Keys;

/// How long refusals are counted together.
const TOGETHER: Duration = Duration::from_mins(1);
/// How often it is looked for what was counted long enough.
const SWEEP: Duration = Duration::from_secs(5);
/// Most callers that are told apart within that time.
const MAX_CALLERS: usize = 64;
/// Most reasons for one caller that are told apart.
const MAX_REASONS: usize = 4;
/// Longest reason, in bytes.
const MAX_REASON_BYTES: usize = 512;
const SEVERAL: &str = "further refusals, for several reasons";

/// Who is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// Somebody without good evidence.
    Stranger(Network),
    /// The holder of a verified key.
    Known([u8; 32]),
    /// Everybody for whom there is no place of their own.
    Others,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Reason {
    asked: Option<Released>,
    code: KmsErrorCode,
    text: String,
}

struct Tally {
    caller: Caller,
    since: Instant,
    /// Since the first, which is recorded.
    further: u64,
}

/// Counts refusals and records them.
pub(crate) struct Refusals {
    keys: Keys,
    open: Mutex<HashMap<Who, HashMap<Reason, Tally>>>,
}

impl Refusals {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys, open: Mutex::default() }
    }

    /// Notes a refusal. The first of its kind is in the log when this returns; those of the same caller for
    /// the same reason within a minute are in one record at its end.
    pub(crate) async fn note(
        &self,
        who: Who,
        asked: Option<Released>,
        caller: Caller,
        error: &KmsError,
    ) -> Result<(), KmsError> {
        let reason = Reason { asked, code: error.code, text: cut(&error.error) };
        if self.count(who, &reason, &caller) {
            self.keys.record(event(reason, caller, 1)).await?;
        }
        Ok(())
    }

    /// Counts; whether this one is the first and is to be recorded now.
    fn count(&self, who: Who, reason: &Reason, caller: &Caller) -> bool {
        let mut open = self.open.lock();
        let full = open.len() >= MAX_CALLERS && !open.contains_key(&who);
        let (who, caller) = if full { (Who::Others, Caller::default()) } else { (who, caller.clone()) };
        let reasons = open.entry(who).or_default();
        let first = |further| Tally { caller, since: Instant::now(), further };
        if let Some(tally) = reasons.get_mut(reason) {
            tally.further += 1;
            return false;
        }
        if reasons.len() < MAX_REASONS {
            reasons.insert(reason.clone(), first(0));
            return true;
        }
        let several = Reason { asked: None, code: reason.code, text: SEVERAL.to_owned() };
        reasons.entry(several).or_insert_with(|| first(0)).further += 1;
        false
    }

    /// Records what was counted, again and again.
    pub(crate) async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            self.flush(TOGETHER).await;
        }
    }

    /// Records what is being counted for `least` or longer. A failure is logged by the state.
    pub(crate) async fn flush(&self, least: Duration) {
        let now = Instant::now();
        let mut done = Vec::new();
        {
            let mut open = self.open.lock();
            for reasons in open.values_mut() {
                done.extend(reasons.extract_if(|_, tally| now.duration_since(tally.since) >= least));
            }
            open.retain(|_, reasons| !reasons.is_empty());
        }
        for (reason, tally) in done.into_iter().filter(|(_, tally)| tally.further > 0) {
            let _ = self.keys.record(event(reason, tally.caller, tally.further)).await;
        }
    }
}

fn event(reason: Reason, caller: Caller, count: u64) -> Event {
    Event::Refusal { asked: reason.asked, caller, code: reason.code, reason: reason.text, count }
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(MAX_REASON_BYTES);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default().to_owned()
}
