//! Process 1 of the guest: tiny, since the kernel panics if it ends.

use std::fs;
use std::process::{Command, Stdio};

use rustix::fs::sync;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use rustix::system::{RebootCommand, reboot};
use tracing::error;

/// First argument of the agent's process.
pub(crate) const AGENT_ARGUMENT: &str = "agent";

/// Starts the agent and reaps every process that ends until the agent itself does.
pub(crate) fn run() {
    // The file may be unlinked by now; the running program is always there.
    let agent = Command::new("/proc/self/exe")
        .arg(AGENT_ARGUMENT)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin")
        .env("HOME", "/root")
        .stdin(Stdio::null())
        .spawn();
    let agent = match agent {
        Ok(agent) => agent,
        Err(error) => return error!("cannot start the agent: {error}"),
    };
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if u32::try_from(pid.as_raw_nonzero().get()) == Ok(agent.id()) => {
                if status.exit_status() != Some(0) {
                    error!("the agent ended unexpectedly: {status:?}");
                }
                return;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return error!("cannot wait for processes: {error}"),
        }
    }
}

/// Ends every process, writes everything to the disks and takes the power away.
pub(crate) fn power_off() -> ! {
    end_all_processes();
    unmount_data();
    sync();
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        error!("cannot power off: {error}");
    }
    // Process 1 that returns is a kernel panic, which ends the VM as well (`panic=-1`).
    std::process::exit(1)
}

fn end_all_processes() {
    let Ok(processes) = fs::read_dir("/proc") else { return };
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for pid in numbers.filter(|number| *number > 1).filter_map(Pid::from_raw) {
        // Fails for those that ended meanwhile; kernel threads ignore it.
        let _ = kill_process(pid, Signal::KILL);
    }
    while let Ok(Some(_)) = wait(WaitOptions::empty()) {}
}

/// Unmounts the data disk and what containers left mounted on it, the last mounted first.
fn unmount_data() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let targets = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let on_data: Vec<_> = targets.filter(|target| target.starts_with("/data")).collect();
    for target in on_data.into_iter().rev() {
        if unmount(target, UnmountFlags::empty()).is_err() {
            let _ = unmount(target, UnmountFlags::DETACH);
        }
    }
}
