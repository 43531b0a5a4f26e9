//! QEMU's monitor protocol (QMP): one short conversation per command.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

/// Longest time that a command may take; the monitor answers in milliseconds.
const LIMIT: Duration = Duration::from_secs(5);
/// Most bytes read per conversation: a table of many guest connections can be long.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Why the monitor did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MonitorError {
    /// Nobody listens, or the connection broke.
    #[error("the monitor cannot be reached")]
    Io(#[from] io::Error),
    /// It was too slow.
    #[error("the monitor did not answer in time")]
    TimedOut,
    /// It spoke something else than QMP.
    #[error("the monitor's answer is malformed")]
    Malformed,
    /// It refused.
    #[error("the monitor refused: {0}")]
    Refused(String),
}

/// The monitor of one VM. It serves one client at a time, hence the gate; nothing is kept between
/// commands, so that a restarted node or a restarted VM needs no special case.
#[derive(Debug)]
pub(crate) struct Monitor {
    socket: PathBuf,
    gate: Mutex<()>,
}

impl Monitor {
    /// The monitor that listens on `socket`.
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket, gate: Mutex::new(()) }
    }

    /// Runs a command and returns its result.
    pub(crate) async fn execute(&self, command: &str, arguments: Value) -> Result<Value, MonitorError> {
        let _turn = self.gate.lock().await;
        tokio::time::timeout(LIMIT, self.converse(command, arguments))
            .await
            .map_err(|_| MonitorError::TimedOut)?
    }

    /// Runs a command of the monitor for people and returns what it prints.
    pub(crate) async fn human(&self, command_line: &str) -> Result<String, MonitorError> {
        let answer = self.execute("human-monitor-command", json!({ "command-line": command_line })).await?;
        answer.as_str().map(str::to_owned).ok_or(MonitorError::Malformed)
    }

    async fn converse(&self, command: &str, arguments: Value) -> Result<Value, MonitorError> {
        let (read, mut write) = UnixStream::connect(&self.socket).await?.into_split();
        let mut lines = BufReader::new(read.take(MAX_BYTES)).lines();
        lines.next_line().await?.ok_or(MonitorError::Malformed)?; // the greeting
        for request in [
            json!({ "execute": "qmp_capabilities" }),
            json!({ "execute": command, "arguments": arguments, "id": command }),
        ] {
            write.write_all(format!("{request}\n").as_bytes()).await?;
            let id = request.get("id");
            // Events come in between.
            loop {
                let line = lines.next_line().await?.ok_or(MonitorError::Malformed)?;
                let answer: Value = serde_json::from_str(&line).map_err(|_| MonitorError::Malformed)?;
                if let Some(error) = answer.get("error") {
                    let reason = error.get("desc").and_then(Value::as_str).unwrap_or("no reason");
                    return Err(MonitorError::Refused(reason.to_owned()));
                }
                match (answer.get("return"), id) {
                    (Some(_), None) => break,
                    (Some(result), Some(_)) => return Ok(result.clone()),
                    (None, _) => {}
                }
            }
        }
        Err(MonitorError::Malformed)
    }
}
