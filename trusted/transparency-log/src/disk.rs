//! Files of a log and what stands where in them.
//!
//! `records` is the log: after a heading, batches one after the other. A batch is its records, each with its
//! length before it, and a seal: the size and the root of the tree after the batch. A batch counts when its
//! seal fits, so what a crash has cut off in the middle never does. `hashes` (of the tree, in the order of
//! Crosby and Wallach) and `offsets` (of the records) can be made again from it. They are written when the
//! records are durable, and so tell a batch that was never finished from one that was lost.
//! `checkpoint` is the newest signed checkpoint that somebody was given. Numbers are little-endian.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tlog_tiles::HashReader;

use crate::{Hash, LogError};

/// Beginning of `records`.
pub(crate) const HEADING: &[u8] = b"cloister transparency log 1\n";
/// Stands in the place of a length where a batch ends. No record has length 0: space on a disk that was
/// never written to reads as zeros.
pub(crate) const SEAL: u32 = u32::MAX;
/// Bytes of a hash in `hashes`.
pub(crate) const HASH_BYTES: u64 = 32;
/// Bytes of an entry in `offsets`.
pub(crate) const OFFSET_BYTES: u64 = 8;

const RECORDS: &str = "records";
const HASHES: &str = "hashes";
const OFFSETS: &str = "offsets";
const CHECKPOINT: &str = "checkpoint";
const NEW_CHECKPOINT: &str = "checkpoint.new";
const LOCK_ATTEMPTS: u32 = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
const READ_AHEAD: usize = 128 * 1024;

/// The open files. Everybody reads at places of their own; only the writer writes.
#[derive(Debug)]
pub(crate) struct Disk {
    dir: PathBuf,
    pub(crate) records: File,
    pub(crate) hashes: File,
    pub(crate) offsets: File,
}

impl Disk {
    /// Opens or makes the files, for this process alone.
    pub(crate) fn open(dir: &Path) -> Result<Self, LogError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(LogError::file("make this directory", dir))?;
        let open = |name: &str| {
            let path = dir.join(name);
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(LogError::file("open", path))
        };
        let records = open(RECORDS)?;
        lock(&records, dir)?;
        Ok(Self { records, hashes: open(HASHES)?, offsets: open(OFFSETS)?, dir: dir.to_owned() })
    }

    pub(crate) fn records_path(&self) -> PathBuf {
        self.dir.join(RECORDS)
    }

    pub(crate) fn hashes_path(&self) -> PathBuf {
        self.dir.join(HASHES)
    }

    pub(crate) fn offsets_path(&self) -> PathBuf {
        self.dir.join(OFFSETS)
    }

    pub(crate) fn checkpoint_path(&self) -> PathBuf {
        self.dir.join(CHECKPOINT)
    }

    /// Makes the names of the files durable.
    pub(crate) fn sync_names(&self) -> Result<(), LogError> {
        let synced = File::open(&self.dir).and_then(|dir| dir.sync_all());
        synced.map_err(LogError::file("make this directory durable", &self.dir))
    }

    /// The checkpoint that was last given to somebody, if there is one.
    pub(crate) fn checkpoint(&self) -> Result<Option<String>, LogError> {
        match std::fs::read(self.checkpoint_path()) {
            // A loss of power can leave the name without the text.
            Ok(note) if note.is_empty() => Ok(None),
            Ok(note) => String::from_utf8(note)
                .map(Some)
                .map_err(|_| LogError::damaged(self.checkpoint_path(), "it is not text")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LogError::file("read", self.checkpoint_path())(error)),
        }
    }

    /// Keeps a checkpoint.
    pub(crate) fn keep_checkpoint(&self, note: &str) -> Result<(), LogError> {
        let new = self.dir.join(NEW_CHECKPOINT);
        std::fs::write(&new, note).map_err(LogError::file("write", &new))?;
        std::fs::rename(&new, self.checkpoint_path()).map_err(LogError::file("rename", &new))
    }

    /// `records` from a place on.
    pub(crate) fn records_from(&self, offset: u64) -> BufReader<impl Read + '_> {
        from(&self.records, offset)
    }

    /// Where a record stands.
    pub(crate) fn offset(&self, index: u64) -> Result<u64, LogError> {
        let mut bytes = [0; 8];
        self.offsets
            .read_exact_at(&mut bytes, index.saturating_mul(OFFSET_BYTES))
            .map_err(LogError::file("read", self.offsets_path()))?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// Keeps others out. A program that this or the previous owner is just starting holds the lock for a moment,
/// too: until it has closed what it inherited.
fn lock(records: &File, dir: &Path) -> Result<(), LogError> {
    for attempt in 1.. {
        match flock(records, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) if attempt < LOCK_ATTEMPTS => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => return Err(LogError::Busy(dir.to_owned())),
            Err(error) => return Err(LogError::file("lock", dir.join(RECORDS))(error.into())),
        }
    }
    Ok(())
}

impl HashReader for Disk {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<tlog_tiles::Hash>, tlog_tiles::Error> {
        let read = |index: &u64| {
            let mut hash: Hash = [0; 32];
            let read = self.hashes.read_exact_at(&mut hash, index.saturating_mul(HASH_BYTES));
            read.map(|()| tlog_tiles::Hash(hash))
                .map_err(|error| tlog_tiles::Error::InvalidInput(error.to_string()))
        };
        indexes.iter().map(read).collect()
    }
}

/// A file from a place on, read in large pieces.
pub(crate) fn from(file: &File, offset: u64) -> BufReader<impl Read + '_> {
    BufReader::with_capacity(READ_AHEAD, At { file, offset })
}

struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}
