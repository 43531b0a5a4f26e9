use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use crate::disk::{Disk, SEAL};
use crate::key::is_valid_name;
use crate::recovery::recover;
use crate::writer::{Caller, Waiting, Writer};
use crate::{Hash, Leaf, LogError, MAX_RECORD_BYTES, SigningKey, Tree};

/// Most bytes that wait to be written; more callers than that wait for room.
const MAX_WAITING_BYTES: usize = 16 << 20;
/// What a waiting record takes besides its bytes, about.
const WAITING_OVERHEAD: usize = 256;
/// Bytes of the length before each record.
const LENGTH_BYTES: usize = 4;
/// Answers with records end after this many bytes.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// An open log. Clones are handles of the same log; it is closed when the last one is dropped, which waits
/// for what is being written.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    sender: Option<Sender<Waiting>>,
    writer: Option<JoinHandle<()>>,
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
    key: SigningKey,
    origin: String,
    /// Size and text of the newest checkpoint.
    signed: Mutex<Option<(u64, String)>>,
}

/// What the writer shares with readers.
pub(crate) struct Shared {
    pub(crate) disk: Disk,
    head: Mutex<Head>,
}

/// The durable log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    size: u64,
    root: Hash,
}

impl Head {
    pub(crate) fn of(tree: &Tree) -> Self {
        Self { size: tree.size(), root: tree.root() }
    }
}

impl Shared {
    pub(crate) fn publish(&self, head: Head) {
        *self.head.lock() = head;
    }
}

impl Log {
    /// Opens the log in the directory `dir`, and makes an empty one where there is none. Every record is read
    /// and checked: this takes about a second for a million records.
    ///
    /// `origin` names the log in its checkpoints; see [`is_valid_name`].
    ///
    /// Fails if the log is open elsewhere, damaged, or if its last checkpoint is not signed by `key` in the
    /// name of `origin`.
    pub fn open(dir: &Path, key: SigningKey, origin: &str) -> Result<Self, LogError> {
        if !is_valid_name(origin) {
            return Err(LogError::Name(origin.to_owned()));
        }
        let disk = Disk::open(dir)?;
        let end = recover(&disk, &key.verifier_key(origin))?;
        let shared = Arc::new(Shared { disk, head: Mutex::new(Head::of(&end.tree)) });
        let (sender, receiver) = mpsc::channel();
        let writer = Writer { shared: Arc::clone(&shared), end, broken: false };
        let writer = std::thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(LogError::file("start the thread that writes", dir))?;
        Ok(Self(Arc::new(Inner {
            sender: Some(sender),
            writer: Some(writer),
            room: Arc::new(Semaphore::new(MAX_WAITING_BYTES)),
            shared,
            key,
            origin: origin.to_owned(),
            signed: Mutex::new(None),
        })))
    }

    /// Appends a record of 1 to [`MAX_RECORD_BYTES`] bytes and answers with its index when it is on the disk.
    /// Whoever stops to wait may find the record in the log nevertheless. Hashes the record where it is called.
    pub async fn append(&self, record: Vec<u8>) -> Result<u64, LogError> {
        length([record.len()])?;
        self.append_all(vec![record.into()]).await
    }

