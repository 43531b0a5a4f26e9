//! Bad disks, and databases that are not what they should be.

use redb::ReadableTableMetadata as _;

use super::bad::{Bad, Disk};
use super::lab::{Lab, START, document, finished};
use crate::admission::KeyHash;
use crate::record::tables::RECEIPTS;
use crate::record::{Lookup, OpenError, Store, StoreError, Trouble};
use crate::upstream::fake::until;

fn open(lab: &Lab, bad: &Bad) -> Store {
    Store::open_with(&lab.path(), lab.settings, lab.times(), bad.backing()).unwrap()
}

#[tokio::test]
async fn a_full_disk_is_an_error_until_there_is_room() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    assert_eq!(store.trouble(), None);
    bad.becomes(Disk::Full);
    for _ in 0..3 {
        assert!(store.finish(finished(key, "2", "1", START)).await.is_err());
        assert!(store.first_time([1; 32], START + 100).await.is_err());
    }
    assert_eq!(store.trouble(), Some(Trouble::Writing));
    bad.becomes(Disk::Well);
    store.finish(finished(key, "3", "1", START)).await.unwrap();
    until(|| store.trouble().is_none()).await;
    let is_there = |name: &str| store.receipt(name, key).unwrap() != Lookup::Absent;
    assert!(is_there("rcpt-1") && !is_there("rcpt-2") && is_there("rcpt-3"));
    assert_eq!(store.spent(key).unwrap().to_string(), "2");
    assert_eq!(store.usage(0, 10).unwrap().len(), 2);
    assert!(store.first_time([1; 32], START + 100).await.unwrap());
}

#[tokio::test]
async fn a_disk_that_has_room_again_is_found_out_without_a_request() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    bad.becomes(Disk::Full);
    assert!(store.finish(finished(key, "1", "1", START)).await.is_err());
    assert!(store.trouble().is_some());
    bad.becomes(Disk::Well);
    until(|| store.trouble().is_none()).await;
    drop(store);
    assert_eq!(lab.open().usage(0, 10).unwrap().len(), 0, "what failed is not kept");
}

#[tokio::test]
async fn what_the_database_cannot_take_waits_in_the_journal() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    bad.becomes(Disk::FullForDatabase);
    store.finish(finished(key, "0", "1", START)).await.unwrap();
    until(|| store.trouble() == Some(Trouble::Filing)).await;
    let mut kept = 1;
    // What is under way is recorded, as long as there is memory; then it is refused, and does not wait.
    loop {
        let mut large = finished(key, &kept.to_string(), "1", START);
        large.receipt.as_mut().unwrap().document = vec![b' '; 8 << 20];
        if store.finish(large).await.is_err() {
            break;
        }
        kept += 1;
    }
    assert!((4..=8).contains(&kept), "{kept}");
    assert!(store.pending_bytes() > 32 << 20);
    bad.becomes(Disk::Well);
    until(|| store.trouble().is_none() && store.pending_bytes() == 0).await;
    assert_eq!(store.usage(0, 100).unwrap().len(), kept);
    store.finish(finished(key, "last", "1", START)).await.unwrap();
    drop(store);
    assert_eq!(lab.open().counts().unwrap(), (kept as u64 + 1, kept as u64 + 1));
}

/// A database that takes nothing is not read again and again to find that out, and what it has can be read.
#[tokio::test]
async fn a_database_that_takes_nothing_is_not_read_again() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    lab.settled(&store).await;
    bad.becomes(Disk::FullForDatabase);
    store.finish(finished(key, "2", "1", START)).await.unwrap();
    until(|| store.trouble() == Some(Trouble::Filing)).await;
    let (read, refused) = (bad.read(), bad.refused());
    until(|| bad.refused() >= refused + 2).await;
    assert_eq!(bad.read(), read);
    for name in ["rcpt-1", "rcpt-2"] {
        assert_ne!(store.receipt(name, key).unwrap(), Lookup::Absent);
    }
    assert_eq!(store.spent(key).unwrap().to_string(), "2");
    bad.becomes(Disk::Well);
    until(|| store.trouble().is_none()).await;
    assert_eq!(store.spent(key).unwrap().to_string(), "2");
    assert!(bad.read() > read, "then it is");
    assert!(!lab.path().join("records.probe").exists());
}

#[tokio::test]
async fn a_journal_that_may_be_lost_takes_nothing_before_it_stands_somewhere_else() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    bad.becomes(Disk::ForgetfulOfJournal);
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    until(|| store.trouble() == Some(Trouble::Syncing)).await;
    assert!(store.finish(finished(key, "2", "1", START)).await.is_err());
    assert_ne!(store.receipt("rcpt-1", key).unwrap(), Lookup::Absent);
    bad.becomes(Disk::Well);
    until(|| store.trouble().is_none()).await;
    store.finish(finished(key, "3", "1", START)).await.unwrap();
    for _ in 0..2 {
        lab.settled(&store).await;
        assert_eq!(store.receipt("rcpt-1", key).unwrap(), Lookup::Found(document("rcpt-1")));
    }
    drop(store);
    let store = lab.open();
    assert_eq!(store.spent(key).unwrap().to_string(), "2");
    for id in ["rcpt-1", "rcpt-3"] {
        assert_eq!(store.receipt(id, key).unwrap(), Lookup::Found(document(id)));
    }
}

