//! Bad disks, and files that are not what they should be.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::lab::{Lab, START, finished};
use crate::admission::KeyHash;
use crate::record::disk::{Backing, Medium};
use crate::record::{Lookup, OpenError, Store};

const WELL: u8 = 0;
const FULL: u8 = 1;
const NO_SYNC: u8 = 2;

/// A disk that fails when it is told to.
#[derive(Debug)]
struct Bad(File, Arc<AtomicU8>);

impl Medium for Bad {
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Medium::read_at(&self.0, offset, out)
    }

    fn resize(&self, length: u64) -> io::Result<()> {
        self.0.resize(length)
    }

    fn sync(&self) -> io::Result<()> {
        match self.1.load(Ordering::Relaxed) {
            NO_SYNC => Err(io::Error::other("lost")),
            _ => self.0.sync(),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.1.load(Ordering::Relaxed) {
            FULL => Err(io::ErrorKind::StorageFull.into()),
            _ => Medium::write_at(&self.0, offset, bytes),
        }
    }
}

fn open(lab: &Lab, state: &Arc<AtomicU8>) -> Store {
    let state = Arc::clone(state);
    let backing = Backing::from_fn(move |file| Box::new(Bad(file, Arc::clone(&state))));
    Store::open_with(&lab.path(), lab.settings, lab.clock(), backing).unwrap()
}

#[tokio::test]
async fn a_full_disk_is_an_error_until_there_is_room() {
    let (lab, key, state) = (Lab::new(), KeyHash::of("key"), Arc::new(AtomicU8::new(WELL)));
    let store = open(&lab, &state);
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    state.store(FULL, Ordering::Relaxed);
    for _ in 0..3 {
        assert!(store.finish(finished(key, "2", "1", START)).await.is_err());
        assert!(store.first_time([1; 32], START + 100).await.is_err());
    }
    state.store(WELL, Ordering::Relaxed);
    store.finish(finished(key, "3", "1", START)).await.unwrap();
    let is_there = |name: &str| store.receipt(name, key).unwrap() != Lookup::Absent;
    assert!(is_there("rcpt-1") && !is_there("rcpt-2") && is_there("rcpt-3"));
    assert_eq!(store.spent(key).unwrap().to_string(), "2");
    assert_eq!(store.usage(0, 10).unwrap().len(), 2);
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_acknowledged() {
    let (lab, key, state) = (Lab::new(), KeyHash::of("key"), Arc::new(AtomicU8::new(WELL)));
    let store = open(&lab, &state);
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    state.store(NO_SYNC, Ordering::Relaxed);
    assert!(store.finish(finished(key, "2", "1", START)).await.is_err());
    state.store(WELL, Ordering::Relaxed);
    assert!(store.finish(finished(key, "3", "1", START)).await.is_err(), "a second attempt proves nothing");
    drop(store);
    let store = lab.open();
    assert_ne!(store.receipt("rcpt-1", key).unwrap(), Lookup::Absent);
    store.finish(finished(key, "4", "1", START)).await.unwrap();
}

#[tokio::test]
async fn no_records_are_begun_over_others() {
    let lab = Lab::new();
    let store = lab.open();
    store.finish(finished(KeyHash::of("key"), "1", "1", START)).await.unwrap();
    assert!(matches!(lab.try_open(), Err(OpenError::Busy(_))));
    drop(store);
    let path = lab.path().join("records.redb");
    let good = std::fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad[..4096].fill(7);
    for damaged in [&bad[..], &good[..4000], &[]] {
        std::fs::write(&path, damaged).unwrap();
        let error = lab.try_open().unwrap_err();
        assert!(matches!(error, OpenError::Damaged(..)), "{error}");
        assert!(std::fs::read(&path).unwrap() == damaged, "it is left as it is");
    }
    std::fs::write(&path, good).unwrap();
    lab.open();
}
