//! From files to a log, after an orderly end as after a crash.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::disk::{self, Disk, HEADING, SEAL};
use crate::verify::Checkpoint;
use crate::writer::{End, MAX_BATCH_BYTES};
use crate::{LogError, MAX_RECORD_BYTES, Tree, leaf_hash};

/// Longest end of `records` that a crash can have left unfinished: one batch, with all lengths. What does not
/// fit before that is damage.
const MAX_TORN_BYTES: u64 = (MAX_BATCH_BYTES + MAX_RECORD_BYTES + (64 << 10)) as u64;

/// Reads the whole log, cuts off what was never finished, and makes again what can be made from the records.
pub(crate) fn recover(disk: &Disk, verifier_key: &str) -> Result<End, LogError> {
    let checkpoint = match disk.checkpoint()? {
        Some(note) => Some(Checkpoint::verified(&note, verifier_key).map_err(|error| {
            LogError::damaged(disk.checkpoint_path(), format!("{error}; is this the key of this log?"))
        })?),
        None => None,
    };
    begin(disk, checkpoint.is_some())?;
    let records_path = disk.records_path();
    let bytes = length(&disk.records, &records_path)?;
    let mut batches = Batches { file: disk.records_from(HEADING.len() as u64), end: End::empty() };
    let mut hashes = Derived::new(&disk.hashes, disk.hashes_path());
    let mut offsets = Derived::new(&disk.offsets, disk.offsets_path());
    let mut checkpoint = checkpoint.filter(|checkpoint| checkpoint.size > 0);
    while let Some(batch) = batches.next().map_err(LogError::file("read", &records_path))? {
        hashes.expect(&batch.hashes)?;
        offsets.expect(&batch.offsets)?;
        let tree = &batches.end.tree;
        let due = checkpoint.take_if(|checkpoint| checkpoint.size == tree.size());
        if due.is_some_and(|checkpoint| checkpoint.root != tree.root()) {
            return Err(LogError::damaged(records_path, "it is not what the last checkpoint was made of"));
        }
    }
    let end = batches.end;
    let records = end.tree.size();
    let torn = bytes.saturating_sub(end.offset);
    if torn > MAX_TORN_BYTES {
        let what = format!("after {records} records, {torn} bytes do not fit");
        return Err(LogError::damaged(records_path, what));
    }
    if let Some(checkpoint) = checkpoint {
        let what = format!("it has {records} records and had {} at the last checkpoint", checkpoint.size);
        return Err(LogError::damaged(records_path, what));
    }
    hashes.end()?;
    offsets.end()?;
    if torn > 0 {
        disk.records.set_len(end.offset).map_err(LogError::file("shorten", &records_path))?;
    }
    // What was read may be known to the kernel only; nothing is built on it before it is on the disk.
    disk.records.sync_data().map_err(LogError::file("make durable", &records_path))?;
    Ok(end)
}

/// Writes the heading of a new log, or checks it.
fn begin(disk: &Disk, has_checkpoint: bool) -> Result<(), LogError> {
    let path = disk.records_path();
    let mut heading = Vec::new();
    disk::from(&disk.records, 0)
        .take(HEADING.len() as u64)
        .read_to_end(&mut heading)
        .map_err(LogError::file("read", &path))?;
    if heading == HEADING {
        return Ok(());
    }
    let is_new = HEADING.starts_with(&heading)
        && !has_checkpoint
        && length(&disk.hashes, &disk.hashes_path())? == 0
        && length(&disk.offsets, &disk.offsets_path())? == 0;
    if !is_new {
        return Err(LogError::damaged(path, "it does not begin like a log"));
    }
    disk.records.write_all_at(HEADING, 0).map_err(LogError::file("write", &path))?;
    disk.records.sync_all().map_err(LogError::file("make durable", &path))?;
    disk.sync_names()
}

fn length(file: &File, path: &Path) -> Result<u64, LogError> {
    file.metadata().map(|metadata| metadata.len()).map_err(LogError::file("look at", path))
}

