//! What no crash leaves behind is refused, and left as it is.

use std::fs;
use std::path::Path;

use cloister_transparency_log::LogError;

use crate::support::{assert_holds, fill, open, refused};

const FILES: [&str; 4] = ["records", "hashes", "offsets", "checkpoint"];

fn contents(dir: &Path) -> Vec<Vec<u8>> {
    FILES.iter().map(|name| fs::read(dir.join(name)).unwrap()).collect()
}

fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    fill(&log, 9);
    log.checkpoint().unwrap();
    dir
}

#[track_caller]
fn assert_refused(dir: &Path, what: &str) {
    let before = contents(dir);
    let error = refused(dir);
    assert!(matches!(error, LogError::Damaged { .. }), "{what}: {error}");
    assert!(contents(dir) == before, "{what}: the files were touched");
}

#[test]
fn every_changed_byte_is_noticed() {
    let dir = filled();
    let good = contents(dir.path());
    for (name, bytes) in FILES.iter().zip(&good) {
        for at in (0..bytes.len()).step_by(3) {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            fs::write(dir.path().join(name), &changed).unwrap();
            assert_refused(dir.path(), &format!("{name} at {at}"));
        }
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    assert_holds(&open(dir.path()), 9);
}

#[test]
fn missing_records_are_noticed() {
    let dir = filled();
    let good = contents(dir.path());
    let records = dir.path().join("records");
    for cut in (0..good[0].len()).step_by(7) {
        fs::write(&records, &good[0][..cut]).unwrap();
        assert_refused(dir.path(), &format!("cut at {cut}"));
    }
    fs::write(&records, &good[0]).unwrap();

    // Also when somebody takes care that everything fits together: the last checkpoint does not.
    let rolled_back = filled();
    for name in ["hashes", "offsets"] {
        fs::write(rolled_back.path().join(name), "").unwrap();
    }
    let shorter = tempfile::tempdir().unwrap();
    fill(&open(shorter.path()), 4);
    fs::copy(shorter.path().join("records"), rolled_back.path().join("records")).unwrap();
    let error = refused(rolled_back.path());
    assert!(error.to_string().contains("it has 4 records and had 9"), "{error}");
}

#[test]
fn a_rewritten_past_is_noticed_by_the_last_checkpoint() {
    let dir = filled();
    let other = tempfile::tempdir().unwrap();
    let log = open(other.path());
    for index in 0..12 {
        log.append_blocking(format!("other {index}").into_bytes()).unwrap();
    }
    drop(log);
    for name in ["records", "hashes", "offsets"] {
        fs::copy(other.path().join(name), dir.path().join(name)).unwrap();
    }
    assert_refused(dir.path(), "another log");
}

#[test]
fn an_unfinished_end_that_is_too_long_for_one_is_noticed() {
    let dir = filled();
    let mut records = fs::read(dir.path().join("records")).unwrap();
    records.extend(std::iter::repeat_n(7, 3 << 20));
    fs::write(dir.path().join("records"), &records).unwrap();
    assert_refused(dir.path(), "3 MiB of nonsense");
}
