//! The virtio serial port to the node: the whole status out, messages in.
//!
//! A port can be opened once. Reading while no node is connected gives an end of file, writing blocks
//! until one is; both are done by threads, since the port's readiness does not survive reconnections.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

use cloister_guest_channel::STATUS_PORT;
use cloister_guest_channel::status::{GuestStatus, HEARTBEAT_INTERVAL, MAX_LINE_BYTES, NodeMessage};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tracing::warn;

const PORTS: &str = "/sys/class/virtio-ports";
/// Pause before reading again from a port without a node.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

/// Connects a status and a queue of messages to the port for as long as the agent runs.
pub(crate) fn connect(
    status: watch::Receiver<GuestStatus>,
    messages: mpsc::Sender<NodeMessage>,
) -> io::Result<()> {
    let port = open()?;
    let reader = port.try_clone()?;
    let runtime = Handle::current();
    thread::spawn(move || send(port, status, &runtime));
    thread::spawn(move || receive(reader, &messages));
    Ok(())
}

fn open() -> io::Result<File> {
    let named = |entry: &fs::DirEntry| {
        fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim() == STATUS_PORT)
    };
    let port = fs::read_dir(PORTS)?.flatten().find(named);
    let port = port.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the VM has no status port"))?;
    OpenOptions::new().read(true).write(true).open(Path::new("/dev").join(port.file_name()))
}

/// Sends the status after every change and as a heartbeat. While no node listens, changes gather, and
/// the next line tells all of them.
fn send(mut port: File, mut status: watch::Receiver<GuestStatus>, runtime: &Handle) {
    loop {
        let line = line(&status.borrow_and_update());
        if let Err(error) = port.write_all(&line) {
            warn!("cannot write to the status port: {error}");
            thread::sleep(RECONNECT_PAUSE);
        }
        let changed =
            runtime.block_on(async { tokio::time::timeout(HEARTBEAT_INTERVAL, status.changed()).await });
        if matches!(changed, Ok(Err(_))) {
            return;
        }
    }
}

fn line(status: &GuestStatus) -> Vec<u8> {
    let mut line = serde_json::to_vec(status).unwrap_or_default();
    line.push(b'\n');
    line
}

fn receive(mut port: File, messages: &mpsc::Sender<NodeMessage>) {
    let mut inbox = Inbox::default();
    let mut buffer = [0; 1024];
    loop {
        let count = port.read(&mut buffer).unwrap_or(0);
        if count == 0 {
            inbox = Inbox::default();
            thread::sleep(RECONNECT_PAUSE);
        }
        for message in inbox.push(buffer.get(..count).unwrap_or_default()) {
            if messages.blocking_send(message).is_err() {
                return;
            }
        }
    }
}

/// Messages out of a stream that may begin in the middle of a line or hold nonsense.
#[derive(Debug, Default)]
struct Inbox {
    line: Vec<u8>,
}

impl Inbox {
    fn push(&mut self, bytes: &[u8]) -> Vec<NodeMessage> {
        let mut messages = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                messages.extend(serde_json::from_slice::<NodeMessage>(&self.line));
                self.line.clear();
            } else if self.line.len() < MAX_LINE_BYTES {
                self.line.push(*byte);
            }
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn finds_messages_behind_nonsense() {
        let message = NodeMessage::Shutdown { timeout_s: 30 };
        let mut inbox = Inbox::default();
        assert_eq!(inbox.push(b"out_s\":1}\n{\"type\":\"dance\"}\n{\"type\":\"shutdown\","), []);
        assert_eq!(inbox.push(b"\"timeout_s\":30}\n"), [message]);
    }

    proptest! {
        #[test]
        fn never_panics(bytes: Vec<u8>) {
            Inbox::default().push(&bytes);
        }
    }
}
