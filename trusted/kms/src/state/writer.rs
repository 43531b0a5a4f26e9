//! Changes of the state, one after the other.
//!
//! A change is in the file with its log record in the outbox; then the record is appended to the log; then
//! the change takes effect; then the outbox is emptied. A crash anywhere leaves the old state, or the new one
//! with a record that is still to be appended or is found in the log. So each change is in the log exactly
//! once, and none takes effect before it is.

use std::sync::Arc;

use cloister_kms_api::log::{Event, Record};
use cloister_kms_api::{Hex, KmsError, KmsErrorCode};
use cloister_transparency_log::{Log, LogError};
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
use tracing::{error, warn};

use super::content::{ChangeMark, State};
use super::file::{DataDir, LOG_VERIFIER_KEY_FILE, ROOT_CA_FILE, Replacement, STATE_FILE};
use super::sealing::{SealError, SealingKey};
use super::{Boundaries, InvalidRoots, Snapshot};
use crate::clock::Random;
pub(crate) use crate::failure::chain;
use crate::secret_json::to_secret_json;

/// Mode of the state file.
const PRIVATE: u32 = 0o600;
/// Mode of files for relying parties.
const PUBLIC: u32 = 0o644;

/// Writes the state file.
pub(crate) struct Writer {
    pub(super) dir: Arc<DataDir>,
    pub(super) key: SealingKey,
    pub(super) random: Random,
    pub(super) boundaries: Boundaries,
    /// What the file holds.
    pub(super) state: State,
    /// How many records of its outbox are in the log.
    pub(super) appended: usize,
    /// Whether it is unknown what the file holds.
    pub(super) broken: bool,
}

/// Why the state was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It has no text.
    #[error("the state cannot be written as JSON")]
    Json(#[from] serde_json::Error),
    /// It cannot be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The old state is there.
    #[error("the state file cannot be replaced")]
    File(#[source] std::io::Error),
    /// Nobody knows which state is there.
    #[error("it is unknown whether the state file was replaced; a restart tells")]
    Uncertain(#[source] std::io::Error),
    /// The same, since an earlier change.
    #[error("an earlier change left it unknown what the state file holds; a restart tells")]
    Broken,
    /// The log takes no records.
    #[error("the release log cannot be extended")]
    Log(#[from] LogError),
    /// The change would leave roots that cannot be used.
    #[error(transparent)]
    Roots(#[from] InvalidRoots),
}

impl From<WriteError> for KmsError {
    fn from(error: WriteError) -> Self {
        error!(error = %chain(&error), "a change of the state failed");
        Self::new(KmsErrorCode::InternalError, error.to_string())
    }
}

impl Writer {
    /// Replaces the file by `state`.
    pub(super) fn write(&mut self, state: State, change: &str) -> Result<(), WriteError> {
        if self.broken {
            return Err(WriteError::Broken);
        }
        let sealed = self.key.seal(to_secret_json(&state)?, self.random)?;
        match self.dir.replace(STATE_FILE, &sealed, PRIVATE, change, &self.boundaries) {
            Ok(()) => {
                self.state = state;
                Ok(())
            }
            Err(Replacement::NotBegun(error)) => Err(WriteError::File(error)),
            Err(Replacement::Uncertain(error)) => {
                self.broken = true;
                Err(WriteError::Uncertain(error))
            }
        }
    }

    /// Makes `next` the state, with records of `events`. When this fails, either nothing has happened, or
    /// the change is in the file and takes effect after [`Writer::append_outbox`].
    pub(super) fn commit(
        &mut self,
        mut next: State,
        events: Vec<Event>,
        now: Timestamp,
        change: &str,
    ) -> Result<(), WriteError> {
        for event in events {
            // Later than any change before, so that no two records are the same.
            let after = next.changed_at.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(now);
            next.changed_at = now.max(after);
            next.outbox.push(serde_json::to_string(&Record { at: next.changed_at, event })?);
        }
        self.boundaries.at(change, "begun");
        self.write(next, change)
    }

    /// Appends what is in the outbox to the log, after what is known to be there already. The outbox stays.
    pub(super) fn append_outbox(&mut self, log: &Log, change: &str) -> Result<(), WriteError> {
        while let Some(record) = self.state.outbox.get(self.appended).cloned() {
            self.boundaries.at(change, "record not yet in the log");
            let hash = Hex::from(Sha256::digest(&record).to_vec());
            let index = log.append_blocking(record.into_bytes())?;
            self.boundaries.at(change, "record in the log");
            self.state.log.last_change = Some(ChangeMark { index, hash });
            self.appended += 1;
        }
        Ok(())
    }

    /// Forgets the records that were appended. When the file cannot be written, a restart finds them in the
    /// log.
    pub(super) fn empty_outbox(&mut self, change: &str) {
        self.appended = 0;
        self.state.outbox.clear();
        let change = format!("{change}, in effect");
        if let Err(error) = self.write(self.state.clone(), &change) {
            warn!(error = %chain(&error), "the outbox of the state could not be emptied");
        }
        self.boundaries.at(&change, "done");
    }

    /// Writes what relying parties need beside the state, where it differs. A failure does no harm: the next
    /// start tries again, and the directory tells the same.
    pub(super) fn publish(&self, snapshot: &Snapshot, log_verifier_key: &str) {
        let log_verifier_key = format!("{log_verifier_key}\n");
        for (name, text) in [(ROOT_CA_FILE, snapshot.root_chain()), (LOG_VERIFIER_KEY_FILE, log_verifier_key)]
        {
            if self.dir.read(name).is_ok_and(|there| there.as_deref() == Some(text.as_bytes())) {
                continue;
            }
            let written = self.dir.replace(name, text.as_bytes(), PUBLIC, "publish", &self.boundaries);
            if let Err(Replacement::NotBegun(error) | Replacement::Uncertain(error)) = written {
                warn!(name, %error, "a public file cannot be written");
            }
        }
    }
}
