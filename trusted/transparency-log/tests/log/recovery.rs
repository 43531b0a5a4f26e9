//! What a crash can leave behind.

use std::fs::{self, OpenOptions};
use std::io::Write as _;

use cloister_transparency_log::LogError;
use proptest::prelude::*;

use crate::support::{assert_holds, fill, open, refused};

#[test]
fn a_log_goes_on_where_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    for size in [0, 1, 2, 7, 8, 40] {
        let log = open(dir.path());
        fill(&log, size - log.size());
        assert_holds(&log, size);
    }
    assert_holds(&open(dir.path()), 40);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A batch that was being written: its beginning, or bytes that never reached the disk.
    #[test]
    fn an_unfinished_batch_is_cut_off(size in 0_u64..12, tail in prop::collection::vec(any::<u8>(), 1..400), zeros in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path());
        fill(&log, size);
        log.checkpoint().unwrap();
        drop(log);
        let tail = if zeros { vec![0; tail.len()] } else { tail };
        OpenOptions::new().append(true).open(dir.path().join("records")).unwrap().write_all(&tail).unwrap();
        let log = open(dir.path());
        assert_holds(&log, size);
        fill(&log, 3);
        drop(log);
        assert_holds(&open(dir.path()), size + 3);
    }

    /// The records of a batch are durable before anything else of it is.
    #[test]
    fn what_is_made_from_records_is_made_again(
        size in 1_u64..20, hashes in 0_u64..2000, offsets in 0_u64..200, zeros in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path());
        fill(&log, size);
        drop(log);
        for (name, cut) in [("hashes", hashes), ("offsets", offsets)] {
            let file = OpenOptions::new().write(true).open(dir.path().join(name)).unwrap();
            let length = file.metadata().unwrap().len();
            file.set_len(cut.min(length)).unwrap();
            if zeros {
                file.set_len(length).unwrap();
            }
        }
        let log = open(dir.path());
        assert_holds(&log, size);
        let leaf = cloister_transparency_log::leaf_hash(&crate::support::record(0));
        let proof = log.inclusion(0, size).unwrap();
        prop_assert!(cloister_transparency_log::verify::inclusion(&proof, size, log.root(), 0, leaf).is_ok());
    }

    /// Every length that the file can have had while the last of several batches was written.
    #[test]
    fn a_cut_inside_of_the_last_batch_loses_nothing_else(size in 2_u64..8, share in 0.0_f64..1.0) {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path());
        fill(&log, size - 1);
        drop(log);
        let lengths = |dir: &std::path::Path| ["records", "hashes", "offsets"].map(|name| fs::metadata(dir.join(name)).unwrap().len());
        let before = lengths(dir.path());
        let log = open(dir.path());
        fill(&log, 1);
        drop(log);
        let after = lengths(dir.path());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "small")]
        let cut = before[0] + ((after[0] - before[0]) as f64 * share) as u64;
        let set_len = |name: &str, length| OpenOptions::new().write(true).open(dir.path().join(name)).unwrap().set_len(length).unwrap();
        set_len("records", cut);
        // The hashes of the batch are there: its callers may have been answered.
        let is_refused = matches!(refused(dir.path()), LogError::Damaged { .. });
        prop_assert!(is_refused);
        set_len("hashes", before[1]);
        set_len("offsets", before[2]);
        assert_holds(&open(dir.path()), size - 1);
    }
}

#[test]
fn a_log_that_was_never_finished_being_made_is_made() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("records"), "cloister tran").unwrap();
    assert_holds(&open(dir.path()), 0);
    fs::write(dir.path().join("checkpoint"), "").unwrap();
    assert_holds(&open(dir.path()), 0);
}
