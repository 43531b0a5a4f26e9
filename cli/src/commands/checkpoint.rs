//! Checkpoints of logs that others keep, held on to from one look to the next.

use std::path::Path;

use cloister_transparency_log::verify::{Checkpoint, MAX_CHECKPOINT_BYTES};

use crate::failure::Failure;
use crate::files::read_text;

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

/// Replaces the file in one step: an interrupted run leaves the earlier checkpoint.
pub(super) fn save(path: &Path, note: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = tempfile::NamedTempFile::new_in(parent).and_then(|mut file| {
        file.write_all(note.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|error| error.error)
    });
    written.map_err(|error| Failure::local(format!("cannot write {}", path.display()), error))
}
