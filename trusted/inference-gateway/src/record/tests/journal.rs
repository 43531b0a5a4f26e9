//! A journal as a crash, or somebody else, may have left it.

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::bad::{Bad, Disk};
use super::lab::{Lab, START, document, finished};
use super::layouts::former_row;
use crate::admission::KeyHash;
use crate::record::changes::{Change, Ready};
use crate::record::disk::Dir;
use crate::record::journal::Journal;
use crate::record::segments::{Position, Segments};
use crate::record::trouble::Troubles;
use crate::record::{Finished, Lookup, OpenError, Settings, Store, frame};
use crate::upstream::fake::until;

/// A directory with one request in the database.
async fn begun() -> (Lab, KeyHash) {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    store.finish(finished(key, "0", "1", START)).await.unwrap();
    drop(store);
    (lab, key)
}

fn carried(finished: Finished) -> Vec<u8> {
    Ready::finished(finished, &Settings::default()).unwrap().carried.into()
}

/// The same as before layout six, and its last row.
fn former(finished: Finished) -> (Vec<u8>, Bytes) {
    let Ready { mut change, .. } = Ready::finished(finished, &Settings::default()).unwrap();
    let Change::Finished { rows, .. } = &mut change else { unreachable!("{change:?}") };
    for row in &mut *rows {
        *row = former_row(row).into();
    }
    let row = rows.last().unwrap().clone();
    let mut bytes = change.to_bytes();
    bytes[0] = 1;
    (bytes, row)
}

fn last(lab: &Lab) -> (u64, PathBuf) {
    lab.segments().pop_last().unwrap()
}

/// Adds requests to the last segment, each when those before were durable, or nothing was; says where they begin.
fn add(lab: &Lab, key: KeyHash, names: &[&str], is_durable: bool) -> (PathBuf, Vec<usize>) {
    let (segment, path) = last(lab);
    let (mut bytes, mut begins) = (fs::read(&path).unwrap(), Vec::new());
    for name in names {
        begins.push(bytes.len());
        let durable = if is_durable { bytes.len() as u64 } else { 0 };
        frame::write(&mut bytes, segment, durable, &carried(finished(key, name, "1", START)), true);
    }
    fs::write(&path, &bytes).unwrap();
    (path, begins)
}

/// Begins a segment behind the last one, or with a gap, of whose bytes so many count.
fn begin(lab: &Lab, gap: u64, after: usize) {
    let (segment, path) = last(lab);
    let (segment, mut bytes) = (segment + 1 + gap, Vec::new());
    frame::write(&mut bytes, segment, 0, &(after as u64).to_le_bytes(), true);
    fs::write(path.with_file_name(format!("{segment:020}")), bytes).unwrap();
}

fn rows(store: &Store) -> Vec<String> {
    store.usage(0, 10).unwrap().into_iter().map(|row| row.row.request_id).collect()
}

#[tokio::test]
async fn rows_of_an_earlier_version_are_filed_beside_others() {
    let (lab, key) = begun().await;
    let (segment, path) = last(&lab);
    let mut bytes = fs::read(&path).unwrap();
    let (of_former, row) = former(finished(key, "1", "1", START));
    let aside = Change::SetAside { number: 1, row }.to_bytes();
    for carried in [of_former, carried(finished(key, "2", "1", START)), aside] {
        let is_last = true;
        frame::write(&mut bytes, segment, 0, &carried, is_last);
    }
    fs::write(&path, &bytes).unwrap();
    for _ in 0..2 {
        let store = lab.open();
        assert_eq!(rows(&store), ["req_0", "req_1", "req_2"]);
        let aside = store.set_aside(0, 10).unwrap();
        assert_eq!(aside.iter().map(|row| &row.row.request_id).collect::<Vec<_>>(), ["req_1"]);
        assert_eq!(store.spent(key).unwrap().to_string(), "3");
    }
}

