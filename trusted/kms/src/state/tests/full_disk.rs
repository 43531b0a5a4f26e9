//! A disk without space: a process whose files may not grow beyond a limit.

use std::path::Path;
use std::process::Command;

use cloister_kms_api::KmsErrorCode::{self, InternalError};
use cloister_kms_api::log::{Caller, Event};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::lab::{Lab, allow, events, first};
use crate::state::{Keys, Opened};

const DIR: &str = "CLOISTER_TEST_KMS_ON_A_FULL_DISK";

/// No file grows beyond `bytes` from now on.
fn limit(bytes: Option<u64>) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

fn refusal() -> Event {
    let reason = "r".repeat(512);
    Event::Refusal {
        asked: None,
        caller: Caller::default(),
        code: KmsErrorCode::Unauthorized,
        reason,
        count: 1,
    }
}

fn allows(keys: &Keys, document: u8) -> bool {
    let allow = allow(1, document);
    keys.policy().apps.get(&allow.app_id).is_some_and(|known| known.contains(&allow.compose_hash))
}

/// The process with the limit.
#[tokio::test]
#[ignore = "runs as a process of its own, below"]
async fn changes_without_space() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let store = Lab::new().store_at(Path::new(&dir), 1).unwrap();
    let keys = store.create(first(), "bootstrap").unwrap();
    for _ in 0..30 {
        keys.record(refusal()).await.unwrap();
    }
    // No room for the state: nothing has happened, and later everything works again.
    let size = keys.log().size();
    limit(Some(100));
    assert_eq!(keys.allow_app(allow(1, 1)).await.unwrap_err().code, InternalError);
    assert_eq!(keys.start_rotation().await.unwrap_err().code, InternalError);
    // What cannot be recorded is not answered.
    assert_eq!(keys.record(refusal()).await.unwrap_err().code, InternalError);
    limit(None);
    assert!(!allows(&keys, 1));
    assert_eq!((keys.log().size(), keys.snapshot().current.version()), (size, 1));
    keys.allow_app(allow(1, 2)).await.unwrap();
    assert!(allows(&keys, 2));

    // No room for the log: what is in the file already is not in effect, and nothing follows it.
    limit(Some(std::fs::metadata(Path::new(&dir).join("log/records")).unwrap().len()));
    assert_eq!(keys.allow_app(allow(1, 3)).await.unwrap_err().code, InternalError);
    assert!(!allows(&keys, 3));
    assert_eq!(keys.start_rotation().await.unwrap_err().code, InternalError);
    assert_eq!(keys.export().await.unwrap_err().code, InternalError);
    assert_eq!(keys.snapshot().current.version(), 1);
    println!("done");
}

#[tokio::test]
async fn a_disk_that_is_full_in_a_change_leaves_it_done_once_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("kms");
    let output = Command::new("sh")
        // Without the signal, writing fails.
        .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "state::tests::full_disk::changes_without_space", "--ignored", "--nocapture"])
        .env(DIR, &dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("done"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let store = Lab::new().store_at(&dir, 1).unwrap();
    let Opened::Bootstrapped { keys, .. } = store.open().unwrap() else { panic!() };
    assert_eq!([1, 2, 3].map(|document| allows(&keys, document)), [false, true, true]);
    assert_eq!(keys.snapshot().roots.len(), 1);
    let recorded = |event: &&Event| matches!(event, Event::AppAllowed { .. });
    assert_eq!(events(&keys).iter().filter(recorded).count(), 2);
    keys.start_rotation().await.unwrap();
    assert_eq!(keys.snapshot().current.version(), 2);
}
