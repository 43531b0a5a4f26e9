//! What QEMU's monitor tells without being asked.

use std::path::Path;

use cloister_node_api::ExitReason;
use futures_util::{Stream, StreamExt};
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio_util::codec::{FramedRead, LinesCodec};

/// Longest line that is understood, in bytes; events are much shorter.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// A line of QMP. Greetings and answers are none of these.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "SCREAMING_SNAKE_CASE")]
enum Event {
    Shutdown {
        /// QAPI `ShutdownCause`.
        reason: String,
    },
    #[serde(other)]
    Else,
}

/// Listens to a VM's process until that ends, and returns why it does; `None` when it cannot be heard.
pub(crate) async fn last_words(socket: &Path) -> Option<ExitReason> {
    let (read, mut write) = UnixStream::connect(socket).await.ok()?.into_split();
    let mut lines = FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE_BYTES));
    // Until it has heard that somebody understands it, it tells nothing. The greeting is only its turn to speak.
    lines.next().await?.ok()?;
    write.write_all(b"{\"execute\":\"qmp_capabilities\"}\n").await.ok()?;
    Some(reason_among(lines).await)
}

/// The first reason for an end that is told; the connection ends with the process.
async fn reason_among<E>(mut lines: impl Stream<Item = Result<String, E>> + Unpin) -> ExitReason {
    while let Some(line) = lines.next().await {
        let event = line.ok().and_then(|line| serde_json::from_str(&line).ok());
        if let Some(Event::Shutdown { reason }) = event {
            return exit_reason(&reason);
        }
    }
    ExitReason::Silent
}

fn exit_reason(cause: &str) -> ExitReason {
    match cause {
        "guest-shutdown" => ExitReason::PoweredOff,
        "guest-reset" | "subsystem-reset" => ExitReason::Restarted,
        "guest-panic" => ExitReason::Panicked,
        "host-signal" | "host-ui" => ExitReason::Signalled,
        "host-qmp-quit" | "host-qmp-system-reset" => ExitReason::PowerTaken,
        // `host-error`, `none` and what later versions add.
        _ => ExitReason::HostError,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;

    async fn told(lines: &[&str]) -> ExitReason {
        reason_among(stream::iter(lines.iter().map(|line| Ok::<_, Infallible>((*line).to_owned())))).await
    }

    #[tokio::test]
    async fn the_first_reason_counts_whatever_else_is_said() {
        for (cause, expected) in [
            ("guest-shutdown", ExitReason::PoweredOff),
            ("guest-reset", ExitReason::Restarted),
            ("guest-panic", ExitReason::Panicked),
            ("host-signal", ExitReason::Signalled),
            ("host-qmp-quit", ExitReason::PowerTaken),
            ("host-error", ExitReason::HostError),
            ("something-new", ExitReason::HostError),
        ] {
            let shutdown = format!(
                r#"{{"timestamp": {{"seconds": 1, "microseconds": 2}}, "event": "SHUTDOWN", "data": {{"guest": true, "reason": "{cause}"}}}}"#
            );
            let last = shutdown.replace(cause, "host-signal");
            let lines = [
                r#"{"return": {}}"#,
                "no JSON",
                r#"{"event": "RESUME"}"#,
                r#"{"event": "RTC_CHANGE", "data": {"offset": 1, "qom-path": "/machine"}}"#,
                r#"{"event": "SHUTDOWN", "data": {"guest": true}}"#,
                &shutdown,
                &last,
            ];
            assert_eq!(told(&lines).await, expected, "{cause}");
        }
        assert_eq!(told(&[r#"{"event": "STOP"}"#]).await, ExitReason::Silent);
    }
}
