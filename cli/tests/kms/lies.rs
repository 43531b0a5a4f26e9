//! What a directory can say that is not so.

use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::directory::{Answers, Authority, Kept};
use crate::support::{bare, transcript};

const RECORDS: [&str; 3] = ["a", "b", "c"];

/// Somebody who knows the root and the key of a log.
struct Reader {
    home: TempDir,
    authority: Authority,
}

impl Reader {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let kept = Kept::new(&RECORDS, 1);
        std::fs::write(home.path().join("key"), kept.verifier_key).unwrap();
        Self { home, authority: Authority::new() }
    }

    fn verify(&self, answers: Answers, options: &str) -> Output {
        let address = self.authority.serve(answers, self.home.path());
        let line = format!(
            "kms log verify --json --directory-url https://{address} --ca root.pem --verifier-key key {options}"
        );
        bare(&self.home, &line).output().unwrap()
    }
}

#[track_caller]
fn assert_fails(output: &Output, check: &str) {
    assert_eq!(output.status.code(), Some(8), "{}", transcript("", output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["verified"], false);
    let failed: Vec<_> =
        document["checks"].as_array().unwrap().iter().filter(|check| check["outcome"] == "fails").collect();
    assert!(failed.len() == 1 && failed[0]["id"] == check, "{document:#}");
}

#[test]
fn an_honest_log_is_verified() {
    let reader = Reader::new();
    for records in [&RECORDS[..0], &RECORDS[..1], &RECORDS] {
        let kept = Kept::new(records, 1);
        let output = reader.verify(kept.answers(), "--save saved");
        assert_eq!(output.status.code(), Some(0), "{}", transcript("", &output));
        let longer = reader.verify(Kept::new(&RECORDS, 1).answers(), "--checkpoint saved");
        assert_eq!(longer.status.code(), Some(0), "{}", transcript("", &longer));
    }
}

#[test]
fn a_checkpoint_of_somebody_else_is_refused() {
    let reader = Reader::new();
    assert_fails(&reader.verify(Kept::new(&RECORDS, 2).answers(), ""), "signature");
    let mut forged = Kept::new(&RECORDS, 1).answers();
    let note = forged["/log/checkpoint"].replacen("\n3\n", "\n2\n", 1);
    forged.insert("/log/checkpoint", note);
    assert_fails(&reader.verify(forged, ""), "signature");
    let mut nonsense = Kept::new(&RECORDS, 1).answers();
    nonsense.insert("/log/checkpoint", "nonsense".to_owned());
    assert_fails(&reader.verify(nonsense, ""), "signature");
}

#[test]
fn records_that_are_not_those_that_were_signed_are_noticed() {
    let reader = Reader::new();
    for records in [["a", "B", "c"], ["a", "c", "b"], ["", "b", "c"]] {
        let mut answers = Kept::new(&RECORDS, 1).answers();
        answers.insert("/log/records", json!({ "start": 0, "records": records }).to_string());
        assert_fails(&reader.verify(answers, "--save never"), "records");
    }
    assert!(!reader.home.path().join("never").exists());
    // Fewer, more, or others than were asked for.
    for (start, records) in [(0, &["a"][..]), (0, &["a", "b", "c", "d"]), (1, &RECORDS), (0, &[])] {
        let mut answers = Kept::new(&RECORDS, 1).answers();
        answers.insert("/log/records", json!({ "start": start, "records": records }).to_string());
        let output = reader.verify(answers, "");
        assert_eq!(output.status.code(), Some(8), "{}", transcript("", &output));
    }
}

#[test]
fn a_changed_past_is_noticed_although_it_is_signed() {
    let reader = Reader::new();
    assert!(reader.verify(Kept::new(&RECORDS, 1).answers(), "--save saved").status.success());
    let rewritten = Kept::new(&["a", "B", "c", "d"], 1);
    assert_fails(&reader.verify(rewritten.answers(), "--checkpoint saved --save saved"), "history");
    assert_fails(&reader.verify(Kept::new(&RECORDS[..2], 1).answers(), "--checkpoint saved"), "history");
    // What does not hold is not kept.
    let saved = std::fs::read_to_string(reader.home.path().join("saved")).unwrap();
    assert_eq!(saved, Kept::new(&RECORDS, 1).checkpoint);
}

#[test]
fn nobody_else_is_talked_to() {
    let reader = Reader::new();
    let address = Authority::new().serve(Kept::new(&RECORDS, 1).answers(), reader.home.path());
    let other = Authority::new();
    other.serve(Answers::new(), reader.home.path());
    let line = format!("kms log verify --directory-url https://{address} --ca root.pem --verifier-key key");
    let output = bare(&reader.home, &line).output().unwrap();
    assert_eq!(output.status.code(), Some(8), "{}", transcript("", &output));
    assert!(output.stdout.is_empty());
}

#[test]
fn wrong_input_is_told_apart_from_a_wrong_log() {
    let reader = Reader::new();
    std::fs::write(reader.home.path().join("nonsense"), "nonsense").unwrap();
    let run = |options: &str| reader.verify(Kept::new(&RECORDS, 1).answers(), options).status.code();
    assert_eq!(run("--checkpoint missing"), Some(2));
    assert_eq!(run("--checkpoint nonsense"), Some(2));
    std::fs::write(reader.home.path().join("key"), "nonsense").unwrap();
    assert_eq!(run(""), Some(2));
    for (line, code) in [
        ("kms status", 7),
        ("kms log verify", 7),
        ("kms status --directory-url https://127.0.0.1:1", 2),
        ("kms status --directory-url http://127.0.0.1:1 --ca root.pem", 2),
        ("kms log verify --directory-url https://127.0.0.1:1 --ca root.pem", 2),
        ("kms rotate start --directory-url https://127.0.0.1:1 --ca root.pem", 4),
        ("kms bootstrap --domain a --url https://127.0.0.1:1", 2),
        ("kms rotate retire 0", 2),
        ("kms verify --root-key 00", 2),
    ] {
        let output = bare(&reader.home, line).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", transcript(line, &output));
    }
}
