//! What is kept, for whom, and for how long.

use std::os::unix::fs::PermissionsExt as _;

use futures_util::FutureExt as _;
use redb::ReadableTableMetadata as _;

use super::bad::{Bad, Disk};
use super::lab::{Lab, START, document, finished, receipt, row};
use crate::admission::KeyHash;
use crate::record::tables::{NAMES, ROWS, SESSIONS};
use crate::record::{Finished, KeptReceipt, Lookup, Settings, Store, Trouble, UsageRow};
use crate::upstream::fake::until;

fn of(id: &str) -> Lookup {
    Lookup::Found(document(id))
}

#[tokio::test]
async fn receipts_are_their_owners_and_survive_a_restart() {
    let lab = Lab::new();
    let (owner, other) = (KeyHash::of("owner"), KeyHash::of("other"));
    let store = lab.open();
    store.finish(finished(owner, "1", "0.5", lab.now())).await.unwrap();
    store.finish(finished(other, "2", "0.25", lab.now())).await.unwrap();
    drop(store);
    let store = lab.open();
    assert_eq!(store.receipt("rcpt-1", owner).unwrap(), of("rcpt-1"));
    assert_eq!(store.receipt("req_1", owner).unwrap(), of("rcpt-1"));
    for id in ["rcpt-1", "req_1", "rcpt-3", ""] {
        assert_eq!(store.receipt(id, other).unwrap(), Lookup::Absent, "{id}");
    }
    assert_eq!(store.spent(owner).unwrap().to_string(), "0.5");
    assert_eq!(store.spent(KeyHash::of("nobody")).unwrap().to_string(), "0");
    let rows = store.usage(0, 10).unwrap();
    assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), [0, 1]);
    let text = serde_json::to_value(&rows[1]).unwrap();
    assert_eq!(text["apiKeyHash"], other.to_string());
    assert_eq!(text["requestId"], "req_2");
    assert_eq!(text["usage"]["prompt_tokens"], 3);
    assert_eq!(text["cost"], "0.25");
    assert_eq!(store.usage(1, 10).unwrap().len(), 1);
    assert_eq!(store.usage(0, 1).unwrap().len(), 1);
    assert_eq!(store.usage(2, 10).unwrap().len(), 0);
}

#[tokio::test]
async fn what_was_handed_over_is_kept_whoever_went_away() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    // Nobody has written it then, and nobody waits for it.
    for id in ["1", "2"] {
        assert!(store.finish(finished(key, id, "1", lab.now())).now_or_never().is_none());
    }
    until(|| store.receipt("rcpt-2", key).unwrap() == of("rcpt-2")).await;
    assert_eq!(store.receipt("rcpt-1", key).unwrap(), of("rcpt-1"));
    assert!(store.finish(finished(key, "3", "1", lab.now())).now_or_never().is_none());
    drop(store);
    assert_eq!(lab.open().spent(key).unwrap().to_string(), "3");
}

#[tokio::test]
async fn a_name_that_is_used_again_is_the_newest_ones() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    let keep = |receipt: KeptReceipt| store.finish(Finished { key, rows: vec![], receipt: Some(receipt) });
    keep(receipt("rcpt-1", Some("chat"), START)).await.unwrap();
    // What is filed together goes together.
    lab.settled(&store).await;
    lab.pass(600);
    keep(receipt("rcpt-2", Some("chat"), lab.now())).await.unwrap();
    // An upstream may call its answer like a receipt: the receipt is found first.
    keep(receipt("rcpt-3", Some("rcpt-1"), lab.now())).await.unwrap();
    assert_eq!(store.receipt("chat", key).unwrap(), of("rcpt-2"));
    assert_eq!(store.receipt("rcpt-1", key).unwrap(), of("rcpt-1"));
    lab.pass(400);
    // What goes does not take the name with it.
    store.finish(Finished { key, rows: vec![], receipt: None }).await.unwrap();
    lab.settled(&store).await;
    assert_eq!(store.receipt("chat", key).unwrap(), of("rcpt-2"));
    assert_eq!(store.receipt("rcpt-1", key).unwrap(), of("rcpt-3"));
}

