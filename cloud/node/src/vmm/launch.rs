//! Starting a VM's process.

use std::io;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use super::{Machine, Process};

/// Longest time from start to a daemonised process; protected memory is accepted within it.
const LIMIT: Duration = Duration::from_mins(2);
/// Longest excerpt of what the program said.
const MAX_REASON_CHARS: usize = 300;

/// Why a VM's process could not be started. Nothing runs then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    /// The program is gone.
    #[error("qemu-system-x86_64 is not installed on the node: install the package qemu-system-x86")]
    Missing,
    /// The host did not let it run.
    #[error("the node's host cannot start another process")]
    Io(#[from] io::Error),
    /// It ended at once.
    #[error("the virtual machine ended at start: {0}")]
    Ended(String),
    /// It neither ran nor ended.
    #[error("the virtual machine did not start in time")]
    TimedOut,
}

/// Starts the process of `machine` and returns once it runs. When one runs already, that one is returned.
pub(crate) async fn launch(program: &Path, machine: &Machine) -> Result<Process, LaunchError> {
    let pid_file = &machine.channels.pid_file;
    if let Some(process) = Process::find(pid_file)? {
        return Ok(process);
    }
    let output = tokio::time::timeout(LIMIT, run(program, machine)).await;
    let found = Process::find(pid_file)?;
    match (output, found) {
        // Also when ours failed because another one holds the lock: that is the VM, then.
        (Ok(_), Some(process)) => Ok(process),
        (Ok(output), None) => Err(LaunchError::Ended(reason(&output?))),
        (Err(_), found) => {
            if let Some(process) = found {
                process.kill()?;
            }
            Err(LaunchError::TimedOut)
        }
    }
}

/// The program returns when its daemon is ready, or with an error.
async fn run(program: &Path, machine: &Machine) -> Result<Output, LaunchError> {
    let child = Command::new(program)
        .args(machine.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // A Ctrl-C at the terminal is for the node, not for a VM that is just becoming a daemon.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LaunchError::Missing,
            _ => LaunchError::Io(error),
        })?;
    Ok(child.wait_with_output().await?)
}

/// The last line that the program said, without its name, paths of the host and control characters.
fn reason(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let line =
        line.split_once(": ").filter(|(name, _)| name.starts_with("qemu")).map_or(line, |(_, rest)| rest);
    let words = line.split_whitespace().map(|word| {
        let bare = word.trim_matches(|c: char| matches!(c, '\'' | '"' | ',' | ':'));
        let path = bare.split_once('=').map_or(bare, |(_, value)| value);
        if path.starts_with('/') { path.rsplit('/').next().unwrap_or_default() } else { word }
    });
    let text: String = words
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .filter(|c| !c.is_control())
        .take(MAX_REASON_CHARS)
        .collect();
    if text.is_empty() { format!("no message ({})", output.status) } else { text }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn said(stderr: &str) -> String {
        reason(&Output {
            status: ExitStatus::from_raw(256),
            stdout: Vec::new(),
            stderr: stderr.as_bytes().to_vec(),
        })
    }

    #[test]
    fn reasons_are_the_last_line_without_paths() {
        assert_eq!(
            said(
                "warning: x\nqemu-system-x86_64: -kernel /data/secret/vmlinuz: Could not open '/data/secret/vmlinuz': No such file\n\n"
            ),
            "-kernel vmlinuz Could not open vmlinuz No such file"
        );
        assert_eq!(
            said("qemu-system-x86_64: cannot set up guest memory 'pc.ram': Cannot allocate memory"),
            "cannot set up guest memory 'pc.ram': Cannot allocate memory"
        );
        assert_eq!(said("\u{1b}[31mred"), "[31mred");
        assert_eq!(said(""), "no message (exit status: 1)");
    }
}
