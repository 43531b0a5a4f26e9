//! The file of the database, and what becomes of it when the disk does not do what it should.

use std::cell::Cell;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase as _, StorageBackend, StorageError,
    WriteTransaction,
};

use super::{StoreError, turns};

/// Name of the database in the state directory.
const DATABASE: &str = "records.redb";
/// Its name while it is being made.
const NEW_DATABASE: &str = "records.redb.new";
/// A file that is written to find out whether the disk takes anything, and removed.
const PROBE: &str = "records.probe";
/// How much is written to it, in bytes.
const PROBE_BYTES: usize = 64 << 10;
/// Whoever holds the lock of this file may use the directory.
const LOCK: &str = "lock";
const LOCK_ATTEMPTS: u32 = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Bytes of the database that are kept in memory, of which the allocator makes a quarter more. What is written goes to the end of
/// each table: few pages are in use. Half of it has room for what a transaction writes, under load some 0.4 MB: one that needs
/// more is not divided when it commits.
const CACHE_BYTES: usize = 2 << 20;

/// Why there is no store to work with. A gateway that finds one of these does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process works here.
    #[error("{}: another gateway uses this directory", .0.display())]
    Busy(PathBuf),
    /// A file cannot be used.
    #[error("{}: cannot be used", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// The database cannot be read.
    #[error(
        "{}: the records cannot be read, and no new ones are begun over them: restore a copy, or move the directory \
         away to begin anew", .0.display()
    )]
    Damaged(PathBuf, #[source] redb::Error),
    /// A newer program wrote it.
    #[error("{}: the records have layout {found}, and this program knows layout {known}", .path.display())]
    Layout {
        /// The file.
        path: PathBuf,
        /// What is there.
        found: u64,
        /// What is known.
        known: u64,
    },
    /// There was a database once.
    #[error(
        "{}: the log of receipts or the journal is there, but the records that it is about are gone: restore them, \
         or move the directory away to begin anew", .0.display()
    )]
    Lost(PathBuf),
    /// The journal is not what was written.
    #[error(
        "{}: the journal cannot be read: {what}; answers may have been given whose only record is in it: restore a \
         copy of the directory", .path.display()
    )]
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The database of an earlier program could not be brought up to this one. Its records are as they were.
    #[error(
        "{}: the records of an earlier version could not be taken over, and are as they were: is there room for a second \
         copy of them?", .0.display()
    )]
    Upgrade(PathBuf, #[source] StoreError),
    /// What a crash left in the journal could not be brought into the database. The journal is as it was.
    #[error(
        "{}: what the journal has could not be brought into the database, and is still in the journal: is there room for it?",
        .0.display()
    )]
    Recovery(PathBuf, #[source] StoreError),
    /// An earlier program has left something that only it can read.
    #[error(
        "{}: the version of the program that wrote this has not ended in an orderly way: start and stop that version once \
         more before this one takes its records over", .0.display()
    )]
    Unfinished(PathBuf),
    /// The log of receipts cannot be used.
    #[error("the log of receipts cannot be used")]
    Log(#[source] StoreError),
    /// No randomness, or no thread.
    #[error("the store cannot be started")]
    System(#[source] io::Error),
}

impl OpenError {
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |error| Self::File(path, error)
    }
}

/// The directory, for this process alone.
#[derive(Debug)]
pub(super) struct Dir {
    path: PathBuf,
    _lock: File,
}

impl Dir {
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(OpenError::file(path))?;
        let lock = private(&path.join(LOCK)).map_err(OpenError::file(path.join(LOCK)))?;
        // A program that this process or the owner before is just starting holds the lock for a moment, too: until
        // it has closed what it inherited.
        for attempt in 1.. {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempt < LOCK_ATTEMPTS => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::WouldBlock) => return Err(OpenError::Busy(path.to_owned())),
                Err(TryLockError::Error(error)) => return Err(OpenError::File(path.join(LOCK), error)),
            }
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn database_path(&self) -> PathBuf {
        self.join(DATABASE)
    }

    /// Whether there is a database.
    pub(super) fn has_database(&self) -> Result<bool, OpenError> {
        let path = self.join(DATABASE);
        path.try_exists().map_err(OpenError::file(path))
    }

    /// Makes the names of files durable.
    pub(super) fn sync(&self) -> Result<(), OpenError> {
        File::open(&self.path).and_then(|dir| dir.sync_all()).map_err(OpenError::file(&self.path))
    }

    /// The database. Where there is none, `begin` fills a new one, which appears whole or not at all.
    pub(super) fn database(
        &self,
        backing: Backing,
        begin: impl FnOnce(&Database) -> Result<(), redb::Error>,
    ) -> Result<Disk, OpenError> {
        let path = self.join(DATABASE);
        if !self.has_database()? {
            let new = self.join(NEW_DATABASE);
            match std::fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(OpenError::File(new, error));
                }
                _ => {}
            }
            let database = open(&new, &backing, &Arc::default())?;
            begin(&database).map_err(|error| OpenError::Damaged(new.clone(), error))?;
            drop(database);
            std::fs::rename(&new, &path).map_err(OpenError::file(&path))?;
            self.sync()?;
        }
        let unsure = Arc::default();
        let database = RwLock::new(Some(open(&path, &backing, &unsure)?));
        Ok(Disk { path, backing, unsure, database })
    }
}

