//! What QEMU's monitor tells without being asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cloister_node_api::ExitReason;
use futures_util::{Stream, StreamExt as _};
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::codec::{FramedRead, LinesCodec};

/// Longest time until QEMU understands that it is listened to: who starts a VM waits for it, and is waited for.
const GREETING_LIMIT: Duration = Duration::from_secs(1);
/// Longest line that is understood, in bytes; events are much shorter.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// Most lines in a second. A usual VM has some in an hour, but a guest can cause them: of each failed write, for one.
const MAX_LINES: u32 = 200;
const SECOND: Duration = Duration::from_secs(1);
/// Pause after more, or after something that is not understood. Nobody listens meanwhile, so that nothing heaps up in QEMU.
const PAUSE: Duration = Duration::from_secs(10);

/// A monitor that tells what happens. It tells nothing before it has heard that somebody understands it.
#[derive(Debug)]
pub(crate) struct Events {
    socket: PathBuf,
    /// `None` where nobody answers.
    open: Option<Connection>,
    pause: Duration,
}

#[derive(Debug)]
struct Connection {
    lines: FramedRead<OwnedReadHalf, LinesCodec>,
    /// Its end would be that of the conversation.
    _write: OwnedWriteHalf,
}

impl Events {
    /// Begins to listen at `socket`. What happens from now on is heard, unless nobody answers there.
    pub(crate) async fn listen(socket: PathBuf) -> Self {
        let open = Connection::open(&socket).await;
        Self { socket, open, pause: PAUSE }
    }

    /// Listens until the VM's process ends, and returns why it did; pending where nobody can be heard.
    pub(crate) async fn exit_reason(mut self) -> ExitReason {
        loop {
            if let Some(mut connection) = self.open.take()
                && let Some(reason) = reason_among(&mut connection.lines).await
            {
                return reason;
            }
            sleep(self.pause).await;
            self.open = Connection::open(&self.socket).await;
        }
    }
}

impl Connection {
    async fn open(socket: &Path) -> Option<Self> {
        timeout(GREETING_LIMIT, Self::negotiate(socket)).await.ok().flatten()
    }

    async fn negotiate(socket: &Path) -> Option<Self> {
        let (read, mut write) = UnixStream::connect(socket).await.ok()?.into_split();
        let mut lines = FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE_BYTES));
        // The greeting is its turn to speak, and the answer is that it goes on by itself.
        lines.next().await?.ok()?;
        write.write_all(b"{\"execute\":\"qmp_capabilities\"}\n").await.ok()?;
        let answer = lines.next().await?.ok()?;
        answer.contains("\"return\"").then_some(Self { lines, _write: write })
    }
}

/// The event that says why a VM ends. No other one is looked into.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", content = "data")]
enum Event {
    #[serde(rename = "SHUTDOWN")]
    Shutdown {
        /// QAPI `ShutdownCause`.
        reason: String,
    },
}

/// The first reason that is told, or that there was none until the process ended; `None` where somebody tells too much or what
/// is no line.
async fn reason_among<E>(lines: &mut (impl Stream<Item = Result<String, E>> + Unpin)) -> Option<ExitReason> {
    let (mut second, mut count) = (Instant::now(), 0);
    while let Some(line) = lines.next().await {
        let line = line.ok()?;
        if line.contains("\"SHUTDOWN\"")
            && let Ok(Event::Shutdown { reason }) = serde_json::from_str(&line)
        {
            return Some(exit_reason(&reason));
        }
        if second.elapsed() > SECOND {
            (second, count) = (Instant::now(), 0);
        }
        count += 1;
        if count > MAX_LINES {
            return None;
        }
    }
    Some(ExitReason::Silent)
}