/// It may be well again just then.
#[tokio::test]
async fn what_may_be_lost_stands_somewhere_else_before_an_orderly_end() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    bad.becomes(Disk::ForgetfulOfJournal);
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    until(|| bad.failed_syncs() >= 2).await;
    bad.becomes(Disk::Well);
    drop(store);
    let store = lab.open();
    assert_eq!(store.receipt("rcpt-1", key).unwrap(), Lookup::Found(document("rcpt-1")));
}

/// What a disk loses stands before nothing that is kept later.
#[tokio::test]
async fn what_a_disk_loses_again_and_again_is_not_believed() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    bad.becomes(Disk::ForgetfulOfJournal);
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    until(|| bad.failed_syncs() >= 4).await;
    assert_eq!(store.trouble(), Some(Trouble::Syncing));
    bad.becomes(Disk::Well);
    until(|| store.trouble().is_none()).await;
    bad.becomes(Disk::FullForDatabase);
    store.finish(finished(key, "2", "1", START)).await.unwrap();
    bad.becomes(Disk::Dead);
    drop(store);
    assert_eq!(lab.open().spent(key).unwrap().to_string(), "2");
}

#[tokio::test]
async fn a_full_disk_that_also_loses_something_is_found_out() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    bad.becomes(Disk::Full);
    assert!(store.finish(finished(key, "2", "1", START)).await.is_err());
    bad.becomes(Disk::ForgetfulOfJournal);
    until(|| store.shared().troubles.has(Trouble::Syncing)).await;
    assert!(store.finish(finished(key, "3", "1", START)).await.is_err());
    until(|| bad.failed_syncs() >= 3).await;
    bad.becomes(Disk::Well);
    until(|| store.trouble().is_none()).await;
    bad.becomes(Disk::FullForDatabase);
    store.finish(finished(key, "4", "1", START)).await.unwrap();
    bad.becomes(Disk::Dead);
    drop(store);
    assert_eq!(lab.open().spent(key).unwrap().to_string(), "1");
}

#[tokio::test]
async fn a_change_that_is_not_written_says_nothing_about_the_disk() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    assert!(store.first_time([1; 32], START + 100).await.unwrap());
    bad.becomes(Disk::Full);
    assert!(store.finish(finished(key, "1", "1", START)).await.is_err());
    assert!(!store.first_time([1; 32], START + 100).await.unwrap());
    assert!(store.shared().troubles.has(Trouble::Writing));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_keeps_no_other_from_going() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    for name in ["1", "2"] {
        // In segments of their own.
        lab.open().finish(finished(key, name, "1", START)).await.unwrap();
    }
    let first = lab.segments().into_values().next().unwrap();
    let mut bytes = std::fs::read(&first).unwrap();
    let length = bytes.len();
    bytes[length - 1] ^= 1;
    std::fs::write(&first, bytes).unwrap();
    let store = lab.open();
    store.damage_rows(&[0]);
    store.receipt("rcpt-1", key).unwrap_err();
    assert_ne!(store.receipt("rcpt-2", key).unwrap(), Lookup::Absent);
    lab.pass(6000);
    store.finish(finished(key, "3", "1", lab.now())).await.unwrap();
    lab.settled(&store).await;
    assert_eq!(store.trouble(), None);
    let rows: Vec<_> = store.usage(0, 10).unwrap().into_iter().map(|row| row.row.request_id).collect();
    assert_eq!(rows, ["req_3"], "what cannot be read went with the one after it");
    assert_eq!(blocks(&store), 1);
    assert_eq!(store.spent(key).unwrap().to_string(), "3");
    assert_eq!(store.receipt("rcpt-1", key).unwrap(), Lookup::Absent);
}

#[tokio::test]
async fn a_sector_that_cannot_be_read_holds_up_nobody() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    lab.settled(&store).await;
    bad.becomes(Disk::UnreadableJournal);
    store.receipt("rcpt-1", key).unwrap_err();
    lab.pass(1000);
    store.finish(finished(key, "2", "1", lab.now())).await.unwrap();
    lab.settled(&store).await;
    assert_eq!((store.trouble(), blocks(&store)), (None, 1), "the first has gone");
    bad.becomes(Disk::Well);
    assert_eq!(store.receipt("rcpt-2", key).unwrap(), Lookup::Found(document("rcpt-2")));
}

