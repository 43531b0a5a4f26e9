//! The root shell that development images have on the serial console.
//!
//! Whether an image is one stands on its kernel command line, which every launch measures: a host that adds the
//! word to a production image's starts another image, which gets no keys of the first.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{error, warn};

use crate::engine::SOCKET;

/// First argument of the process that becomes the shell.
pub(crate) const ARGUMENT: &str = "console";
/// The word of the command line; `images/lib/manifest.sh` says the same.
const PARAMETER: &str = "cloister.console=shell";
const TERMINAL: &str = "/dev/ttyS0";
/// Pause before the next shell, after one ended.
const PAUSE: Duration = Duration::from_secs(1);

/// Where the command line asks for it, offers one shell after the other for as long as the agent runs.
pub(crate) fn offer() {
    if !is_wanted(&fs::read_to_string("/proc/cmdline").unwrap_or_default()) {
        return;
    }
    warn!("this is a development image: whoever reaches its serial console is root");
    tokio::spawn(async {
        loop {
            if let Err(error) = tokio::process::Command::new("/proc/self/exe").arg(ARGUMENT).status().await {
                warn!("cannot start a shell on the serial console: {error}");
            }
            sleep(PAUSE).await;
        }
    });
}

fn is_wanted(command_line: &str) -> bool {
    command_line.split_ascii_whitespace().any(|word| word == PARAMETER)
}

/// Becomes the shell. Returns only if it cannot.
pub(crate) fn become_shell() -> ExitCode {
    let Err(error) = shell();
    error!("cannot start a shell on the serial console: {error}");
    ExitCode::FAILURE
}

fn shell() -> io::Result<std::convert::Infallible> {
    // A terminal that is opened by the leader of a session without one is that session's from then on, and only
    // so do interrupt keys and job control work.
    rustix::process::setsid()?;
    let terminal = fs::File::options().read(true).write(true).open(TERMINAL)?;
    Err(std::process::Command::new("bash")
        .arg("--login")
        .stdin(terminal.try_clone()?)
        .stdout(terminal.try_clone()?)
        .stderr(terminal)
        .env("DOCKER_HOST", format!("unix://{SOCKET}"))
        .env("TERM", "vt220")
        .exec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_word_opens_the_console() {
        assert!(is_wanted("console=ttyS0 quiet cloister.console=shell\n"));
        for line in [
            "console=ttyS0 quiet",
            "cloister.console=",
            "xcloister.console=shell",
            "cloister.console=shells",
            "",
        ] {
            assert!(!is_wanted(line), "{line}");
        }
    }
}