fn exit_reason(cause: &str) -> ExitReason {
    match cause {
        "guest-shutdown" => ExitReason::PoweredOff,
        "guest-reset" | "subsystem-reset" => ExitReason::Restarted,
        "guest-panic" => ExitReason::Panicked,
        "host-signal" | "host-ui" | "host-qmp-quit" | "host-qmp-system-reset" => ExitReason::ToldToEnd,
        // `host-error`, `none` and what later versions add.
        _ => ExitReason::HostError,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::stream;
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    use tokio::net::UnixListener;

    use super::*;

    const SHUTDOWN: &str =
        "{\"event\": \"SHUTDOWN\", \"data\": {\"guest\": true, \"reason\": \"guest-reset\"}}\n";

    async fn told(lines: &[&str]) -> Option<ExitReason> {
        let lines = lines.iter().map(|line| Ok::<_, io::Error>((*line).to_owned()));
        reason_among(&mut stream::iter(lines)).await
    }

    #[tokio::test]
    async fn the_first_reason_counts_whatever_else_is_said() {
        for (cause, expected) in [
            ("guest-shutdown", ExitReason::PoweredOff),
            ("guest-reset", ExitReason::Restarted),
            ("guest-panic", ExitReason::Panicked),
            ("host-signal", ExitReason::ToldToEnd),
            ("host-qmp-quit", ExitReason::ToldToEnd),
            ("host-error", ExitReason::HostError),
            ("something-new", ExitReason::HostError),
        ] {
            let shutdown = format!(
                r#"{{"timestamp": {{"seconds": 1, "microseconds": 2}}, "event": "SHUTDOWN", "data": {{"guest": true, "reason": "{cause}"}}}}"#
            );
            let last = shutdown.replace(cause, "host-signal");
            let lines = [
                "no JSON",
                r#"{"event": "RESUME"}"#,
                r#"{"event": "RTC_CHANGE", "data": {"offset": 1, "qom-path": "/machine/\"SHUTDOWN\""}}"#,
                r#"{"event": "SHUTDOWN", "data": {"guest": true}}"#,
                &shutdown,
                &last,
            ];
            assert_eq!(told(&lines).await, Some(expected), "{cause}");
        }
        assert_eq!(told(&[r#"{"event": "STOP"}"#]).await, Some(ExitReason::Silent));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_concluded_from_noise() {
        let many = vec![r#"{"event": "BLOCK_IO_ERROR"}"#; 201];
        assert_eq!(told(&many).await, None, "too much");
        assert_eq!(told(&many[..200]).await, Some(ExitReason::Silent));
        let broken = [Ok("{}".to_owned()), Err(io::Error::other("too long"))];
        assert_eq!(reason_among(&mut stream::iter(broken)).await, None);
    }

    /// A node that is too busy, or heard too much, goes on with it later.
    #[tokio::test]
    async fn it_is_listened_again() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("events");
        let mut events = Events::listen(socket.clone()).await;
        events.pause = Duration::from_millis(1);
        let monitor = UnixListener::bind(&socket).unwrap();
        let script = async {
            for said in ["{\"event\": \"BLOCK_IO_ERROR\"}\n".repeat(500), SHUTDOWN.to_owned()] {
                let (stream, _) = monitor.accept().await.unwrap();
                let (read, mut write) = stream.into_split();
                write.write_all(b"{\"QMP\": {}}\n").await.unwrap();
                let mut lines = BufReader::new(read).lines();
                lines.next_line().await.unwrap().unwrap();
                write.write_all(b"{\"return\": {}}\n").await.unwrap();
                // It may have gone before it heard all.
                let _ = write.write_all(said.as_bytes()).await;
                while let Ok(Some(_)) = lines.next_line().await {}
            }
        };
        let (reason, ()) = tokio::join!(events.exit_reason(), script);
        assert_eq!(reason, ExitReason::Restarted);
    }

    #[tokio::test]
    async fn who_does_not_answer_is_no_process_that_ended_without_a_word() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("events");
        assert!(Events::listen(socket.clone()).await.open.is_none(), "nobody is there");
        let monitor = UnixListener::bind(&socket).unwrap();
        let gone = async {
            let (stream, _) = monitor.accept().await.unwrap();
            let (read, mut write) = stream.into_split();
            write.write_all(b"{\"QMP\": {}}\n").await.unwrap();
            BufReader::new(read).lines().next_line().await.unwrap();
        };
        let (events, ()) = tokio::join!(Events::listen(socket), gone);
        assert!(events.open.is_none(), "it ended before it answered");
    }
}
