//! What earlier versions have left.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use redb::{ReadableTable as _, TableDefinition, TableHandle as _, WriteTransaction};

use super::bad::{Bad, Disk};
use super::lab::{Lab, START, document, finished};
use super::once::Once;
use crate::admission::KeyHash;
use crate::record::row_codec::parse_row;
use crate::record::rows::{Gathering, of_block};
use crate::record::tables::{
    COUNTERS, FIFTH_LAYOUT, FIRST_LAYOUT, FORMER_RECEIPTS, FORMER_ROWS, FOURTH_LAYOUT, JOURNAL_OFFSET,
    JOURNAL_SEGMENT, NEXT_POST, NameHash, NameKind, RECEIPTS, ROWS, ReceiptEntry, SECOND_LAYOUT,
    THIRD_LAYOUT, THIRD_RECEIPTS, VERSION, name,
};
use crate::record::{Lookup, OpenError, Row, Store};

const COUNT: u64 = 3;

/// Receipts as earlier versions kept them.
fn entries(key: KeyHash) -> Vec<Vec<u8>> {
    let entry = |number: u64| {
        let id = format!("rcpt-{number}");
        let names: [NameHash; 2] = [name(NameKind::Receipt, Some(key), &id); 2];
        ReceiptEntry { served_at: START, names, id: id.as_bytes(), document: &document(&id) }.to_bytes()
    };
    (0..COUNT).map(entry).collect()
}

/// A usage row as layouts before the sixth had it; one that cannot be read stays.
pub(super) fn former_row(row: &[u8]) -> Vec<u8> {
    let json = |(key, row): (KeyHash, Row)| [&key.0[..], &serde_json::to_vec(&row).unwrap()].concat();
    let former = parse_row(row).map_or_else(|_| row.to_vec(), json);
    assert!(former.get(32).is_none_or(|first| *first == b'{'), "{former:?}");
    former
}

/// Makes of a database one of the fifth layout.
fn go_back_to_the_fifth(transaction: &WriteTransaction) {
    let mut blocks = transaction.open_table(ROWS).unwrap();
    let rows: Vec<_> = blocks
        .extract_if(|_, _| true)
        .unwrap()
        .map(Result::unwrap)
        .flat_map(|(first, block)| {
            let rows = of_block(first.value(), block.value());
            rows.map(|(number, row)| (number, former_row(row))).collect::<Vec<_>>()
        })
        .collect();
    let mut gathering = Gathering::new(0);
    for (number, row) in rows {
        gathering.skip_to(&mut blocks, number).unwrap();
        gathering.add(&mut blocks, &row).unwrap();
    }
    gathering.end_block(&mut blocks).unwrap();
    transaction.open_table(COUNTERS).unwrap().insert(VERSION, FIFTH_LAYOUT).unwrap();
}

/// Makes of a database one of the fourth layout.
fn go_back_to_the_fourth(transaction: &WriteTransaction) {
    let blocks = transaction.open_table(ROWS).unwrap();
    let mut former = transaction.open_table(FORMER_ROWS).unwrap();
    for entry in blocks.iter().unwrap() {
        let (first, block) = entry.unwrap();
        for (number, row) in of_block(first.value(), block.value()) {
            former.insert(number, &former_row(row)[..]).unwrap();
        }
    }
    transaction.delete_table(blocks).unwrap();
    transaction.open_table(COUNTERS).unwrap().insert(VERSION, FOURTH_LAYOUT).unwrap();
}

/// Makes of a database one of an earlier layout than that.
fn go_back(transaction: &WriteTransaction, layout: u64, key: KeyHash) {
    let entries = entries(key);
    go_back_to_the_fourth(transaction);
    transaction.delete_table(RECEIPTS).unwrap();
    let table = |definition: TableDefinition<'static, u64, &'static [u8]>| {
        transaction.open_table(definition).unwrap()
    };
    if layout == THIRD_LAYOUT {
        let mut block = Vec::new();
        for entry in &entries {
            block.extend(u32::try_from(entry.len()).unwrap().to_le_bytes());
            block.extend(entry);
        }
        table(THIRD_RECEIPTS).insert(0, &block[..]).unwrap();
        // Of a block that was changed, the beginning is there.
        table(THIRD_RECEIPTS).insert(COUNT, &b"?"[..]).unwrap();
    } else {
        for (number, entry) in (0..).zip(&entries) {
            table(FORMER_RECEIPTS).insert(number, &entry[..]).unwrap();
        }
        table(FORMER_RECEIPTS).insert(COUNT, &b"?"[..]).unwrap();
    }
    let mut counters = transaction.open_table(COUNTERS).unwrap();
    counters.insert(VERSION, layout).unwrap();
    for name in [JOURNAL_SEGMENT, JOURNAL_OFFSET] {
        counters.remove(name).unwrap();
    }
    if layout == FIRST_LAYOUT {
        counters.insert(NEXT_POST, 1).unwrap();
    }
}

