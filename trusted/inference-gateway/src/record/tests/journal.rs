//! A journal as a crash, or somebody else, may have left it.

use super::bad::{Bad, Disk};
use super::lab::{Lab, START, document, finished};
use crate::admission::KeyHash;
use crate::record::changes::Change;
use crate::record::disk::Dir;
use crate::record::journal::Journal;
use crate::record::trouble::Troubles;
use crate::record::{Finished, Lookup, OpenError, Store, frame};

/// A directory with one request in the database, and the generation that it gets next.
async fn begun() -> (Lab, KeyHash, u64) {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    store.finish(finished(key, "0", "1", START)).await.unwrap();
    lab.settled(&store).await;
    let next = store.shared().pending.read().gathering.number;
    (lab, key, next)
}

fn carried(finished: Finished) -> Vec<u8> {
    Change::finished(finished, 1000).unwrap().to_bytes()
}

/// Writes a generation of requests to its file, each when those before were durable.
fn write(lab: &Lab, key: KeyHash, generation: u64, names: &[&str]) -> (std::path::PathBuf, Vec<u8>) {
    let mut bytes = Vec::new();
    for name in names {
        let durable = bytes.len() as u64;
        frame::write(&mut bytes, generation, durable, &carried(finished(key, name, "1", START)), true);
    }
    let path = lab.path().join(format!("journal.{}", generation % 2));
    std::fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

#[tokio::test]
async fn what_is_in_the_journal_is_filed_once() {
    let (lab, key, next) = begun().await;
    write(&lab, key, next, &["1", "2"]);
    write(&lab, key, next + 1, &["3"]);
    for _ in 0..3 {
        let store = lab.open();
        let rows: Vec<_> = store.usage(0, 10).unwrap().into_iter().map(|row| row.row.request_id).collect();
        assert_eq!(rows, ["req_0", "req_1", "req_2", "req_3"]);
        assert_eq!(store.spent(key).unwrap().to_string(), "4");
        assert_eq!(store.receipt("rcpt-3", key).unwrap(), Lookup::Found(document("rcpt-3")));
    }
}

#[tokio::test]
async fn a_frame_that_was_cut_off_is_nothing() {
    let (lab, key, next) = begun().await;
    let (path, bytes) = write(&lab, key, next, &["1", "2"]);
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let store = lab.open();
    assert_eq!(store.counts().unwrap(), (2, 2));
    store.finish(finished(key, "3", "1", START)).await.unwrap();
    drop(store);
    assert_eq!(lab.open().counts().unwrap(), (3, 3));
}

#[tokio::test]
async fn damage_stops_the_start() {
    let (lab, key, next) = begun().await;
    let (path, mut bytes) = write(&lab, key, next, &["1", "2", "3"]);
    bytes[40] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    for _ in 0..2 {
        let error = lab.try_open().unwrap_err();
        assert!(matches!(error, OpenError::Journal { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("byte 0") && text.contains("move this file away"), "{text}");
        assert!(std::fs::read(&path).unwrap() == bytes, "it is left as it is");
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(lab.open().counts().unwrap(), (1, 1));
}

#[tokio::test]
async fn a_journal_of_other_records_stops_the_start() {
    let (lab, key, next) = begun().await;
    let (path, _) = write(&lab, key, next + 2, &["1"]);
    assert!(matches!(lab.try_open(), Err(OpenError::Journal { .. })));
    std::fs::remove_file(path).unwrap();
    // What the database has had is no harm.
    write(&lab, key, next - 1, &["1"]);
    assert_eq!(lab.open().counts().unwrap(), (1, 1));
}

#[tokio::test]
async fn a_journal_without_its_records_stops_the_start() {
    let (lab, key, next) = begun().await;
    write(&lab, key, next, &["1"]);
    std::fs::remove_file(lab.path().join("records.redb")).unwrap();
    assert!(matches!(lab.try_open(), Err(OpenError::Lost(_))));
}

#[tokio::test]
async fn an_orderly_end_leaves_no_journal() {
    let (lab, key, _) = begun().await;
    let store = lab.open();
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    drop(store);
    for name in ["journal.0", "journal.1"] {
        assert_eq!(std::fs::metadata(lab.path().join(name)).unwrap().len(), 0);
    }
}

/// What a loss of power left of a generation does not come back behind what its number is used for next.
#[tokio::test]
async fn what_is_left_of_a_lost_generation_stays_lost() {
    let (lab, key, next) = begun().await;
    let (path, _) = write(&lab, key, next, &[]);
    let mut bytes = Vec::new();
    for name in ["1", "2", "3"] {
        frame::write(&mut bytes, next, 0, &carried(finished(key, name, "1", START)), true);
    }
    bytes[40] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let bad = Bad::default();
    let store = Store::open_with(&lab.path(), lab.settings, lab.times(), bad.backing()).unwrap();
    bad.becomes(Disk::FullForDatabase);
    store.finish(finished(key, "9", "1", START)).await.unwrap();
    bad.becomes(Disk::Dead);
    drop(store);
    let rows: Vec<_> = lab.open().usage(0, 10).unwrap().into_iter().map(|row| row.row.request_id).collect();
    assert_eq!(rows, ["req_0", "req_9"]);
}

/// What was refused is not found behind what was kept, though the disk did not take it back at once.
#[test]
fn what_was_refused_does_not_survive_a_turn() {
    let (lab, bad, troubles) = (Lab::new(), Bad::default(), Troubles::default());
    let dir = Dir::take(&lab.path()).unwrap();
    let journal = Journal::open(&dir, &bad.backing()).unwrap();
    journal.begin(0).unwrap();
    let [kept, refused, next] =
        [1, 2, 3].map(|number| Change::Fingerprint { fingerprint: [number; 32], until: START });
    let append = |change: &Change| journal.append(&mut journal.lock(), &troubles, [&change.to_bytes()[..]]);
    append(&kept).unwrap();
    bad.becomes(Disk::Torn);
    append(&refused).unwrap_err();
    journal.lock().turn();
    append(&refused).unwrap_err();
    bad.becomes(Disk::Well);
    append(&next).unwrap();
    journal.sync(&troubles);
    assert_eq!(troubles.worst(), None);
    assert_eq!(journal.read(0).unwrap(), [(0, vec![kept]), (1, vec![next])]);
}

/// What the client was told is what is charged, though the process ends before the disk has taken anything back: a disk
/// that writes and says that it did not, and one that writes a part and then takes nothing.
#[test]
fn what_was_refused_does_not_survive_an_end() {
    for torn in [Disk::Torn, Disk::Cut] {
        let (lab, bad, troubles) = (Lab::new(), Bad::default(), Troubles::default());
        let dir = Dir::take(&lab.path()).unwrap();
        let journal = Journal::open(&dir, &bad.backing()).unwrap();
        journal.begin(0).unwrap();
        let [kept, refused, too] =
            [1, 2, 3].map(|number| Change::Fingerprint { fingerprint: [number; 32], until: START });
        let append = |changes: &[&Change]| {
            let carried: Vec<_> = changes.iter().map(|change| change.to_bytes()).collect();
            journal.append(&mut journal.lock(), &troubles, carried.iter().map(Vec::as_slice))
        };
        append(&[&kept]).unwrap();
        bad.becomes(torn);
        append(&[&refused, &too]).unwrap_err();
        bad.becomes(Disk::Dead);
        assert!(std::fs::metadata(lab.path().join("journal.0")).unwrap().len() > 150, "it is still there");
        assert_eq!(journal.read(0).unwrap(), [(0, vec![kept])], "{torn:?}");
    }
}