#[test]
fn what_is_kept_takes_no_more_memory_than_is_counted() {
    for length in [0, 100, 500, 5000, 16_000] {
        let mut finished = finished(KeyHash::of("key"), "1", "1", START);
        finished.rows[0].usage = Some(RawValue::from_string(format!("\"{}\"", "x".repeat(length))).unwrap());
        let Ready { change, carried } = Ready::finished(finished, &Settings::default()).unwrap();
        let counted = change.bytes();
        drop(change);
        let memory = carried.try_into_mut().unwrap().capacity();
        assert!(memory <= counted, "{memory} instead of {counted} bytes, with {length}");
    }
}

#[tokio::test]
async fn what_is_in_the_journal_is_filed_once() {
    let (lab, key) = begun().await;
    let (path, _) = add(&lab, key, &["1", "2"], true);
    begin(&lab, 0, fs::read(path).unwrap().len());
    add(&lab, key, &["3"], true);
    // One that was not begun.
    let (segment, path) = last(&lab);
    fs::write(path.with_file_name(format!("{:020}", segment + 1)), b"?").unwrap();
    for _ in 0..3 {
        let store = lab.open();
        assert_eq!(rows(&store), ["req_0", "req_1", "req_2", "req_3"]);
        assert_eq!(store.spent(key).unwrap().to_string(), "4");
        for number in 0..4 {
            let id = format!("rcpt-{number}");
            assert_eq!(store.receipt(&id, key).unwrap(), Lookup::Found(document(&id)));
        }
    }
}

/// What stands somewhere else as well counts there.
#[tokio::test]
async fn what_stands_behind_the_end_of_a_segment_is_nothing() {
    let (lab, key) = begun().await;
    let (_, begins) = add(&lab, key, &["1", "2", "3"], false);
    begin(&lab, 0, begins[1]);
    add(&lab, key, &["2", "4"], true);
    assert_eq!(rows(&lab.open()), ["req_0", "req_1", "req_2", "req_4"]);
}

#[tokio::test]
async fn a_frame_that_was_cut_off_is_nothing() {
    let (lab, key) = begun().await;
    let (path, _) = add(&lab, key, &["1", "2"], true);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let store = lab.open();
    assert_eq!(store.counts().unwrap(), (2, 2));
    store.finish(finished(key, "3", "1", START)).await.unwrap();
    drop(store);
    assert_eq!(lab.open().counts().unwrap(), (3, 3));
}

fn why(error: &OpenError) -> String {
    assert!(matches!(error, OpenError::Journal { .. }), "{error}");
    error.to_string()
}

#[tokio::test]
async fn damage_stops_the_start() {
    let (lab, key) = begun().await;
    let (path, begins) = add(&lab, key, &["1", "2", "3"], true);
    let mut bytes = fs::read(&path).unwrap();
    bytes[begins[0] + 40] ^= 1;
    fs::write(&path, &bytes).unwrap();
    for _ in 0..2 {
        let text = why(&lab.try_open().unwrap_err());
        assert!(text.contains(&format!("byte {} was changed", begins[0])), "{text}");
        assert!(text.contains("cut the file off there") && text.contains("restore a copy"), "{text}");
        assert!(fs::read(&path).unwrap() == bytes, "it is left as it is");
    }
    fs::write(&path, &bytes[..begins[0]]).unwrap();
    assert_eq!(lab.open().counts().unwrap(), (1, 1));
}

