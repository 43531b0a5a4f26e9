use std::sync::Arc;

use cloister_transparency_log::{Leaf, Log, LogError, MAX_RECORD_BYTES, SigningKey};

use crate::support::{ORIGIN, fill, key, open, refused, runtime};

#[test]
fn callers_at_once_each_get_a_place_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let (tasks, each) = (32_u64, 50_u64);
    let places = runtime().block_on(async {
        let appending = (0..tasks).map(|task| {
            let log = log.clone();
            tokio::spawn(async move {
                let mut places = Vec::new();
                for turn in 0..each {
                    let text = format!("{task}/{turn}").into_bytes();
                    places.push((log.append(text.clone()).await.unwrap(), text));
                }
                places
            })
        });
        let mut places = Vec::new();
        for task in appending.collect::<Vec<_>>() {
            let own = task.await.unwrap();
            assert!(own.is_sorted(), "a caller's records stay in its order");
            places.extend(own);
        }
        places
    });
    assert_eq!(log.size(), tasks * each);
    for (index, text) in places {
        assert_eq!(log.records(index, 1).unwrap(), [text]);
    }
}

#[test]
fn readers_see_a_log_that_fits_together_while_it_grows() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    fill(&log, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| fill(&log, 300));
        let mut last = 1;
        while last < 301 {
            let note = log.checkpoint().unwrap();
            let checkpoint =
                cloister_transparency_log::verify::Checkpoint::verified(&note, &log.verifier_key()).unwrap();
            let records = log.records(0, usize::try_from(checkpoint.size).unwrap()).unwrap();
            assert_eq!(cloister_transparency_log::verify::root_of(&records), checkpoint.root);
            log.consistency(last, checkpoint.size).unwrap();
            log.inclusion(last - 1, checkpoint.size).unwrap();
            last = checkpoint.size;
        }
    });
}

#[test]
fn records_and_names_have_limits() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    for length in [0, MAX_RECORD_BYTES + 1] {
        let refused = log.append_blocking(vec![1; length]).unwrap_err();
        assert!(matches!(refused, LogError::Length(found) if found == length), "{refused}");
        assert!(runtime().block_on(log.append(vec![1; length])).is_err());
    }
    let longest = vec![0xff; MAX_RECORD_BYTES];
    assert_eq!(log.append_blocking(longest.clone()).unwrap(), 0);
    assert_eq!(log.records(0, 1).unwrap(), std::slice::from_ref(&longest));
    // An answer ends after some MiB, and goes on where it ended.
    for _ in 0..9 {
        log.append_blocking(longest.clone()).unwrap();
    }
    let part = log.records(0, 1000).unwrap().len();
    assert!((1..10).contains(&part), "{part}");
    drop(log);
    assert_eq!(open(dir.path()).size(), 10);
    assert!(matches!(Log::open(dir.path(), key(), "two words"), Err(LogError::Name(_))));
}

#[test]
fn records_in_a_row_stand_in_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let of = |task: u32, turn: u32| {
        (0..3).map(move |n| format!("{task}/{turn}/{n}").into_bytes()).collect::<Vec<_>>()
    };
    let firsts = runtime().block_on(async {
        let tasks = (0..8).map(|task| {
            let log = log.clone();
            tokio::spawn(async move {
                let mut firsts = Vec::new();
                for turn in 0..20 {
                    let leaves = of(task, turn).into_iter().map(Leaf::from).collect();
                    firsts.push((log.append_all(leaves).await.unwrap(), of(task, turn)));
                }
                firsts
            })
        });
        let mut firsts = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            firsts.extend(task.await.unwrap());
        }
        firsts
    });
    assert_eq!(log.size(), 8 * 20 * 3);
    for (first, records) in &firsts {
        assert_eq!(log.records(*first, 3).unwrap(), *records);
    }
    drop(log);
    assert_eq!(open(dir.path()).size(), 8 * 20 * 3);
}

#[test]
fn what_is_appended_together_has_the_limits_of_one_record() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let append = |records: Vec<Vec<u8>>| {
        runtime().block_on(log.append_all(records.into_iter().map(Leaf::from).collect()))
    };
    for (refused, length) in [
        (vec![], 0),
        (vec![vec![1], vec![]], 0),
        (vec![vec![1], vec![1; MAX_RECORD_BYTES - 4]], MAX_RECORD_BYTES + 1),
        (vec![vec![1]; MAX_RECORD_BYTES], 5 * MAX_RECORD_BYTES - 4),
    ] {
        let refused = append(refused).unwrap_err();
        assert!(matches!(refused, LogError::Length(found) if found == length), "{refused}");
    }
    assert_eq!(log.size(), 0);
    assert_eq!(append(vec![vec![1], vec![1; MAX_RECORD_BYTES - 5]]).unwrap(), 0);
    // So many small ones that more room is theirs than there is.
    let many = MAX_RECORD_BYTES / 5;
    assert_eq!(append(vec![vec![1]; many]).unwrap(), 2);
    drop(log);
    assert_eq!(open(dir.path()).size(), 2 + many as u64);
}

#[test]
fn one_log_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let second = log.clone();
    assert!(matches!(refused(dir.path()), LogError::Busy(_)));
    drop(log);
    assert!(matches!(refused(dir.path()), LogError::Busy(_)), "a handle is left");
    drop(second);
    open(dir.path());
}

#[test]
fn callers_beyond_the_room_wait_and_are_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let log = Arc::new(open(dir.path()));
    // 48 MiB where 16 may wait.
    runtime().block_on(async {
        let tasks: Vec<_> = (0..48)
            .map(|_| {
                let log = Arc::clone(&log);
                tokio::spawn(async move { log.append(vec![1; MAX_RECORD_BYTES - 300]).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    });
    assert_eq!(log.size(), 48);
}

#[test]
fn another_key_or_name_cannot_continue_a_log_that_has_given_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    fill(&log, 2);
    log.checkpoint().unwrap();
    drop(log);
    let other = SigningKey::from_seed(&[1; 32]);
    assert!(matches!(Log::open(dir.path(), other, ORIGIN), Err(LogError::Damaged { .. })));
    assert!(matches!(Log::open(dir.path(), key(), "other.example"), Err(LogError::Damaged { .. })));
    assert_eq!(open(dir.path()).size(), 2);
}