#[tokio::test]
async fn a_receipt_that_is_called_like_its_request_has_one_name_and_is_found_by_both() {
    let (lab, key, other) = (Lab::new(), KeyHash::of("key"), KeyHash::of("other"));
    let (first, rest) = ("0123456789abcdef01234567", "89abcdef");
    let (receipt_id, request_id) = (format!("rcpt-{first}"), format!("req_{first}{rest}"));
    let foreign = format!("chatcmpl-{first}{rest}");
    let keep = async |store: &Store, id: &str, chat: &str| {
        let receipt = Some(receipt(id, Some(chat), lab.now()));
        store.finish(Finished { key, rows: vec![], receipt }).await.unwrap();
    };
    let names = |store: &Store| store.shared().disk.read(|read| Ok(read.open_table(NAMES)?.len()?)).unwrap();
    let check = |store: &Store| {
        for id in [&receipt_id, &request_id] {
            assert_eq!(store.receipt(id, key).unwrap(), of(&receipt_id), "{id}");
            assert_eq!(store.receipt(id, other).unwrap(), Lookup::Absent, "{id}");
        }
        for id in [
            format!("req_{first}"),
            format!("req_{first}{}", rest.replace('f', "e")),
            format!("{request_id}0"),
        ] {
            assert_eq!(store.receipt(&id, key).unwrap(), Lookup::Absent, "{id}");
        }
        assert_eq!(store.receipt(&foreign, key).unwrap(), of("rcpt-1"));
    };
    let store = lab.open();
    keep(&store, &receipt_id, &request_id).await;
    keep(&store, "rcpt-1", &foreign).await;
    check(&store);
    lab.settled(&store).await;
    assert_eq!(names(&store), 3);
    check(&store);
    drop(store);
    let store = lab.open();
    check(&store);
    lab.pass(1000);
    store.finish(Finished { key, rows: vec![], receipt: None }).await.unwrap();
    lab.settled(&store).await;
    assert_eq!(names(&store), 0, "no name stays behind");
}

#[tokio::test]
async fn everything_has_its_time() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    let mut first = finished(key, "1", "1", START);
    first.receipt.as_mut().unwrap().session_id = Some("session".to_owned());
    store.keep_session("session", b"record".to_vec(), START + 1).await.unwrap();
    store.keep_session("session", b"another".to_vec(), START + 1).await.unwrap();
    store.keep_session("other", b"other".to_vec(), START + 1).await.unwrap();
    store.finish(first).await.unwrap();
    lab.settled(&store).await;
    lab.pass(999);
    assert_eq!(store.receipt("rcpt-1", key).unwrap(), of("rcpt-1"));
    lab.pass(1);
    assert_eq!(store.receipt("rcpt-1", key).unwrap(), Lookup::Absent, "whether it was removed or not");
    assert_eq!(store.session("session").unwrap().as_deref(), Some(&b"record"[..]), "what was there stays");
    lab.pass(2 * 3600);
    // Receipts, sessions and rows go with any write; the money stays.
    store.finish(Finished { key, rows: vec![row("req_2", "2", lab.now())], receipt: None }).await.unwrap();
    lab.settled(&store).await;
    assert_eq!(store.session("session").unwrap(), None);
    assert_eq!(store.session("other").unwrap(), None);
    assert_eq!(store.usage(0, 10).unwrap().len(), 1);
    assert_eq!(store.spent(key).unwrap().to_string(), "3");
    assert_eq!(store.counts().unwrap(), (1, 2));
}

#[tokio::test]
async fn a_session_stays_as_long_as_a_receipt_cites_it() {
    let mut lab = Lab::new();
    lab.settings.receipts_s = 100_000;
    let (store, key) = (lab.open(), KeyHash::of("key"));
    store.keep_session("session", b"record".to_vec(), START + 10).await.unwrap();
    for turn in 0..5 {
        let mut request = finished(key, &turn.to_string(), "1", lab.now());
        request.receipt.as_mut().unwrap().session_id = Some("session".to_owned());
        store.finish(request).await.unwrap();
        lab.pass(80_000);
        assert!(store.session("session").unwrap().is_some(), "turn {turn}");
    }
    lab.pass(20_000 + 3600);
    assert_eq!(store.session("session").unwrap(), None);
}

/// How many records of sessions the database has.
fn sessions(store: &Store) -> u64 {
    store.shared().disk.read(|transaction| Ok(transaction.open_table(SESSIONS)?.len()?)).unwrap()
}

#[tokio::test]
async fn more_sessions_than_are_looked_at_with_one_write_go_all_the_same() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    for number in 0..300 {
        let ends = if number % 100 == 0 { START + 1 } else { START + 100_000 };
        store.keep_session(&number.to_string(), b"record".to_vec(), ends).await.unwrap();
    }
    lab.settled(&store).await;
    // As many are looked at with each write: those in between have their turn within one second, too.
    for (passes, left) in [(7200, 297), (100_000, 0)] {
        lab.pass(passes);
        for write in 0..4 {
            store.finish(finished(key, &format!("{passes}-{write}"), "1", lab.now())).await.unwrap();
            lab.settled(&store).await;
        }
        assert_eq!(sessions(&store), left, "after {passes}");
    }
}