#[tokio::test]
async fn a_journal_of_other_records_stops_the_start() {
    let (lab, _) = begun().await;
    let (segment, path) = last(&lab);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let text = why(&lab.try_open().unwrap_err());
    assert!(text.contains(&format!("ends at byte {}, and had {}", bytes.len() - 1, bytes.len())), "{text}");
    // One with room is as long as before, or longer.
    let mut copied = bytes.clone();
    copied.resize(bytes.len() + 1000, frame::ROOM);
    copied[100..].fill(frame::ROOM);
    fs::write(&path, copied).unwrap();
    let text = why(&lab.try_open().unwrap_err());
    assert!(text.contains(&format!("nothing was written to it before byte {}", bytes.len())), "{text}");
    fs::remove_file(&path).unwrap();
    let text = why(&lab.try_open().unwrap_err());
    assert!(text.contains(&format!("{segment:020}: the journal cannot be read: it is not there")), "{text}");
    fs::write(&path, &bytes).unwrap();
    for (gap, after) in [(1, 1), (2, 0)] {
        begin(&lab, gap, after);
        assert!(why(&lab.try_open().unwrap_err()).contains("it is not there"));
        fs::remove_file(last(&lab).1).unwrap();
    }
    begin(&lab, 0, bytes.len() - 1);
    assert!(why(&lab.try_open().unwrap_err()).contains("were filed"));
    fs::remove_file(last(&lab).1).unwrap();
    begin(&lab, 0, bytes.len() + 1);
    assert!(why(&lab.try_open().unwrap_err()).contains("ends at byte"));
    let (number, path) = last(&lab);
    let mut other = Vec::new();
    frame::write(&mut other, number, 0, b"?", true);
    fs::write(&path, other).unwrap();
    assert!(why(&lab.try_open().unwrap_err()).contains("does not begin as it should"));
    fs::remove_file(path).unwrap();
    assert_eq!(lab.open().counts().unwrap(), (1, 1));
}

#[tokio::test]
async fn a_journal_without_its_records_stops_the_start() {
    let (lab, _) = begun().await;
    fs::remove_file(lab.path().join("records.redb")).unwrap();
    assert!(matches!(lab.try_open(), Err(OpenError::Lost(_))));
}

#[tokio::test]
async fn starts_leave_no_segments_behind() {
    let (lab, key) = begun().await;
    for _ in 0..5 {
        drop(lab.open());
    }
    for _ in 0..5 {
        let bad = Bad::default();
        bad.becomes(Disk::FullForDatabase);
        Store::open_with(&lab.path(), lab.settings, lab.times(), bad.backing()).unwrap_err();
    }
    assert_eq!(lab.segments().len(), 2, "that of the receipt, and the last one");
    for id in ["rcpt-1", "rcpt-2"] {
        let store = lab.open();
        lab.pass(2000);
        store.finish(finished(key, id.trim_start_matches("rcpt-"), "1", lab.now())).await.unwrap();
        lab.settled(&store).await;
        assert_eq!(store.receipt("rcpt-0", key).unwrap(), Lookup::Absent);
        assert_eq!(store.receipt(id, key).unwrap(), Lookup::Found(document(id)));
        drop(store);
        assert_eq!(lab.segments().len(), 1, "what was before {id} has gone");
    }
}

#[tokio::test]
async fn an_older_database_finds_the_rest_in_the_journal() {
    let (lab, key) = begun().await;
    let path = lab.path().join("records.redb");
    let old = fs::read(&path).unwrap();
    for name in ["1", "2", "3"] {
        // Nothing is in a segment of its own.
        drop(lab.open());
        lab.open().finish(finished(key, name, "1", START)).await.unwrap();
    }
    fs::write(&path, old).unwrap();
    let store = lab.open();
    assert_eq!(rows(&store), ["req_0", "req_1", "req_2", "req_3"]);
    assert_eq!(store.spent(key).unwrap().to_string(), "4");
    assert_eq!(store.receipt("rcpt-2", key).unwrap(), Lookup::Found(document("rcpt-2")));
}

