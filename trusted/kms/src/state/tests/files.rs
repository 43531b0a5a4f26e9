//! Every way in which what is on the disk can be wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::lab::{Lab, allow, events, first};
use crate::state::file::{DataDir, MAX_STATE_BYTES, Replacement};
use crate::state::{Boundaries, Opened, RecoveryError, StateError, UnsealError};

const STATE: &str = "state.sealed";

/// The reason why the state does not open; nothing may have been changed by trying.
fn refusal(lab: &Lab) -> StateError {
    let path = lab.path().join(STATE);
    let before = fs::read(&path).ok();
    let error = lab.open().unwrap_err();
    assert_eq!(fs::read(&path).ok(), before);
    error
}

fn unsealed(lab: &Lab) -> UnsealError {
    match refusal(lab) {
        StateError::Unseal { source, .. } => source,
        error => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_state_outlives_its_process() {
    let lab = Lab::new();
    assert!(matches!(lab.store(1).unwrap().open().unwrap(), Opened::New));
    let root = lab.create().snapshot().current.root.info.clone();
    let store = lab.store(1).unwrap();
    let Opened::Bootstrapped { keys, finished: false } = store.open().unwrap() else { panic!() };
    assert_eq!(keys.snapshot().current.root.info, root);
    keys.finish().await.unwrap();
    keys.finish().await.unwrap();
    drop((keys, store));
    let store = lab.store(1).unwrap();
    let Opened::Bootstrapped { keys, finished: true } = store.open().unwrap() else { panic!() };
    assert_eq!(keys.snapshot().root_infos(), [root]);
    assert_eq!(keys.snapshot().domain, "kms.example");
}

#[test]
fn files_are_private_but_for_what_others_need() {
    let lab = Lab::new();
    let keys = lab.create();
    let mode = |name: &str| fs::metadata(lab.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(""), 0o700);
    assert_eq!(mode(STATE), 0o600);
    let public = |name: &str| fs::read_to_string(lab.path().join(name)).unwrap();
    assert_eq!(public("root-ca.pem"), keys.snapshot().root_chain());
    assert_eq!(public("log-verifier-key"), format!("{}\n", keys.log().verifier_key()));
}

#[test]
fn one_process_at_a_time() {
    let lab = Lab::new();
    let store = lab.store(1).unwrap();
    assert!(matches!(lab.store(1), Err(StateError::Busy(_))));
    drop(store);
    lab.store(1).unwrap();
}

#[test]
fn there_is_no_second_first_state() {
    let lab = Lab::new();
    let store = lab.store(1).unwrap();
    let keys = store.create(first(), "bootstrap").unwrap();
    let root = keys.snapshot().root_infos();
    assert!(matches!(store.create(first(), "bootstrap"), Err(StateError::Exists)));
    drop((keys, store));
    assert_eq!(lab.open().unwrap().snapshot().root_infos(), root);
}

#[test]
fn a_state_that_was_cut_off_or_changed_is_refused() {
    let lab = Lab::new();
    lab.create();
    let path = lab.path().join(STATE);
    let whole = fs::read(&path).unwrap();
    for length in [0, 1, 10, 18, 19, 20, 34, 35, 40, 47, 48, 63, 64, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(unsealed(&lab), UnsealError::Damaged, "{length} bytes");
    }
    // The id of the key, the nonce, the text, the tag.
    for at in [19, 34, 35, 46, 47, 48, 100, whole.len() / 2, whole.len() - 16, whole.len() - 1] {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        let expected = if at < 35 { UnsealError::OtherKey } else { UnsealError::Damaged };
        assert_eq!(unsealed(&lab), expected, "byte {at}");
    }
    fs::write(&path, [whole.as_slice(), b"more"].concat()).unwrap();
    assert_eq!(unsealed(&lab), UnsealError::Damaged);
    fs::write(&path, whole).unwrap();
    lab.open().unwrap();
}

#[test]
fn what_no_start_could_read_is_not_written() {
    let lab = Lab::new();
    let dir = DataDir::take(&lab.path()).unwrap().unwrap();
    let large = vec![0; usize::try_from(MAX_STATE_BYTES).unwrap() + 1];
    let written = dir.replace(STATE, &large, 0o600, "a change", &Boundaries::default());
    assert!(matches!(written, Err(Replacement::NotBegun(_))));
    assert!(!lab.path().join("state.sealed.new").exists());
}

#[test]
fn a_foreign_state_is_refused() {
    let lab = Lab::new();
    lab.create();
    let path = lab.path().join(STATE);
    let mut newer = fs::read(&path).unwrap();
    newer[18] = 2;
    fs::write(&path, newer).unwrap();
    assert_eq!(unsealed(&lab), UnsealError::Version(2));
    for foreign in ["-----BEGIN PRIVATE KEY-----", "{}", "\0\0\0\0"] {
        fs::write(&path, foreign).unwrap();
        assert_eq!(unsealed(&lab), UnsealError::Foreign, "{foreign}");
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(lab.open(), Err(StateError::File(..))));
}

#[test]
fn another_machine_does_not_open_the_state() {
    let lab = Lab::new();
    lab.create();
    let opened = lab.store(2).unwrap().open();
    let Err(StateError::Unseal { source, .. }) = opened else { panic!() };
    assert_eq!(source, UnsealError::OtherKey);
    lab.open().unwrap();
}

#[test]
fn a_state_that_is_gone_is_not_replaced() {
    for left in ["log", "root-ca.pem", "log-verifier-key"] {
        let lab = Lab::new();
        lab.create();
        for name in [STATE, "log", "root-ca.pem", "log-verifier-key"] {
            let path = lab.path().join(name);
            match name {
                name if name == left => {}
                "log" => fs::remove_dir_all(path).unwrap(),
                _ => fs::remove_file(path).unwrap(),
            }
        }
        let store = lab.store(1).unwrap();
        let Err(StateError::Lost { found, .. }) = store.open() else { panic!("{left}") };
        assert_eq!(found, left);
        assert!(matches!(store.create(first(), "bootstrap"), Err(StateError::Lost { .. })));
        assert!(!lab.path().join(STATE).exists());
    }
}

#[test]
fn what_a_death_left_of_an_unwritten_state_is_no_state() {
    let lab = Lab::new();
    fs::create_dir(lab.path()).unwrap();
    fs::write(lab.path().join("state.sealed.new"), b"half").unwrap();
    assert!(matches!(lab.store(1).unwrap().open().unwrap(), Opened::New));
    lab.create();
    lab.open().unwrap();
}

#[tokio::test]
async fn an_older_state_is_refused() {
    let lab = Lab::new();
    let keys = lab.create();
    let path = lab.path().join(STATE);
    let older = fs::read(&path).unwrap();
    keys.start_rotation().await.unwrap();
    drop(keys);
    let newer = fs::read(&path).unwrap();
    fs::write(&path, &older).unwrap();
    assert!(matches!(refusal(&lab), StateError::Recovery(RecoveryError::OldState { index: 2 })));
    fs::write(&path, newer).unwrap();
    assert_eq!(lab.open().unwrap().snapshot().current.version(), 2);
}

#[tokio::test]
async fn a_revocation_cannot_be_undone_by_an_older_state() {
    let lab = Lab::new();
    let keys = lab.create();
    keys.allow_app(allow(1, 1)).await.unwrap();
    let path = lab.path().join(STATE);
    let older = fs::read(&path).unwrap();
    keys.revoke_app(allow(1, 1)).await.unwrap();
    drop(keys);
    fs::write(&path, older).unwrap();
    assert!(matches!(refusal(&lab), StateError::Recovery(RecoveryError::OldState { .. })));
}

#[tokio::test]
async fn a_log_that_is_older_or_another_one_is_refused() {
    let lab = Lab::new();
    let keys = lab.create();
    drop(keys);
    let copy = lab.dir.path().join("log-copy");
    let log = lab.path().join("log");
    copy_dir(&log, &copy);
    let keys = lab.open().unwrap();
    keys.allow_app(allow(1, 1)).await.unwrap();
    drop(keys);
    fs::remove_dir_all(&log).unwrap();
    copy_dir(&copy, &log);
    let error = refusal(&lab);
    assert!(matches!(error, StateError::Recovery(RecoveryError::OldLog { .. })), "{error:?}");
    // Without any log there is none either.
    fs::remove_dir_all(&log).unwrap();
    let error = refusal(&lab);
    assert!(matches!(error, StateError::Recovery(RecoveryError::OldLog { .. })), "{error:?}");
    // A log of another KMS.
    let other = Lab::new();
    let keys = other.create();
    for document in 0..3 {
        keys.allow_app(allow(2, document)).await.unwrap();
    }
    drop(keys);
    fs::remove_dir_all(&log).unwrap();
    copy_dir(&other.path().join("log"), &log);
    let error = refusal(&lab);
    assert!(
        matches!(error, StateError::Log(_) | StateError::Recovery(RecoveryError::OtherLog { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn changes_are_recorded_once_and_only_when_something_changes() {
    let lab = Lab::new();
    let keys = lab.create();
    for _ in 0..3 {
        keys.allow_app(allow(1, 1)).await.unwrap();
        keys.set_platform_rules(keys.policy().platform.clone()).await.unwrap();
        keys.revoke_app(allow(1, 2)).await.unwrap();
    }
    for _ in 0..3 {
        keys.revoke_app(allow(1, 1)).await.unwrap();
    }
    drop(keys);
    let kinds: Vec<_> = events(&lab.open().unwrap())
        .iter()
        .map(|event| serde_json::to_value(event).unwrap()["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["bootstrapped", "platform_rules_set", "app_allowed", "app_revoked"]);
}

fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