impl End {
    fn empty() -> Self {
        Self { offset: HEADING.len() as u64, tree: Tree::new() }
    }
}

/// Finished batches, in order.
struct Batches<R> {
    file: BufReader<R>,
    /// After the last batch that was read.
    end: End,
}

/// What a batch adds to the files that are made from the records.
struct Batch {
    hashes: Vec<u8>,
    offsets: Vec<u8>,
}

impl<R: Read> Batches<R> {
    /// The next finished batch; nothing at the end, or where the bytes are not one.
    fn next(&mut self) -> io::Result<Option<Batch>> {
        let mut batch = Batch { hashes: Vec::new(), offsets: Vec::new() };
        let End { mut offset, mut tree } = End { offset: self.end.offset, tree: self.end.tree.clone() };
        let mut record = Vec::new();
        loop {
            let mut number = [0; 4];
            if !filled(&mut self.file, &mut number)? {
                return Ok(None);
            }
            let number = u32::from_le_bytes(number);
            if number == SEAL {
                let (mut size, mut root) = ([0; 8], [0; 32]);
                let read = filled(&mut self.file, &mut size)? && filled(&mut self.file, &mut root)?;
                if !read || u64::from_le_bytes(size) != tree.size() || root != tree.root() {
                    return Ok(None);
                }
                self.end = End { offset: offset + 44, tree };
                return Ok(Some(batch));
            }
            let length = usize::try_from(number).unwrap_or(usize::MAX);
            let room = MAX_TORN_BYTES.saturating_sub(offset - self.end.offset);
            if length == 0 || length > MAX_RECORD_BYTES || u64::from(number) > room {
                return Ok(None);
            }
            record.resize(length, 0);
            if !filled(&mut self.file, &mut record)? {
                return Ok(None);
            }
            batch.offsets.extend_from_slice(&offset.to_le_bytes());
            tree.push_leaf(leaf_hash(&record), |hash| batch.hashes.extend_from_slice(&hash));
            offset += 4 + u64::from(number);
        }
    }
}

/// Fills the buffer, or tells that the file ends before.
fn filled(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// A file that is compared with what it must hold, and completed where it ends early.
struct Derived<'a, R> {
    file: &'a File,
    path: PathBuf,
    reader: R,
    /// Bytes that are right.
    good: u64,
    /// It ended; everything further is written.
    ended: bool,
}

impl<'a> Derived<'a, BufReader<Box<dyn Read + 'a>>> {
    fn new(file: &'a File, path: PathBuf) -> Self {
        let reader: Box<dyn Read + 'a> = Box::new(disk::from(file, 0));
        Self { file, path, reader: BufReader::new(reader), good: 0, ended: false }
    }

    fn expect(&mut self, expected: &[u8]) -> Result<(), LogError> {
        if !self.ended {
            let mut found = vec![0; expected.len()];
            let whole = filled(&mut self.reader, &mut found).map_err(LogError::file("read", &self.path))?;
            if whole && found == expected {
                self.good += expected.len() as u64;
                return Ok(());
            }
            // It was not made durable with the records: after a loss of power its end may be missing, or
            // read as zeros from somewhere on.
            let different = found.iter().zip(expected).position(|(found, expected)| found != expected);
            let lost = different.is_none_or(|at| found.iter().skip(at).all(|byte| *byte == 0));
            if !lost {
                return Err(LogError::damaged(&self.path, "it does not fit to the records"));
            }
            self.ended = true;
        }
        let written = self.file.write_all_at(expected, self.good);
        written.map_err(LogError::file("write", &self.path))?;
        self.good += expected.len() as u64;
        Ok(())
    }

    fn end(self) -> Result<(), LogError> {
        // Written only after the records were durable: more of them were answered than are there.
        if length(self.file, &self.path)? > self.good {
            return Err(LogError::damaged(&self.path, "it knows of records that are missing"));
        }
        Ok(())
    }
}
