//! Checkpoints of logs that others keep, held on to from one look to the next.

use std::path::Path;

use cloister_transparency_log::verify::{Checkpoint, MAX_CHECKPOINT_BYTES};

use crate::failure::Failure;
use crate::files::{FOR_OWNER, read_text, replace};

/// The text that an earlier run saved.
pub(super) fn read(path: &Path) -> Result<String, Failure> {
    read_text(path, MAX_CHECKPOINT_BYTES as u64)
}

/// The checkpoint that a file has, by the key of its log.
pub(super) fn verified(path: &Path, note: &str, key: &str) -> Result<Checkpoint, Failure> {
    Checkpoint::verified(note, key).map_err(|error| {
        Failure::usage(format!("{} is not a checkpoint of this log", path.display()))
            .caused_by(error)
            .hint("a log whose key has changed is another log: compare the keys before you start over")
    })
}

/// Keeps a checkpoint in the place of an earlier one.
pub(super) fn save(path: &Path, note: &str) -> Result<(), Failure> {
    replace(path, note.as_bytes(), FOR_OWNER)
}
