//! The thread that writes: everything that waits goes to the disk at once.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::disk::{HASH_BYTES, OFFSET_BYTES, SEAL};
use crate::log::{Head, Shared};
use crate::{Leaf, LogError, Tree};

/// Most callers whose records are made durable at once.
const MAX_BATCH_CALLERS: usize = 4096;
/// No record is added to a batch that is this large, in bytes.
pub(crate) const MAX_BATCH_BYTES: usize = 1 << 20;

/// What ends a batch, in bytes: its mark, and size and root of the tree.
const SEAL_BYTES: usize = 4 + 8 + 32;

/// Records on their way to the disk, which are there together or not at all.
pub(crate) struct Waiting {
    pub(crate) leaves: Vec<Leaf>,
    /// What they take on the disk, in bytes, but for the length of the first.
    pub(crate) bytes: usize,
    pub(crate) caller: Caller,
    /// The room that they take among those that wait.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// Who is told the index of the first one.
pub(crate) enum Caller {
    Task(oneshot::Sender<Result<u64, LogError>>),
    Thread(SyncSender<Result<u64, LogError>>),
}

impl Caller {
    fn tell(self, outcome: Result<u64, LogError>) {
        // Somebody who went away in the meantime needs no answer; the record stays in the log.
        match self {
            Self::Task(sender) => drop(sender.send(outcome)),
            Self::Thread(sender) => drop(sender.send(outcome)),
        }
    }
}

/// Where `records` ends and what tree it makes.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) offset: u64,
    pub(crate) tree: Tree,
}

/// Extends the log.
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) end: End,
    /// Nobody knows what the disk holds.
    pub(crate) broken: bool,
}

impl Writer {
    /// Writes until nobody can send any more.
    pub(crate) fn run(mut self, waiting: &Receiver<Waiting>) {
        while let Ok(first) = waiting.recv() {
            let mut bytes = first.bytes;
            let mut batch = vec![first];
            while batch.len() < MAX_BATCH_CALLERS && bytes < MAX_BATCH_BYTES {
                let Ok(next) = waiting.try_recv() else { break };
                bytes += next.bytes;
                batch.push(next);
            }
            let mut index = self.end.tree.size();
            let outcome = self.write(&batch);
            for Waiting { leaves, caller, room, .. } in batch {
                drop(room);
                caller.tell(outcome.clone().map(|()| index));
                index += leaves.len() as u64;
            }
        }
    }

    fn write(&mut self, batch: &[Waiting]) -> Result<(), LogError> {
        if self.broken {
            return Err(LogError::Broken);
        }
        let pieces = Pieces::of(batch, &self.end);
        self.store(&pieces).map_err(|error| LogError::NotWritten(Arc::new(error)))?;
        self.end = pieces.end;
        self.shared.publish(Head::of(&self.end.tree));
        Ok(())
    }

    /// After an error, either nothing of the pieces is left or the log is broken.
    fn store(&mut self, pieces: &Pieces) -> io::Result<()> {
        let disk = &self.shared.disk;
        if let Err(error) = disk.records.write_all_at(&pieces.records, self.end.offset) {
            self.broken = disk.records.set_len(self.end.offset).is_err();
            return Err(error);
        }
        if let Err(error) = disk.records.sync_data() {
            // The kernel may have dropped what it could not write: a second attempt would prove nothing.
            self.broken = true;
            return Err(error);
        }
        let size = self.end.tree.size();
        let (hashes, offsets) = (tlog_tiles::stored_hash_count(size) * HASH_BYTES, size * OFFSET_BYTES);
        let derived = disk
            .hashes
            .write_all_at(pieces.hashes.as_flattened(), hashes)
            .and_then(|()| disk.offsets.write_all_at(pieces.offsets.as_flattened(), offsets));
        if let Err(error) = derived {
            // The records go last: hashes without records would look like a loss.
            let undone = disk
                .hashes
                .set_len(hashes)
                .and_then(|()| disk.offsets.set_len(offsets))
                .and_then(|()| disk.records.set_len(self.end.offset))
                .and_then(|()| disk.records.sync_data());
            self.broken = undone.is_err();
            return Err(error);
        }
        Ok(())
    }
}

/// What a batch adds to each file.
struct Pieces {
    records: Vec<u8>,
    hashes: Vec<[u8; 32]>,
    offsets: Vec<[u8; 8]>,
    end: End,
}

impl Pieces {
    fn of(batch: &[Waiting], end: &End) -> Self {
        let End { offset, mut tree } = End { offset: end.offset, tree: end.tree.clone() };
        let leaves: usize = batch.iter().map(|waiting| waiting.leaves.len()).sum();
        let bytes: usize = batch.iter().map(|waiting| size_of::<u32>() + waiting.bytes).sum();
        let (mut records, mut offsets) = (Vec::with_capacity(bytes + SEAL_BYTES), Vec::with_capacity(leaves));
        let added = |size| tlog_tiles::stored_hash_count(size) - tlog_tiles::stored_hash_count(tree.size());
        let mut hashes =
            Vec::with_capacity(usize::try_from(added(tree.size() + leaves as u64)).unwrap_or_default());
        for Leaf { record, hash } in batch.iter().flat_map(|waiting| &waiting.leaves) {
            offsets.push((offset + records.len() as u64).to_le_bytes());
            // `append` refuses records that are longer.
            let length = u32::try_from(record.len()).unwrap_or_default();
            records.extend_from_slice(&length.to_le_bytes());
            records.extend_from_slice(record);
            tree.push_leaf(*hash, |hash| hashes.push(hash));
        }
        records.extend_from_slice(&SEAL.to_le_bytes());
        records.extend_from_slice(&tree.size().to_le_bytes());
        records.extend_from_slice(&tree.root());
        let end = End { offset: offset + records.len() as u64, tree };
        Self { records, hashes, offsets, end }
    }
}