/// A segment whose beginning a disk has lost is no reason not to start: what was in it stands behind it.
#[tokio::test]
async fn what_follows_a_lost_segment_is_found() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = Store::open_with(&lab.path(), lab.settings, lab.times(), bad.backing()).unwrap();
    let shared = store.shared();
    shared.journal.set_most(1);
    bad.becomes(Disk::ForgetfulOfOpened);
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    until(|| shared.journal.end().segment == 2).await;
    bad.becomes(Disk::FullForDatabase);
    shared.journal.sync(&shared.troubles);
    assert!(bad.failed_syncs() >= 1);
    shared.probe();
    for name in ["2", "3"] {
        store.finish(finished(key, name, "1", START)).await.unwrap();
    }
    assert_eq!(shared.journal.end().segment, 3);
    bad.becomes(Disk::Dead);
    drop(store);
    // Nothing of it was durable.
    fs::write(&lab.segments()[&2], []).unwrap();
    let store = lab.open();
    assert_eq!(rows(&store), ["req_1", "req_2", "req_3"]);
    assert_eq!(store.receipt("rcpt-2", key).unwrap(), Lookup::Found(document("rcpt-2")));
}

/// What somebody asked once does not stay for as long as nobody asks again.
#[tokio::test]
async fn a_segment_goes_while_nobody_asks() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    store.shared().journal.set_most(1);
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    until(|| lab.segments().len() == 2).await;
    lab.pass(1000);
    until(|| lab.segments().into_keys().eq([2])).await;
    drop(store);
    assert_eq!(lab.open().counts().unwrap(), (1, 1));
}

/// What a loss of power left of some frames does not come back behind those that are written next.
#[tokio::test]
async fn what_is_left_of_lost_frames_stays_lost() {
    let (lab, key) = begun().await;
    let (path, begins) = add(&lab, key, &["1", "2", "3"], false);
    let mut bytes = fs::read(&path).unwrap();
    bytes[begins[0] + 40] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let bad = Bad::default();
    let store = Store::open_with(&lab.path(), lab.settings, lab.times(), bad.backing()).unwrap();
    bad.becomes(Disk::FullForDatabase);
    store.finish(finished(key, "9", "1", START)).await.unwrap();
    bad.becomes(Disk::Dead);
    drop(store);
    assert_eq!(rows(&lab.open()), ["req_0", "req_9"]);
}

#[tokio::test]
async fn a_segment_that_is_full_is_followed_by_another() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    let all: Vec<_> = (0..9).map(|number| number.to_string()).collect();
    for name in &all {
        let mut large = finished(key, name, "1", START);
        large.receipt.as_mut().unwrap().document = vec![b' '; 8 << 20];
        store.finish(large).await.unwrap();
        lab.settled(&store).await;
    }
    drop(store);
    let lengths: Vec<_> =
        lab.segments().into_values().map(|path| fs::metadata(path).unwrap().len()).collect();
    assert!(lengths.len() == 2 && lengths[0] > 64 << 20, "{lengths:?}");
    for path in lab.segments().into_values() {
        assert_ne!(fs::read(path).unwrap().last(), Some(&frame::ROOM), "it has no room any more");
    }
    let store = lab.open();
    for name in &all {
        assert_ne!(store.receipt(&format!("rcpt-{name}"), key).unwrap(), Lookup::Absent, "{name}");
    }
    lab.pass(2000);
    store.finish(finished(key, "last", "1", lab.now())).await.unwrap();
    lab.settled(&store).await;
    drop(store);
    assert_eq!(lab.segments().len(), 1, "they went with their receipts");
}

/// A journal by itself.
struct Alone {
    lab: Lab,
    bad: Bad,
    troubles: Troubles,
    journal: Journal,
}

impl Alone {
    fn begin() -> Self {
        let (lab, bad) = (Lab::new(), Bad::default());
        let segments = Segments::open(&Dir::take(&lab.path()).unwrap(), &bad.backing()).unwrap();
        let journal = Journal::begin(segments, Position::default()).unwrap();
        Self { lab, bad, troubles: Troubles::default(), journal }
    }

    fn append(&self, changes: &[&Change]) -> Result<(), crate::record::StoreError> {
        let carried: Vec<_> = changes.iter().map(|change| change.to_bytes()).collect();
        self.journal.lock().append(&self.troubles, carried.iter().map(Vec::as_slice)).map(drop)
    }

