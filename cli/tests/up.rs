//! A whole cloud as a person runs it, with the key management service beside it; no CVM.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::bare;

const PATIENCE: Duration = Duration::from_mins(1);
const ADDRESSES: [&str; 9] =
    ["api", "fleet", "node", "http", "https", "kms", "kms-directory", "inference", "echo"];

pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// `up` on free ports, with an image that no node would boot.
pub(crate) fn command(home: &TempDir, up: &str) -> Command {
    let images = home.path().join("images");
    fs::create_dir_all(images.join("none")).unwrap();
    fs::write(images.join("none/digest.txt"), "an image that no node would boot").unwrap();
    let addresses: String = ADDRESSES.map(|name| format!(" --{name}-listen 127.0.0.1:0")).concat();
    let mut command = bare(home, &format!("{up} --guest-images {}{addresses}", images.display()));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// A running `cloister up`; killed if the test ends early.
pub(crate) struct Up {
    process: Child,
    pub(crate) document: Value,
}

impl Up {
    pub(crate) fn start(home: &TempDir) -> Self {
        let mut command = command(home, "--json up");
        let log = File::options().append(true).create(true).open(home.path().join("log")).unwrap();
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said = fs::read_to_string(home.path().join("log")).unwrap();
        let document = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it is not up: {line}{said}"));
        Self { process, document }
    }

    /// The process of its KMS.
    fn kms(&self) -> Option<Pid> {
        self.service("kms")
    }

    /// The process of a part that runs beside it.
    pub(crate) fn service(&self, part: &str) -> Option<Pid> {
        let parent = format!("\nPPid:\t{}\n", self.process.id());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let pid = pids.find(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command_line = String::from_utf8_lossy(&command_line).replace('\0', " ");
            status.contains(&parent) && command_line.contains(&format!(" serve {part} "))
        });
        Pid::from_raw(pid?)
    }

    /// Ends it by a signal; its exit code, if it has one.
    pub(crate) fn end(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
        eventually("it ends", || self.process.try_wait().unwrap()).code()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn kms_dir(home: &TempDir) -> PathBuf {
    home.path().join(".local/share/cloister/kms")
}

fn root(home: &TempDir) -> String {
    fs::read_to_string(kms_dir(home).join("root-ca.pem")).unwrap()
}

/// What `cloister kms status` says, if the service answers.
fn status(home: &TempDir) -> Option<Value> {
    let output = bare(home, "--json kms status").output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

pub(crate) fn is_alive(process: Pid) -> bool {
    Path::new(&format!("/proc/{}", process.as_raw_nonzero())).exists()
}

pub(crate) fn has_qemu() -> bool {
    let found = Path::new("/usr/bin/qemu-system-x86_64").exists();
    if !found {
        eprintln!("SKIPPED: qemu-system-x86_64 is not installed; scripts/install-dependencies.sh run");
    }
    found
}

#[test]
fn a_cloud_has_a_kms_with_one_root_whatever_is_killed() {
    if !has_qemu() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let up = Up::start(&home);
    let first = root(&home);
    assert_eq!(up.document["kms_root"], kms_dir(&home).join("root-ca.pem").to_str().unwrap());
    let before = status(&home).expect("it answers as soon as the cloud is up");
    let token = kms_dir(&home).join("admin-token");
    assert_eq!(token.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    // Killed, it comes back with the same roots.
    let killed = up.kms().unwrap();
    kill_process(killed, Signal::KILL).unwrap();
    eventually("another process", || up.kms().filter(|pid| *pid != killed));
    let after = eventually("it answers again", || status(&home));
    assert_eq!(after["meta"]["roots"], before["meta"]["roots"]);
    assert!(before["meta"]["roots"].is_array(), "the status says which");

    // It ends with its cloud, whether that is asked or killed.
    let process = up.kms().unwrap();
    assert_eq!(up.end(Signal::TERM), Some(0));
    assert!(!is_alive(process));
    let up = Up::start(&home);
    assert_eq!(root(&home), first);
    let process = up.kms().unwrap();
    assert_eq!(up.end(Signal::KILL), None);
    eventually("the orphan ends", || (!is_alive(process)).then_some(()));

    // And none of its secrets stands in a log or a command line's output.
    let said = fs::read_to_string(home.path().join("log")).unwrap();
    assert!(!said.contains(fs::read_to_string(&token).unwrap().trim()));
}

#[test]
fn a_first_start_that_is_killed_at_any_moment_goes_on_with_the_next_one() {
    if !has_qemu() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let mut known: Option<String> = None;
    for file in ["admin-token", "lock", "state.sealed", "root-ca.pem"] {
        let process =
            command(&home, "up").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let up = Up { process: process.unwrap(), document: Value::Null };
        eventually(file, || kms_dir(&home).join(file).exists().then_some(()));
        let kms = up.kms();
        up.end(Signal::KILL);
        if let Some(process) = kms {
            eventually("the orphan ends", || (!is_alive(process)).then_some(()));
        }
        if let (Some(known), true) = (&known, kms_dir(&home).join("root-ca.pem").exists()) {
            assert_eq!(&root(&home), known, "a root was made over a root");
        }
        known = fs::read_to_string(kms_dir(&home).join("root-ca.pem")).ok();
    }
    let up = Up::start(&home);
    assert_eq!(known, Some(root(&home)));
    assert!(status(&home).is_some());
    assert_eq!(up.end(Signal::TERM), Some(0));
}
