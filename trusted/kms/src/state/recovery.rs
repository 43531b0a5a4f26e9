//! After a start: do state and log belong together, and what happened between them.

use cloister_kms_api::Hex;
use cloister_kms_api::log::{Event, Record};
use cloister_transparency_log::{Log, LogError};
use sha2::{Digest as _, Sha256};

use super::content::{ChangeMark, State};

/// Records that are read at once.
const BATCH: usize = 4096;

/// Why state and log do not belong together.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Records are gone.
    #[error(
        "the release log has {actual} records, and the state knows of {expected}: an older log was put in \
         its place. Restore the newest one"
    )]
    OldLog {
        /// Records that the state knows of.
        expected: u64,
        /// Records that are there.
        actual: u64,
    },
    /// Another log.
    #[error("record {index} of the release log is not the one that the state knows: this is another log")]
    OtherLog {
        /// Index of the record.
        index: u64,
    },
    /// An older state.
    #[error(
        "record {index} of the release log is a change that the state does not know: an older state was put \
         in its place. Restore the newest one"
    )]
    OldState {
        /// Index of the record.
        index: u64,
    },
    /// A record that this program did not write.
    #[error("record {index} of the release log cannot be understood: a newer program wrote it")]
    Record {
        /// Index of the record.
        index: u64,
    },
}

/// Brings `state` up to what `log` says, and takes those records out of its outbox that are in the log.
pub(super) fn recover(state: &mut State, log: &Log) -> Result<(), RecoveryError> {
    let size = log.size();
    if size < state.log.size {
        return Err(RecoveryError::OldLog { expected: state.log.size, actual: size });
    }
    check_last_change(state, log)?;
    let mut index = state.log.size;
    while index < size {
        let records = log.records(index, BATCH)?;
        if records.is_empty() {
            return Err(RecoveryError::OldLog { expected: size, actual: index });
        }
        for text in records {
            take(state, index, &text)?;
            index += 1;
        }
    }
    state.log.size = size;
    Ok(())
}

fn check_last_change(state: &State, log: &Log) -> Result<(), RecoveryError> {
    let Some(last) = &state.log.last_change else { return Ok(()) };
    let index = last.index;
    if index >= log.size() {
        return Err(RecoveryError::OldLog { expected: index + 1, actual: log.size() });
    }
    let records = log.records(index, 1)?;
    if records.first().is_none_or(|record| Hex::from(Sha256::digest(record).to_vec()) != last.hash) {
        return Err(RecoveryError::OtherLog { index });
    }
    Ok(())
}

fn take(state: &mut State, index: u64, text: &[u8]) -> Result<(), RecoveryError> {
    let record: Record = serde_json::from_slice(text).map_err(|_| RecoveryError::Record { index })?;
    if leaves_roots_and_policy(&record.event) {
        state.holders.replay(&record, state.oldest_live());
        return Ok(());
    }
    if state.log.last_change.as_ref().is_some_and(|last| index <= last.index) {
        return Ok(());
    }
    if state.outbox.first().is_none_or(|waiting| waiting.as_bytes() != text) {
        return Err(RecoveryError::OldState { index });
    }
    state.outbox.remove(0);
    state.log.last_change = Some(ChangeMark { index, hash: Hex::from(Sha256::digest(text).to_vec()) });
    Ok(())
}

fn leaves_roots_and_policy(event: &Event) -> bool {
    match event {
        Event::Release { .. } | Event::Refusal { .. } | Event::CvmForgotten { .. } => true,
        Event::Bootstrapped { .. }
        | Event::Onboarded { .. }
        | Event::AppAllowed { .. }
        | Event::AppRevoked { .. }
        | Event::OwnersSet { .. }
        | Event::PlatformRulesSet { .. }
        | Event::RotationStarted { .. }
        | Event::RootRetired { .. } => false,
    }
}
