//! Disks of which one operation fails, whichever it is, and that go on as if nothing was.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use redb::TableDefinition;

use super::lab::{Lab, START, finished};
use crate::admission::KeyHash;
use crate::record::Store;
use crate::record::disk::{Backing, Dir, Medium};
use crate::upstream::fake::until;

/// A file of a disk of which one operation fails.
#[derive(Debug)]
pub(super) struct Once {
    file: File,
    /// How many operations go well before.
    left: Arc<AtomicI64>,
    /// Whether the one that fails has its effect all the same.
    is_done: bool,
}

impl Once {
    pub(super) fn backing(left: &Arc<AtomicI64>, is_done: bool) -> Backing {
        let left = Arc::clone(left);
        Backing::from_fn(move |_, file| Box::new(Self { file, left: Arc::clone(&left), is_done }))
    }

    fn step(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let fails = self.left.fetch_sub(1, Ordering::SeqCst) == 0;
        if !fails || self.is_done {
            work()?;
        }
        if fails { Err(io::Error::other("once")) } else { Ok(()) }
    }
}

impl Medium for Once {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Medium::read_at(&self.file, offset, out)
    }

    fn resize(&self, length: u64) -> io::Result<()> {
        self.step(|| self.file.resize(length))
    }

    fn sync(&self) -> io::Result<()> {
        self.step(|| Ok(()))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.step(|| Medium::write_at(&self.file, offset, bytes))
    }
}

/// What was acknowledged is charged once, and what was refused never.
#[tokio::test]
async fn whatever_fails_everything_is_charged_once() {
    let key = KeyHash::of("key");
    for is_done in [false, true] {
        for before in 0.. {
            let (lab, left) = (Lab::new(), Arc::new(AtomicI64::new(i64::MAX)));
            let backing = Once::backing(&left, is_done);
            let store = Store::open_with(&lab.path(), lab.settings, lab.times(), backing).unwrap();
            store.finish(finished(key, "1", "1", START)).await.unwrap();
            lab.settled(&store).await;
            left.store(before, Ordering::SeqCst);
            let is_kept = store.finish(finished(key, "2", "1", START)).await.is_ok();
            until(|| store.trouble().is_some() || store.shared().pending.read().is_empty()).await;
            // It tries once more before it ends.
            drop(store);
            let store = lab.open();
            let count = 1 + u64::from(is_kept);
            let when = format!("{before} operations before, done: {is_done}");
            assert_eq!(store.spent(key).unwrap().to_string(), count.to_string(), "{when}");
            assert_eq!(store.counts().unwrap(), (count, count), "{when}");
            if left.load(Ordering::SeqCst) >= 0 {
                assert!(before > 10, "{when}");
                break;
            }
        }
    }
}

/// A database that could not be closed as it should is not opened again before a start.
#[test]
fn a_sync_that_fails_while_the_database_is_closed_is_noticed() {
    const TABLE: TableDefinition<u64, u64> = TableDefinition::new("table");
    for before in 0.. {
        let (lab, left) = (Lab::new(), Arc::new(AtomicI64::new(i64::MAX)));
        let dir = Dir::take(&lab.path()).unwrap();
        let begin = |database: &redb::Database| {
            let transaction = database.begin_write()?;
            transaction.open_table(TABLE)?.insert(1, 1)?;
            Ok(transaction.commit()?)
        };
        let disk = dir.database(Once::backing(&left, true), begin).unwrap();
        left.store(before, Ordering::SeqCst);
        let is_open = disk.reopen();
        assert!(!(is_open && disk.has_lost()), "{before} operations before");
        let write = disk.write(|transaction| Ok(transaction.open_table(TABLE)?.insert(2, 2)?.is_none()));
        assert!(write.is_err() || !disk.has_lost(), "{before} operations before");
        if left.load(Ordering::SeqCst) >= 0 {
            return;
        }
    }
}