/// Opens or makes a file that nobody else can read.
pub(super) fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn open(path: &Path, backing: &Backing, unsure: &Arc<AtomicBool>) -> Result<Database, OpenError> {
    let file = private(path).map_err(OpenError::file(path))?;
    // An empty file would be begun anew.
    if !path.ends_with(NEW_DATABASE) && file.length().map_err(OpenError::file(path))? == 0 {
        return Err(OpenError::Damaged(path.to_owned(), redb::Error::Corrupted("it is empty".to_owned())));
    }
    let file = Watched { disk: backing.of(DATABASE, file), unsure: Arc::clone(unsure) };
    let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(file);
    database.map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::Busy(path.to_owned()),
        // It could not even be tried.
        DatabaseError::Storage(StorageError::Io(error)) if is_of_disk(&error) => {
            OpenError::File(path.to_owned(), error)
        }
        error => OpenError::Damaged(path.to_owned(), error.into()),
    })
}

/// Whether it says something about the disk, and nothing about what is on it.
fn is_of_disk(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

/// Where the bytes of the database and the journal go: to files, or to a test's bad disk.
#[derive(Clone)]
pub(crate) struct Backing(Arc<MediumOf>);

/// What is written to for the file of a name.
type MediumOf = dyn Fn(&str, File) -> Box<dyn Medium> + Send + Sync;

impl Backing {
    /// Files as they are.
    pub(crate) fn file() -> Self {
        Self::from_fn(|_, file| Box::new(file))
    }

    /// Something over the file of a name.
    pub(super) fn from_fn(medium: impl Fn(&str, File) -> Box<dyn Medium> + Send + Sync + 'static) -> Self {
        Self(Arc::new(medium))
    }

    pub(super) fn of(&self, name: &str, file: File) -> Box<dyn Medium> {
        (self.0)(name, file)
    }
}

impl std::fmt::Debug for Backing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Backing")
    }
}

/// What bytes are written to.
pub(crate) trait Medium: std::fmt::Debug + Send + Sync {
    fn length(&self) -> io::Result<u64>;
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    fn resize(&self, length: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

impl Medium for File {
    fn length(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, offset)
    }

    fn resize(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
}

/// What a transaction of this thread writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writes {
    None,
    /// Pages for which the cache has no room, which it writes under locks that readers take.
    Early,
    /// All that it changed, at its end, under locks of pages that nobody reads yet.
    Last,
}

thread_local! {
    static WRITES: Cell<Writes> = const { Cell::new(Writes::None) };
}

/// Notices when bytes may be lost that the kernel said it had, and lets writes at the end of a transaction have turns.
#[derive(Debug)]
struct Watched {
    disk: Box<dyn Medium>,
    unsure: Arc<AtomicBool>,
}

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.disk.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.disk.resize(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.disk.sync().inspect_err(|_| self.unsure.store(true, Ordering::Relaxed));
        turns::restart();
        synced
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match WRITES.get() {
            Writes::Last => drop(turns::end_if_over()),
            Writes::None | Writes::Early => WRITES.set(Writes::Early),
        }
        self.disk.write_at(offset, bytes)
    }
}

/// The open database. After a failed write it is opened again, which goes back to what was acknowledged last. After
/// a failed sync it stays closed: the kernel may have dropped what it could not write, and would not say so again.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    backing: Backing,
    unsure: Arc<AtomicBool>,
    /// `None` while it is opened again, and when it could not be.
    database: RwLock<Option<Database>>,
}

