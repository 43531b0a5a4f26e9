use std::path::Path;

use cloister_transparency_log::{Log, LogError, SigningKey};

pub(crate) const ORIGIN: &str = "kms.example";

pub(crate) fn key() -> SigningKey {
    SigningKey::from_seed(&[9; 32])
}

pub(crate) fn open(dir: &Path) -> Log {
    Log::open(dir, key(), ORIGIN).unwrap()
}

pub(crate) fn refused(dir: &Path) -> LogError {
    Log::open(dir, key(), ORIGIN).unwrap_err()
}

pub(crate) fn record(index: u64) -> Vec<u8> {
    format!("record {index} {}", "x".repeat(usize::try_from(index % 50).unwrap())).into_bytes()
}

/// Appends one batch per record.
pub(crate) fn fill(log: &Log, count: u64) {
    for _ in 0..count {
        let index = log.size();
        assert_eq!(log.append_blocking(record(index)).unwrap(), index);
    }
}

#[track_caller]
pub(crate) fn assert_holds(log: &Log, count: u64) {
    assert_eq!(log.size(), count);
    let records = log.records(0, usize::MAX).unwrap();
    let expected: Vec<_> = (0..count).map(record).collect();
    assert!(records == expected, "{} records of {count}", records.len());
    assert_eq!(log.root(), cloister_transparency_log::verify::root_of(&expected));
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}
