//! The log of receipts.

use std::fs;
use std::path::Path;

use cloister_aci::log::{self, Inclusion};
use cloister_transparency_log::leaf_hash;
use cloister_transparency_log::verify::{self, Checkpoint};
use redb::ReadableTable as _;
use sha2::{Digest as _, Sha256};

use super::lab::{Lab, START, document, finished};
use crate::admission::KeyHash;
use crate::record::tables::{COUNTERS, IS_LOGGING, NEXT_RECEIPT, RECEIPTS};
use crate::record::{Logged, OpenError, Store};

fn lab() -> Lab {
    let mut lab = Lab::new();
    lab.settings.is_logging = true;
    lab
}

/// The proof of a receipt, when it is there; until then it is promised.
async fn proved(store: &Store, id: &str, key: KeyHash) -> Inclusion {
    for _ in 0..2000 {
        match store.inclusion(id, key).unwrap() {
            Logged::In(inclusion) => return inclusion,
            other => assert_eq!(other, Logged::Later, "{id}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{id} was not logged");
}

fn check(store: &Store, inclusion: &Inclusion, id: &str) {
    let log = store.log().unwrap();
    let checkpoint = Checkpoint::verified(&inclusion.checkpoint, &log.verifier_key()).unwrap();
    let hashes = log::hashes(&inclusion.hashes).unwrap();
    let leaf = leaf_hash(inclusion.record.as_bytes());
    verify::inclusion(&hashes, checkpoint.size, checkpoint.root, inclusion.index, leaf).unwrap();
    let digest = |bytes: &[u8]| format!("sha256:{}", hex::encode(Sha256::digest(bytes)));
    assert_eq!(
        inclusion.record,
        format!(
            r#"{{"receipt_id_sha256":"{}","receipt_sha256":"{}","served_at":{START}}}"#,
            digest(id.as_bytes()),
            digest(&document(id)),
        )
    );
}

#[tokio::test]
async fn each_receipt_is_logged_once_over_restarts() {
    let (lab, key) = (lab(), KeyHash::of("key"));
    let mut count = 0;
    for round in 0..3 {
        let store = lab.open();
        let last = count + 5;
        for number in count..last {
            store.finish(finished(key, &number.to_string(), "1", START)).await.unwrap();
        }
        count = last;
        if round == 1 {
            // Whether or not all is logged when it stops.
            continue;
        }
        for number in 0..count {
            let id = format!("rcpt-{number}");
            let inclusion = proved(&store, &id, key).await;
            assert_eq!(inclusion.index, number);
            check(&store, &inclusion, &id);
        }
        assert_eq!(store.log().unwrap().size(), count);
        assert_eq!(store.inclusion("rcpt-0", KeyHash::of("other")).unwrap(), Logged::Absent);
        assert_eq!(store.inclusion("rcpt-99", key).unwrap(), Logged::Absent);
    }
}

#[tokio::test]
async fn a_pause_of_logging_leaves_a_gap() {
    let (mut lab, key) = (lab(), KeyHash::of("key"));
    for (number, is_logging) in [true, false, true].into_iter().enumerate() {
        lab.settings.is_logging = is_logging;
        let store = lab.open();
        store.finish(finished(key, &number.to_string(), "1", START)).await.unwrap();
        if is_logging {
            proved(&store, &format!("rcpt-{number}"), key).await;
        } else {
            assert!(store.log().is_none());
            for id in ["rcpt-0", "rcpt-1"] {
                assert_eq!(store.inclusion(id, key).unwrap(), Logged::Never, "{id}");
            }
        }
    }
    let store = lab.open();
    for (id, index) in [("rcpt-0", 0), ("rcpt-2", 1)] {
        assert_eq!(proved(&store, id, key).await.index, index, "{id}");
    }
    assert_eq!(store.inclusion("rcpt-1", key).unwrap(), Logged::Never);
    check(&store, &proved(&store, "rcpt-2", key).await, "rcpt-2");
}

#[tokio::test]
async fn what_cannot_be_read_is_left_out_of_the_log_and_holds_up_no_other() {
    let (lab, key) = (lab(), KeyHash::of("key"));
    let store = lab.open();
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    proved(&store, "rcpt-1", key).await;
    drop(store);
    lab.edit(|transaction| {
        // In a segment that is not there.
        transaction.open_table(RECEIPTS).unwrap().insert(1, (99, 0, 100, 1, START)).unwrap();
        // The one with the number 2 is gone.
        transaction.open_table(COUNTERS).unwrap().insert(NEXT_RECEIPT, 3).unwrap();
    });
    for (name, index) in [("2", 1), ("3", 2)] {
        let store = lab.open();
        store.finish(finished(key, name, "1", START)).await.unwrap();
        let inclusion = proved(&store, &format!("rcpt-{name}"), key).await;
        assert_eq!(inclusion.index, index);
        check(&store, &inclusion, &format!("rcpt-{name}"));
        check(&store, &proved(&store, "rcpt-1", key).await, "rcpt-1");
    }
}

#[tokio::test]
async fn a_block_is_logged_around_what_cannot_be_read_in_it() {
    let (lab, key) = (lab(), KeyHash::of("key"));
    let store = lab.open();
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    proved(&store, "rcpt-1", key).await;
    drop(store);
    lab.edit(|transaction| {
        let mut blocks = transaction.open_table(RECEIPTS).unwrap();
        let (segment, begin, end, _, served_at) = blocks.get(0).unwrap().unwrap().value();
        // Of three receipts, one can be read.
        blocks.insert(1, (segment, begin, end, 3, served_at)).unwrap();
        transaction.open_table(COUNTERS).unwrap().insert(NEXT_RECEIPT, 4).unwrap();
    });
    let store = lab.open();
    store.finish(finished(key, "2", "1", START)).await.unwrap();
    let inclusion = proved(&store, "rcpt-2", key).await;
    assert_eq!(inclusion.index, 2, "after the one that can be read");
    check(&store, &inclusion, "rcpt-2");
}

#[tokio::test]
async fn records_and_log_belong_together() {
    let (mut lab, key) = (lab(), KeyHash::of("key"));
    let store = lab.open();
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    proved(&store, "rcpt-1", key).await;
    drop(store);
    let copy = lab.dir.path().join("copy");
    copy_records(&lab.path(), &copy);
    let store = lab.open();
    store.finish(finished(key, "2", "1", START)).await.unwrap();
    proved(&store, "rcpt-2", key).await;
    drop(store);
    // What an older database does not have is in the journal.
    fs::copy(copy.join("records.redb"), lab.path().join("records.redb")).unwrap();
    let store = lab.open();
    check(&store, &proved(&store, "rcpt-2", key).await, "rcpt-2");
    drop(store);
    fs::remove_dir_all(lab.path().join("journal")).unwrap();
    copy_records(&copy, &lab.path());
    assert!(matches!(lab.try_open(), Err(OpenError::Log(_))), "older records");
    // As many as the log has, and others.
    lab.settings.is_logging = false;
    lab.open().finish(finished(key, "other", "1", START)).await.unwrap();
    lab.edit(|transaction| drop(transaction.open_table(COUNTERS).unwrap().insert(IS_LOGGING, 1).unwrap()));
    lab.settings.is_logging = true;
    assert!(matches!(lab.try_open(), Err(OpenError::Log(_))), "other records");
    fs::remove_file(lab.path().join("records.redb")).unwrap();
    assert!(matches!(lab.try_open(), Err(OpenError::Lost(_))), "no records");
}

/// Copies database and journal from one directory to another.
fn copy_records(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("journal")).unwrap();
    fs::copy(from.join("records.redb"), to.join("records.redb")).unwrap();
    for entry in fs::read_dir(from.join("journal")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join("journal").join(entry.file_name())).unwrap();
    }
}