#[tokio::test]
async fn they_are_taken_over() {
    for (layout, owed) in [(FIRST_LAYOUT, &["req_1", "req_2"][..]), (SECOND_LAYOUT, &[]), (THIRD_LAYOUT, &[])]
    {
        let (mut lab, key) = (Lab::new(), KeyHash::of("key"));
        let store = lab.open();
        for number in 0..COUNT {
            store.finish(finished(key, &number.to_string(), "1", START)).await.unwrap();
        }
        drop(store);
        lab.edit(|transaction| go_back(transaction, layout, key));
        let error = lab.try_open().unwrap_err();
        assert!(error.to_string().contains("journal: the journal cannot be read: it is newer"), "{error}");
        assert!(!lab.segments().is_empty(), "it is left as it is");
        std::fs::remove_dir_all(lab.path().join("journal")).unwrap();
        std::fs::write(lab.path().join("journal.1"), b"?").unwrap();
        let error = lab.try_open().unwrap_err();
        assert!(matches!(error, OpenError::Unfinished(_)), "{error}");
        std::fs::write(lab.path().join("journal.1"), b"").unwrap();
        lab.settings.is_posting = true;
        let bad = Bad::default();
        for (disk, is_begun) in [(Disk::Full, false), (Disk::NoLarger, true)] {
            bad.becomes(disk);
            let error = Store::open_with(&lab.path(), lab.settings, lab.times(), bad.backing()).unwrap_err();
            assert_eq!(matches!(error, OpenError::Upgrade(..)), is_begun, "{error}");
            assert_eq!(matches!(error, OpenError::File(..)), !is_begun, "{error}");
        }
        for _ in 0..2 {
            let store = lab.open();
            let has_former = store.shared().disk.read(|transaction| {
                let former = [FORMER_RECEIPTS.name(), THIRD_RECEIPTS.name(), FORMER_ROWS.name()];
                Ok(transaction.list_tables()?.any(|table| former.contains(&table.name())))
            });
            assert_eq!(has_former, Ok(false));
            let unposted = store.unposted(0, 10).unwrap();
            assert_eq!(unposted.iter().map(|row| &row.row.request_id).collect::<Vec<_>>(), owed);
            check(&store, key, &format!("layout {layout}"));
        }
        assert!(!lab.path().join("journal.1").exists());
    }
}

/// What the third layout has left, and nothing of a journal.
pub(super) async fn of_the_third(key: KeyHash) -> Lab {
    let lab = left(|transaction| go_back(transaction, THIRD_LAYOUT, key), key).await;
    std::fs::remove_dir_all(lab.path().join("journal")).unwrap();
    lab
}

/// Some requests, in what was made of a database.
async fn left(go_back: impl FnOnce(&WriteTransaction), key: KeyHash) -> Lab {
    let lab = Lab::new();
    let store = lab.open();
    for number in 0..COUNT {
        store.finish(finished(key, &number.to_string(), "1", START)).await.unwrap();
    }
    drop(store);
    lab.edit(go_back);
    lab
}

/// All of it was taken over.
pub(super) fn check(store: &Store, key: KeyHash, when: &str) {
    for number in 0..COUNT {
        let id = format!("rcpt-{number}");
        assert_eq!(store.receipt(&id, key).unwrap(), Lookup::Found(document(&id)), "{when}");
    }
    assert_eq!(store.spent(key).unwrap().to_string(), COUNT.to_string(), "{when}");
    let rows = store.usage(0, 10).unwrap().into_iter().map(|row| (row.number, row.row.request_id));
    let whole = (0..COUNT).map(|number| (number, format!("req_{number}")));
    assert_eq!(rows.collect::<Vec<_>>(), whole.collect::<Vec<_>>(), "{when}");
}

/// Rows of the fourth layout stand with their numbers, of which some are missing, in blocks that go at much the same time.
#[tokio::test]
async fn rows_of_the_fourth_are_taken_over_and_have_their_time() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    for name in ["0", "1", "2", "3"] {
        lab.pass(1000);
        store.finish(finished(key, name, "1", lab.now())).await.unwrap();
        lab.settled(&store).await;
    }
    store.damage_rows(&[1]);
    drop(store);
    lab.edit(|transaction| {
        go_back_to_the_fourth(transaction);
        transaction.open_table(FORMER_ROWS).unwrap().remove(2).unwrap().unwrap();
    });
    let numbers =
        |store: &Store| store.usage(0, 10).unwrap().iter().map(|row| row.number).collect::<Vec<_>>();
    for _ in 0..2 {
        let store = lab.open();
        assert_eq!((numbers(&store), store.counts()), (vec![0, 3], Ok((4, 4))));
        assert_ne!(store.receipt("rcpt-3", key).unwrap(), Lookup::Absent);
    }
    let store = lab.open();
    lab.pass(2000);
    store.finish(finished(key, "4", "1", lab.now())).await.unwrap();
    lab.settled(&store).await;
    assert_eq!(numbers(&store), [3, 4]);
}

/// Whatever fails, and though it was done all the same: the commit that makes the journal that of the receipts, too.
#[tokio::test]
async fn whatever_fails_all_are_taken_over() {
    let key = KeyHash::of("key");
    let layouts = [THIRD_LAYOUT, FOURTH_LAYOUT, FIFTH_LAYOUT];
    for (layout, is_done) in layouts.into_iter().flat_map(|layout| [(layout, false), (layout, true)]) {
        for before in 0.. {
            let lab = match layout {
                FIFTH_LAYOUT => left(go_back_to_the_fifth, key).await,
                FOURTH_LAYOUT => left(go_back_to_the_fourth, key).await,
                _ => of_the_third(key).await,
            };
            let remaining = Arc::new(AtomicI64::new(before));
            let backing = Once::backing(&remaining, is_done);
            drop(Store::open_with(&lab.path(), lab.settings, lab.times(), backing));
            check(&lab.open(), key, &format!("layout {layout}, {before} operations before, done: {is_done}"));
            if remaining.load(Ordering::SeqCst) >= 0 {
                assert!(before > 10, "{before}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn one_of_a_newer_program_is_left_as_it_is() {
    let lab = Lab::new();
    drop(lab.open());
    lab.edit(|transaction| drop(transaction.open_table(COUNTERS).unwrap().insert(VERSION, 99).unwrap()));
    let error = lab.try_open().unwrap_err();
    assert!(matches!(error, OpenError::Layout { found: 99, .. }), "{error}");
}