#[tokio::test]
async fn a_fingerprint_is_new_once() {
    let lab = Lab::new();
    let store = lab.open();
    let again = futures_util::future::join_all((0..20).map(|_| store.first_time([1; 32], START + 300))).await;
    assert_eq!(again.iter().filter(|first| **first == Ok(true)).count(), 1, "at once, one is the first");
    drop(store);
    let store = lab.open();
    assert_eq!(store.first_time([1; 32], START + 300).await, Ok(false), "a restart forgets nothing");
    assert_eq!(store.first_time([2; 32], START + 600).await, Ok(true));
    lab.pass(299);
    assert_eq!(store.first_time([1; 32], START + 900).await, Ok(false));
    lab.pass(1);
    assert_eq!(store.first_time([1; 32], START + 900).await, Ok(true));
    assert_eq!(store.first_time([2; 32], START + 900).await, Ok(false));
    lab.pass(600);
    assert_eq!(store.first_time([2; 32], START + 1000).await, Ok(true));
}

#[tokio::test]
async fn a_clock_that_jumps_ahead_lets_nothing_go() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let mut store = lab.open();
    store.keep_session("session", b"record".to_vec(), START + 1000).await.unwrap();
    assert_eq!(store.first_time([1; 32], START + 300).await, Ok(true));
    for name in ["1", "2", "3"] {
        store.finish(finished(key, name, "1", START)).await.unwrap();
        lab.settled(&store).await;
        // Nor does a start while it is wrong.
        lab.jump(1_000_000);
        drop(store);
        store = lab.open();
        lab.pass(10);
    }
    assert_eq!(store.first_time([1; 32], START + 300).await, Ok(false));
    lab.jump(0);
    for name in ["rcpt-1", "rcpt-2", "rcpt-3"] {
        assert_eq!(store.receipt(name, key).unwrap(), of(name));
    }
    assert!(store.session("session").unwrap().is_some());
    assert_eq!(store.first_time([1; 32], START + 300).await, Ok(false));
    assert_eq!(store.usage(0, 10).unwrap().len(), 3);
    // One that stays ahead is right, after as much time.
    lab.jump(5000);
    for (passed, left) in [(1, 4), (4900, 5), (100, 2)] {
        lab.pass(passed);
        let late = finished(key, &format!("late-{passed}"), "1", lab.now() + 5000);
        store.finish(late).await.unwrap();
        lab.settled(&store).await;
        assert_eq!(store.usage(0, 10).unwrap().len(), left, "after {passed}");
    }
}

#[tokio::test]
async fn rows_wait_for_the_control_plane() {
    let mut lab = Lab::new();
    let key = KeyHash::of("key");
    let store = lab.open();
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    assert_eq!(store.next_to_post().unwrap(), None);
    drop(store);
    lab.settings.is_posting = true;
    let store = lab.open();
    assert_eq!(store.next_to_post().unwrap(), Some(1), "what was before is not for it");
    store.finish(finished(key, "2", "1", START)).await.unwrap();
    // What is filed together goes together.
    lab.settled(&store).await;
    store.finish(finished(key, "3", "1", START)).await.unwrap();
    lab.pass(20_000);
    store.posted(2).await.unwrap();
    drop(store);
    let store = lab.open();
    assert_eq!(store.next_to_post().unwrap(), Some(2));
    store.finish(finished(key, "4", "1", lab.now())).await.unwrap();
    lab.settled(&store).await;
    let left: Vec<_> = store.usage(0, 10).unwrap().into_iter().map(|row| row.row.request_id).collect();
    assert_eq!(left, ["req_3", "req_4"], "what it was not told stays");
    drop(store);
    // Without a control plane they are owed all the same, and what follows is not.
    lab.settings = Settings { is_posting: false, ..lab.settings };
    let store = lab.open();
    assert_eq!(store.next_to_post().unwrap(), Some(2));
    store.finish(finished(key, "5", "1", lab.now())).await.unwrap();
    lab.settled(&store).await;
    lab.pass(20_000);
    store.finish(finished(key, "6", "1", lab.now())).await.unwrap();
    lab.settled(&store).await;
    let names = |rows: Vec<UsageRow>| rows.into_iter().map(|row| row.row.request_id).collect::<Vec<_>>();
    assert_eq!(names(store.usage(0, 10).unwrap()), ["req_3", "req_4", "req_6"]);
    drop(store);
    lab.settings.is_posting = true;
    let store = lab.open();
    store.finish(finished(key, "7", "1", lab.now())).await.unwrap();
    assert_eq!(names(store.unposted(0, 1).unwrap()), ["req_3"]);
    assert_eq!(names(store.unposted(0, 10).unwrap()), ["req_3", "req_4"]);
    assert_eq!(names(store.unposted(3, 10).unwrap()), ["req_4"]);
    assert_eq!(names(store.unposted(4, 10).unwrap()), ["req_7"]);
    store.posted(4).await.unwrap();
    for _ in 0..2 {
        assert_eq!(names(store.unposted(0, 10).unwrap()), ["req_7"]);
        lab.settled(&store).await;
    }
}