/// A file that somebody else has removed is not what has had its time, unless it is the oldest: an older copy of the database
/// may name one that had.
#[tokio::test]
async fn a_segment_that_is_missing_is_said_and_holds_up_nobody() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    for name in ["0", "1", "2"] {
        lab.open().finish(finished(key, name, "1", START)).await.unwrap();
    }
    for number in [2, 1] {
        std::fs::remove_file(&lab.segments()[&number]).unwrap();
        let store = lab.open();
        let missing = store.receipt(&format!("rcpt-{}", number - 1), key);
        assert_eq!(
            missing,
            if number == 1 { Ok(Lookup::Absent) } else { Err(StoreError::damaged("a block of receipts")) }
        );
        assert_ne!(store.receipt("rcpt-2", key).unwrap(), Lookup::Absent);
    }
    let store = lab.open();
    lab.pass(1000);
    store.finish(finished(key, "3", "1", lab.now())).await.unwrap();
    lab.settled(&store).await;
    assert_eq!(store.trouble(), None);
    assert_eq!(blocks(&store), 1);
}

/// Room for a few bytes is none.
#[tokio::test]
async fn a_disk_that_takes_little_is_not_well() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    bad.becomes(Disk::NearlyFull);
    assert!(store.finish(finished(key, "1", "1", START)).await.is_err());
    for tries in [3, 5] {
        until(|| bad.refused() >= tries).await;
        assert_eq!(store.trouble(), Some(Trouble::Writing));
    }
    bad.becomes(Disk::Well);
    until(|| store.trouble().is_none()).await;
    store.finish(finished(key, "2", "1", START)).await.unwrap();
    drop(store);
    assert_eq!(lab.open().spent(key).unwrap().to_string(), "1");
}

/// How many blocks of receipts the database has.
fn blocks(store: &Store) -> u64 {
    store.shared().disk.read(|transaction| Ok(transaction.open_table(RECEIPTS)?.len()?)).unwrap()
}

/// Nor does it wait for another second.
#[tokio::test]
async fn what_was_to_go_with_a_write_that_failed_goes_with_the_next() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    lab.settled(&store).await;
    lab.pass(1000);
    bad.becomes(Disk::FullForDatabase);
    store.finish(finished(key, "2", "1", lab.now())).await.unwrap();
    until(|| store.trouble() == Some(Trouble::Filing)).await;
    assert_eq!(blocks(&store), 1);
    bad.becomes(Disk::Well);
    lab.settled(&store).await;
    assert_eq!(blocks(&store), 1, "the second came, and the first went");
    assert_ne!(store.receipt("rcpt-2", key).unwrap(), Lookup::Absent);
}

#[tokio::test]
async fn after_a_failed_sync_of_the_database_only_a_start_helps() {
    let (lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    let store = open(&lab, &bad);
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    lab.settled(&store).await;
    bad.becomes(Disk::ForgetfulOfDatabase);
    store.finish(finished(key, "2", "1", START)).await.unwrap();
    until(|| store.trouble() == Some(Trouble::Lost)).await;
    bad.becomes(Disk::Well);
    // What is under way is recorded in the journal, which is well.
    store.finish(finished(key, "3", "1", START)).await.unwrap();
    until(|| store.shared().troubles.has(Trouble::Filing)).await;
    assert_eq!(store.trouble(), Some(Trouble::Lost), "a second attempt proves nothing");
    drop(store);
    let store = lab.open();
    store.finish(finished(key, "4", "1", START)).await.unwrap();
    for number in 1..=4 {
        assert_ne!(store.receipt(&format!("rcpt-{number}"), key).unwrap(), Lookup::Absent, "{number}");
    }
    assert_eq!(store.spent(key).unwrap().to_string(), "4");
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

#[tokio::test]
async fn receipts_are_found_whose_names_were_kept_without_their_time() {
    use crate::record::tables::{NAMES, NameKind, former_name, name};
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    let unique = "0197a1b2c3d4".repeat(2);
    store.finish(finished(key, &unique, "1", START)).await.unwrap();
    drop(store);
    let ids = [(NameKind::Receipt, format!("rcpt-{unique}")), (NameKind::Chat, format!("req_{unique}"))];
    let found = |store: &Store| ids.each_ref().map(|(_, id)| store.receipt(id, key).unwrap());
    assert!(found(&lab.open()).iter().all(|found| *found != Lookup::Absent));
    lab.edit(|transaction| {
        let mut names = transaction.open_table(NAMES).unwrap();
        for (kind, id) in &ids {
            let had_one = names.remove(&name(*kind, Some(key), id)).unwrap().is_some();
            assert_eq!(had_one, matches!(kind, NameKind::Receipt));
            names.insert(&former_name(*kind, Some(key), id), 0).unwrap();
        }
    });
    assert!(found(&lab.open()).iter().all(|found| *found != Lookup::Absent));
}

#[tokio::test]
async fn nobody_is_given_what_has_another_name() {
    use crate::record::tables::{NAMES, NameKind, name};
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    store.finish(finished(KeyHash::of("other"), "2", "1", START)).await.unwrap();
    drop(store);
    lab.edit(|transaction| {
        transaction
            .open_table(NAMES)
            .unwrap()
            .insert(&name(NameKind::Receipt, Some(key), "rcpt-1"), 1)
            .unwrap();
    });
    lab.open().receipt("rcpt-1", key).unwrap_err();
}
