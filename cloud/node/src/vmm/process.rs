//! Finding, watching and ending a VM's process.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Flock, FlockType, Pid, PidfdFlags, Signal};
use tokio::io::unix::AsyncFd;

/// A living VM process. The handle names this very process, also after its number was given to another.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    fd: AsyncFd<OwnedFd>,
}

impl Process {
    /// The process that holds the lock on a PID file, if any.
    pub(crate) fn find(pid_file: &Path) -> io::Result<Option<Self>> {
        let Some(pid) = lock_holder(pid_file)? else { return Ok(None) };
        let fd = match rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            other => other?,
        };
        // The holder may have died, and its number been taken, between the question and the handle.
        if lock_holder(pid_file)? != Some(pid) {
            return Ok(None);
        }
        #[expect(
            deprecated,
            reason = "the new constructor is unsafe; an owned descriptor upholds what it asks for"
        )]
        let fd = AsyncFd::new(fd)?;
        Ok(Some(Self { pid, fd }))
    }

    /// The process number, for logs.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Returns when the process has ended.
    pub(crate) async fn ended(&self) {
        // A pidfd becomes readable at the end of its process and stays so.
        let _ = self.fd.readable().await;
    }

    /// Whether the process ended within `limit`.
    pub(crate) async fn ends_within(&self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.ended()).await.is_ok()
    }

    /// Takes the power away. Fine when it is gone already.
    pub(crate) fn kill(&self) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.fd, Signal::KILL) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => Ok(other?),
        }
    }
}

fn lock_holder(pid_file: &Path) -> io::Result<Option<Pid>> {
    let file = match OpenOptions::new().read(true).write(true).open(pid_file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let holder = rustix::process::fcntl_getlk(&file, &Flock::from(FlockType::WriteLock))?;
    Ok(holder.and_then(|lock| lock.pid))
}