impl Disk {
    /// A view of what is in the database now; waits for nobody who writes.
    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&ReadTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.read_after(|| (), |transaction, ()| work(transaction))
    }

    /// The same, of a moment after something that needs the database open.
    pub(super) fn read_after<F, T>(
        &self,
        first: impl FnOnce() -> F,
        work: impl FnOnce(&ReadTransaction, F) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = self.database.read();
        let database = database.as_ref().ok_or_else(StoreError::closed)?;
        let first = first();
        work(&database.begin_read()?, first)
    }

    /// Changes that become durable together, or not at all.
    pub(super) fn write<T>(
        &self,
        work: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = self.database.read();
        if self.has_lost() {
            return Err(StoreError::lost());
        }
        let transaction = database.as_ref().ok_or_else(StoreError::closed)?.begin_write()?;
        WRITES.set(Writes::None);
        let done = work(&transaction)?;
        // Where there was room for all of it, next to nothing is written before the end of the commit.
        if WRITES.get() == Writes::None {
            WRITES.set(Writes::Last);
        }
        turns::end_if_over();
        let committed = transaction.commit();
        WRITES.set(Writes::None);
        committed?;
        Ok(done)
    }

    /// Whether the disk did not keep what it was given, after which nothing is read or written until a start.
    pub(super) fn has_lost(&self) -> bool {
        self.unsure.load(Ordering::Relaxed)
    }

    /// After a failure: opens the database again if that can be trusted. Tells whether it is open. This may read all of
    /// it, and nobody who reads waits for that: what they ask for fails. So it is not done before the disk takes
    /// something; until then the old one answers, as far as it can. One thread does this.
    pub(super) fn reopen(&self) -> bool {
        if !self.has_lost() && !self.takes_bytes() {
            return false;
        }
        // The old one has to be closed before, which writes to it.
        drop(self.database.write().take());
        if self.has_lost() {
            return false;
        }
        let opened = open(&self.path, &self.backing, &self.unsure).ok();
        let mut database = self.database.write();
        *database = opened.filter(|_| !self.has_lost());
        database.is_some()
    }

    /// Whether the disk takes anything, beside the database.
    fn takes_bytes(&self) -> bool {
        let path = self.path.with_file_name(PROBE);
        let Ok(file) = private(&path) else { return false };
        let file = self.backing.of(PROBE, file);
        let written = file.write_at(0, &vec![1; PROBE_BYTES]).and_then(|()| file.sync());
        // One that stays is written again.
        let _ = std::fs::remove_file(path);
        written.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use parking_lot::Mutex;
    use redb::TableDefinition;

    use super::*;

    const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("table");
    const PATIENCE: Duration = Duration::from_mins(2);

    /// What is seen of writes: when each was, and that others read meanwhile, where the writer may rest.
    #[derive(Debug)]
    struct Seen {
        writes: Mutex<Vec<Writes>>,
        /// Of somebody who reads when told `true`, and answers then.
        reader: OnceLock<(SyncSender<bool>, Mutex<Receiver<()>>)>,
    }

    #[derive(Debug)]
    struct Watching(File, Arc<Seen>);

    impl Medium for Watching {
        fn length(&self) -> io::Result<u64> {
            Medium::length(&self.0)
        }

        fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            Medium::read_at(&self.0, offset, out)
        }

        fn resize(&self, length: u64) -> io::Result<()> {
            self.0.resize(length)
        }

        fn sync(&self) -> io::Result<()> {
            self.0.sync()
        }

        fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            let Seen { writes, reader } = &*self.1;
            writes.lock().push(WRITES.get());
            if let (Writes::Last, Some((ask, answers))) = (WRITES.get(), reader.get()) {
                ask.send(true).unwrap();
                answers.lock().recv_timeout(PATIENCE).expect("whoever reads waits for the writer");
            }
            Medium::write_at(&self.0, offset, bytes)
        }
    }

    #[test]
    fn a_writer_rests_only_where_nobody_who_reads_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Dir::take(dir.path()).unwrap();
        let seen = Arc::new(Seen { writes: Mutex::default(), reader: OnceLock::new() });
        let its = Arc::clone(&seen);
        let backing = Backing::from_fn(move |_, file| Box::new(Watching(file, Arc::clone(&its))));
        let begin = |database: &Database| {
            let transaction = database.begin_write()?;
            transaction.open_table(TABLE)?.insert(0, &b"first"[..])?;
            Ok(transaction.commit()?)
        };
        let disk = dir.database(backing, begin).unwrap();
        let (ask, asked) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        seen.reader.set((ask, Mutex::new(answers))).unwrap();
        let disk = &disk;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while asked.recv() == Ok(true) {
                    let read = disk.read(|transaction| {
                        Ok(transaction.open_table(TABLE)?.get(0)?.map(|value| value.value().to_vec()))
                    });
                    assert_eq!(read.unwrap().as_deref(), Some(&b"first"[..]));
                    answer.send(()).unwrap();
                }
            });
            // What the cache has room for, and what it has not.
            for (count, is_divided) in [(2, true), (200, false), (2, true)] {
                seen.writes.lock().clear();
                let written = disk.write(|transaction| {
                    let mut table = transaction.open_table(TABLE)?;
                    for number in 1..=count {
                        table.insert(number, &vec![1; 32 << 10][..])?;
                    }
                    Ok(())
                });
                written.unwrap();
                let writes = std::mem::take(&mut *seen.writes.lock());
                assert_eq!(writes.contains(&Writes::Last), is_divided, "{count}");
                assert_eq!(writes.contains(&Writes::Early), !is_divided, "{count}");
            }
            seen.reader.get().unwrap().0.send(false).unwrap();
        });
    }
}