    fn file(&self) -> PathBuf {
        last(&self.lab).1
    }

    /// Bytes that were written to it.
    fn end(&self) -> usize {
        self.journal.end().offset.try_into().unwrap()
    }

    /// What a start finds.
    fn found(&self) -> Vec<Change> {
        let mut found = Vec::new();
        let end = self.journal.segments.each_since(Position::default(), |content| {
            found.extend(content.changes.into_iter().map(|(_, change)| change));
            Ok(())
        });
        end.unwrap();
        found
    }
}

fn changes() -> [Change; 3] {
    [1, 2, 3].map(|number| Change::Fingerprint { fingerprint: [number; 32], until: START })
}

/// What was refused is not found behind what was kept, though the disk did not take it back at once.
#[tokio::test]
async fn what_was_refused_does_not_survive_another_write() {
    for torn in [Disk::Torn, Disk::Cut] {
        let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
        let store = Store::open_with(&lab.path(), lab.settings, lab.times(), bad.backing()).unwrap();
        store.finish(finished(key, "1", "1", START)).await.unwrap();
        bad.becomes(torn);
        store.finish(finished(key, "2", "1", START)).await.unwrap_err();
        until(|| bad.refused() >= 3).await;
        store.finish(finished(key, "3", "1", START)).await.unwrap_err();
        bad.becomes(Disk::Well);
        until(|| store.trouble().is_none()).await;
        store.finish(finished(key, "4", "1", START)).await.unwrap();
        bad.becomes(Disk::Dead);
        drop(store);
        let store = lab.open();
        assert_eq!(rows(&store), ["req_1", "req_4"], "{torn:?}");
        assert_eq!(store.receipt("rcpt-1", key).unwrap(), Lookup::Found(document("rcpt-1")));
    }
}

/// What the client was told is what is charged, though the process ends before the disk has taken anything back: a disk
/// that writes and says that it did not, and one that writes a part and then takes nothing.
#[test]
fn what_was_refused_does_not_survive_an_end() {
    for torn in [Disk::Torn, Disk::Cut] {
        let (alone, [kept, refused, too]) = (Alone::begin(), changes());
        alone.append(&[&kept]).unwrap();
        alone.bad.becomes(torn);
        alone.append(&[&refused, &too]).unwrap_err();
        alone.bad.becomes(Disk::Dead);
        let bytes = fs::read(alone.file()).unwrap();
        assert!(bytes[alone.end()..].iter().any(|byte| *byte != frame::ROOM), "it is still there");
        alone.bad.becomes(Disk::Well);
        assert_eq!(alone.found(), [kept], "{torn:?}");
    }
}

/// Changes find room that was made before them when the disk has no more; room that is left is nothing that a start finds, and it
/// is given back at the end.
#[test]
fn room_is_made_before_it_is_needed() {
    let (alone, [change, ..]) = (Alone::begin(), changes());
    let room = || {
        let bytes = fs::read(alone.file()).unwrap();
        assert!(bytes[alone.end()..].iter().all(|byte| *byte == frame::ROOM));
        bytes.len() - alone.end()
    };
    alone.append(&[&change]).unwrap();
    assert!((60 << 10..64 << 10).contains(&room()));
    alone.bad.becomes(Disk::NoLarger);
    alone.append(&[&change; 100]).unwrap();
    assert!((1..64 << 10).contains(&room()));
    assert_eq!(alone.found().len(), 101);
    alone.append(&vec![&change; room() / 50]).unwrap_err();
    assert_eq!(room(), 0, "what was refused is cut off");
    alone.bad.becomes(Disk::Well);
    let large = Change::session("large", vec![b' '; 100_000], START).unwrap();
    alone.append(&[&large]).unwrap();
    assert_eq!(room(), 64 << 10);
    assert_eq!(alone.found().len(), 102);
    alone.journal.end_writing();
    assert_eq!(room(), 0);
}