/// Rows that stand together go together, when a control plane was told all of them.
#[tokio::test]
async fn rows_wait_for_those_beside_them() {
    let (mut lab, key) = (Lab::new(), KeyHash::of("key"));
    lab.settings.is_posting = true;
    let store = lab.open();
    let rows = ["1", "2", "3"].map(|name| row(&format!("req_{name}"), "1", START)).to_vec();
    store.finish(Finished { key, rows, receipt: None }).await.unwrap();
    lab.settled(&store).await;
    assert_eq!(store.shared().disk.read(|read| Ok(read.open_table(ROWS)?.len()?)), Ok(1));
    lab.pass(20_000);
    for (told, left) in [(1, &[0, 1, 2, 3][..]), (2, &[0, 1, 2, 3, 4]), (3, &[3, 4, 5])] {
        store.posted(told).await.unwrap();
        store
            .finish(Finished { key, rows: vec![row("req_4", "1", lab.now())], receipt: None })
            .await
            .unwrap();
        lab.settled(&store).await;
        let rows: Vec<_> = store.usage(0, 10).unwrap().iter().map(|row| row.number).collect();
        assert_eq!(rows, left, "told before {told}");
        let owed: Vec<_> = store.unposted(0, 10).unwrap().iter().map(|row| row.number).collect();
        assert_eq!(owed.first(), Some(&told));
    }
}

#[tokio::test]
async fn a_session_stays_for_a_request_whose_receipt_is_to_cite_it() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    store.keep_session("session", b"record".to_vec(), START + 10).await.unwrap();
    let (hold, other) = (store.hold_session("session"), store.hold_session("session"));
    for held in [Some(other), None] {
        lab.pass(10_000);
        // Whatever has had its time goes with this.
        store.finish(finished(key, "short", "1", lab.now())).await.unwrap();
        lab.settled(&store).await;
        drop(held);
    }
    let mut request = finished(key, "long", "1", lab.now());
    request.receipt.as_mut().unwrap().session_id = Some("session".to_owned());
    store.finish(request).await.unwrap();
    drop(hold);
    assert_eq!(store.session("session").unwrap().as_deref(), Some(&b"record"[..]));
    lab.settled(&store).await;
    assert_eq!(store.session("session").unwrap().as_deref(), Some(&b"record"[..]));
    lab.pass(10_000);
    assert_eq!(store.session("session").unwrap(), None);
}

#[tokio::test]
async fn rows_that_are_set_aside_stay_until_they_are_taken() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let mut store = lab.open();
    for name in ["1", "2", "3"] {
        store.finish(finished(key, name, "1", START)).await.unwrap();
    }
    let rows = store.usage(0, 10).unwrap();
    let numbers = |store: &Store| {
        let rows = store.set_aside(0, 10).unwrap();
        assert_eq!(store.set_aside_count().unwrap(), rows.len() as u64);
        rows.into_iter().map(|row| row.number).collect::<Vec<_>>()
    };
    for row in [&rows[0], &rows[2]] {
        store.put_aside(row).await.unwrap();
    }
    for _ in 0..2 {
        assert_eq!(numbers(&store), [0, 2]);
        assert_eq!(store.set_aside(1, 10).unwrap()[0].row.request_id, "req_3");
        assert_eq!(store.set_aside(0, 1).unwrap().len(), 1);
        drop(store);
        store = lab.open();
    }
    store.taken(0).await.unwrap();
    assert_eq!(numbers(&store), [2]);
    lab.settled(&store).await;
    assert_eq!(numbers(&store), [2]);
}

