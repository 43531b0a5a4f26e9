//! The directory of a cloud under test.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

/// Longest that killed processes take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// A directory in which a cloud keeps its data. Dropping it ends every process that names it on its command
/// line, the virtual machines above all, which outlive the processes that started them; then it is removed.
/// A test that fails leaves nothing running.
#[derive(Debug)]
pub struct DataDir(TempDir);

impl DataDir {
    /// Makes the directory. Its path is short: sockets lie below it.
    #[must_use]
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("cl-").tempdir().expect("a directory"))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Default for DataDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // What dies may just be starting another one, and what is just starting has no command line yet:
        // until none is left, twice.
        let deadline = Instant::now() + PATIENCE;
        let mut quiet = 0;
        while quiet < 2 {
            let left = kill_processes_of(self.0.path());
            quiet = if left == 0 { quiet + 1 } else { 0 };
            if Instant::now() > deadline {
                eprintln!("{left} processes of {} do not end", self.0.path().display());
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Kills every other process with the path in an argument; how many there were.
pub(crate) fn kill_processes_of(path: &Path) -> usize {
    let needle = path.as_os_str().as_encoded_bytes();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| *pid != rustix::process::getpid()).filter(|pid| kill_if_names(*pid, needle)).count()
}

/// The handle is opened before the look, so that it is the process looked at that is killed.
fn kill_if_names(pid: Pid, needle: &[u8]) -> bool {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let command_line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let names_it = command_line.windows(needle.len()).any(|window| window == needle);
    names_it && pidfd_send_signal(&process, Signal::KILL).is_ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn nothing_that_names_the_directory_outlives_it() {
        let dir = DataDir::new();
        let path = dir.path().to_owned();
        let script = format!("while true; do sleep 1; done; : {}", path.display());
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
        let needle = path.as_os_str().as_encoded_bytes();
        let command_line = || fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
        while !command_line().windows(needle.len()).any(|window| window == needle) {
            std::thread::yield_now();
        }
        // The child stays a process, though a dead one, until it is waited for.
        std::thread::scope(|scope| {
            scope.spawn(|| drop(dir));
            assert!(!child.wait().unwrap().success());
        });
        assert!(!path.exists());
        assert!(other.try_wait().unwrap().is_none(), "others live on");
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