    /// Appends records in a row, and answers with the index of the first when all of them are on the disk. After a
    /// failure all of them are missing; only of a log that takes no more records, all may be there when it is opened again.
    /// Each has 1 byte or more, and all together, with four bytes more for each that follows another,
    /// at most [`MAX_RECORD_BYTES`]. Otherwise like [`Log::append`].
    pub async fn append_all(&self, leaves: Vec<Leaf>) -> Result<u64, LogError> {
        let bytes = length(leaves.iter().map(|leaf| leaf.record.len()))?;
        let room = (bytes + WAITING_OVERHEAD * leaves.len()).min(MAX_WAITING_BYTES);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.0.room).acquire_many_owned(room).await.map_err(|_| LogError::Broken)?;
        let (sender, answer) = oneshot::channel();
        self.send(Waiting { leaves, bytes, caller: Caller::Task(sender), room: Some(room) })?;
        answer.await.map_err(|_| LogError::Broken)?
    }

    /// [`Log::append`] for callers outside of an asynchronous runtime, or inside when a stop of some
    /// milliseconds does no harm.
    pub fn append_blocking(&self, record: Vec<u8>) -> Result<u64, LogError> {
        let bytes = length([record.len()])?;
        let leaves = vec![record.into()];
        let (sender, answer) = sync_channel(1);
        self.send(Waiting { leaves, bytes, caller: Caller::Thread(sender), room: None })?;
        answer.recv().map_err(|_| LogError::Broken)?
    }

    fn send(&self, waiting: Waiting) -> Result<(), LogError> {
        let sender = self.0.sender.as_ref().ok_or(LogError::Broken)?;
        sender.send(waiting).map_err(|_| LogError::Broken)
    }

    /// Number of durable records.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.head().size
    }

    /// Root of the tree of all durable records.
    #[must_use]
    pub fn root(&self) -> Hash {
        self.head().root
    }

    fn head(&self) -> Head {
        *self.0.shared.head.lock()
    }

    /// Name of the log.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.0.origin
    }

    /// The public key for readers: `<name>+<hash>+<key>`.
    #[must_use]
    pub fn verifier_key(&self) -> String {
        self.0.key.verifier_key(&self.0.origin)
    }

    /// A signed checkpoint of all durable records. Signs, and writes a small file, when there is something
    /// new since the last call.
    pub fn checkpoint(&self) -> Result<String, LogError> {
        let mut signed = self.0.signed.lock();
        let Head { size, root } = self.head();
        if let Some((_, note)) = signed.as_ref().filter(|(at, _)| *at == size) {
            return Ok(note.clone());
        }
        let origin = &self.0.origin;
        let text = tlog_tiles::Checkpoint::new(origin, size, tlog_tiles::Hash(root), "")
            .map_err(|_| LogError::Name(origin.clone()))?
            .to_bytes();
        let note = self.0.key.sign(origin, &text)?;
        self.0.shared.disk.keep_checkpoint(&note)?;
        *signed = Some((size, note.clone()));
        Ok(note)
    }

    /// Up to `limit` records from `start` on; fewer at the end of the log, and after some MiB. Reads files.
    pub fn records(&self, start: u64, limit: usize) -> Result<Vec<Vec<u8>>, LogError> {
        let size = self.size();
        if start > size {
            return Err(LogError::OutOfRange { size });
        }
        let count = usize::try_from(size - start).unwrap_or(usize::MAX).min(limit);
        let mut records = Vec::new();
        if count == 0 {
            return Ok(records);
        }
        let disk = &self.0.shared.disk;
        let mut file = disk.records_from(disk.offset(start)?);
        let mut bytes = 0;
        while records.len() < count && bytes < MAX_ANSWER_BYTES {
            let record = next_record(&mut file).map_err(LogError::file("read", disk.records_path()))?;
            bytes += record.len();
            records.push(record);
        }
        Ok(records)
    }

    /// Proof that record `index` is in the tree of the first `size` records. Reads files.
    pub fn inclusion(&self, index: u64, size: u64) -> Result<Vec<Hash>, LogError> {
        self.check(index < size, size)?;
        let disk = &self.0.shared.disk;
        hashes(tlog_tiles::prove_record(size, index, disk), disk)
    }

    /// Proof that the tree of the first `to` records begins with the tree of the first `from`. Reads files.
    pub fn consistency(&self, from: u64, to: u64) -> Result<Vec<Hash>, LogError> {
        self.check(from <= to, to)?;
        if from == 0 {
            return Ok(Vec::new());
        }
        let disk = &self.0.shared.disk;
        hashes(tlog_tiles::prove_tree(to, from, disk), disk)
    }

    fn check(&self, in_order: bool, wanted: u64) -> Result<(), LogError> {
        let size = self.size();
        if in_order && wanted <= size { Ok(()) } else { Err(LogError::OutOfRange { size }) }
    }
}

/// What records of these lengths take on the disk together.
fn length(records: impl IntoIterator<Item = usize>) -> Result<usize, LogError> {
    let (mut all, mut has_empty) = (0_usize, false);
    for record in records {
        all = all.saturating_add(record.saturating_add(LENGTH_BYTES));
        has_empty |= record == 0;
    }
    let carried = all.saturating_sub(LENGTH_BYTES);
    if has_empty || !(1..=MAX_RECORD_BYTES).contains(&carried) {
        return Err(LogError::Length(if has_empty { 0 } else { carried }));
    }
    Ok(all)
}

fn next_record(file: &mut impl Read) -> std::io::Result<Vec<u8>> {
    loop {
        let mut length = [0; 4];
        file.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        let mut seal = [0; 40];
        if length == SEAL {
            file.read_exact(&mut seal)?;
            continue;
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_RECORD_BYTES {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        let mut record = vec![0; length];
        file.read_exact(&mut record)?;
        return Ok(record);
    }
}

fn hashes(
    proof: Result<Vec<tlog_tiles::Hash>, tlog_tiles::Error>,
    disk: &Disk,
) -> Result<Vec<Hash>, LogError> {
    let proof = proof.map_err(|error| LogError::damaged(disk.hashes_path(), error.to_string()))?;
    Ok(proof.into_iter().map(|hash| hash.0).collect())
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has told its callers by going away.
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("origin", &self.0.origin)
            .field("head", &self.head())
            .finish_non_exhaustive()
    }
}