#[tokio::test]
async fn long_texts_do_not_fill_the_disk() {
    let (lab, key) = (Lab::new(), KeyHash::of("key"));
    let store = lab.open();
    let mut long = finished(key, "1", "1", START);
    long.rows[0].request_model = "ä".repeat(1 << 20);
    long.rows[0].usage = Some(serde_json::value::to_raw_value(&"x".repeat(1 << 20)).unwrap());
    store.finish(long).await.unwrap();
    let rows = store.usage(0, 1).unwrap();
    assert!(rows[0].row.usage.is_none() && rows[0].row.request_model.len() <= 512);
    let mut huge = finished(key, "2", "1", START);
    huge.receipt.as_mut().unwrap().document = vec![b' '; 9 << 20];
    assert!(store.finish(huge).await.is_err());
    assert_eq!(store.spent(key).unwrap().to_string(), "1", "nothing of it is kept");
}

#[tokio::test]
async fn nobody_else_can_read_it() {
    let lab = Lab::new();
    let store = lab.open();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&lab.path()), 0o700);
    let all = ["", "journal"].map(|dir| std::fs::read_dir(lab.path().join(dir)).unwrap());
    for entry in all.into_iter().flatten() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
    }
    drop(store);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_holds_up_no_other() {
    let (mut lab, key) = (Lab::new(), KeyHash::of("key"));
    lab.settings.is_posting = true;
    let store = lab.open();
    for name in ["1", "2", "3"] {
        store.finish(finished(key, name, "1", START)).await.unwrap();
    }
    lab.settled(&store).await;
    store.damage_rows(&[0, 1]);
    drop(store);
    let store = lab.open();
    let numbers = |rows: Vec<UsageRow>| rows.into_iter().map(|row| row.number).collect::<Vec<_>>();
    for limit in [1, 10] {
        assert_eq!(numbers(store.usage(0, limit).unwrap()), [2]);
        assert_eq!(numbers(store.unposted(0, limit).unwrap()), [2]);
        assert_eq!(numbers(store.to_post(limit).unwrap()), [2]);
    }
    let unreadable = store.unreadable(3).unwrap();
    assert_eq!(store.unreadable(1).unwrap(), unreadable[..1]);
    for (number, row) in unreadable {
        store.put_unreadable_aside(number, row).await.unwrap();
    }
    store.posted(3).await.unwrap();
    assert_eq!((numbers(store.to_post(10).unwrap()), store.unreadable(3).unwrap().len()), (vec![], 0));
    assert_eq!((numbers(store.set_aside(0, 10).unwrap()), store.set_aside_count().unwrap()), (vec![], 2));
}

/// What a loss of power takes of the journal leaves nothing behind that speaks of other rows.
#[tokio::test]
async fn only_what_is_in_the_database_is_posted() {
    let (mut lab, key, bad) = (Lab::new(), KeyHash::of("key"), Bad::default());
    lab.settings.is_posting = true;
    let store = Store::open_with(&lab.path(), lab.settings, lab.times(), bad.backing()).unwrap();
    store.finish(finished(key, "1", "1", START)).await.unwrap();
    lab.settled(&store).await;
    bad.becomes(Disk::FullForDatabase);
    store.finish(finished(key, "2", "1", START)).await.unwrap();
    let posted =
        |store: &Store| store.to_post(10).unwrap().into_iter().map(|row| row.number).collect::<Vec<_>>();
    assert_eq!(posted(&store), [0]);
    until(|| store.trouble() == Some(Trouble::Filing)).await;
    bad.becomes(Disk::Well);
    until(|| store.trouble().is_none()).await;
    let row = store.to_post(10).unwrap().pop().unwrap();
    assert_eq!(row.row.request_id, "req_2");

    bad.becomes(Disk::FullForDatabase);
    store.finish(finished(key, "3", "1", START)).await.unwrap();
    let aside = store.put_aside(&row);
    tokio::select! {
        biased;
        kept = aside => panic!("{kept:?}: it is not in the database"),
        () = until(|| store.trouble() == Some(Trouble::Filing)) => {}
    }
    bad.becomes(Disk::Dead);
    drop(store);
    lab.lose_power();
    let bad = Bad::default();
    let store = Store::open_with(&lab.path(), lab.settings, lab.times(), bad.backing()).unwrap();
    assert_eq!((posted(&store), store.set_aside_count().unwrap()), (vec![0, 1], 0));
    store.put_aside(&row).await.unwrap();
    bad.becomes(Disk::Dead);
    drop(store);
    lab.lose_power();
    assert_eq!(lab.open().set_aside_count().unwrap(), 1);
}
