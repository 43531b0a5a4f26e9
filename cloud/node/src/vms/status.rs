//! The node's end of a VM's status channel.

use std::path::Path;
use std::time::Duration;

use cloister_guest_channel::status::{GuestStatus, MAX_LINE_BYTES, MAX_TEXT_BYTES, NodeMessage};
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, LinesCodec};

/// Pause before the channel is opened again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);
/// Shortest time between two lines: a guest that talks more is slowed down, not served.
const LINE_PAUSE: Duration = Duration::from_millis(10);
/// Most phases of a boot that are kept.
const MAX_PHASES: usize = 16;

/// Passes what the guest says to `on_status` and the node's messages to the guest, for ever. A message
/// waits until the channel takes it.
pub(super) async fn follow(
    socket: &Path,
    mut outbox: mpsc::Receiver<NodeMessage>,
    on_status: impl Fn(GuestStatus),
) -> ! {
    let mut unsent = None;
    loop {
        if let Ok(stream) = UnixStream::connect(socket).await {
            exchange(stream, &mut outbox, &mut unsent, &on_status).await;
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

async fn exchange(
    stream: UnixStream,
    outbox: &mut mpsc::Receiver<NodeMessage>,
    unsent: &mut Option<NodeMessage>,
    on_status: &impl Fn(GuestStatus),
) {
    let (read, mut write) = stream.into_split();
    let mut lines = FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE_BYTES));
    loop {
        if let Some(message) = unsent {
            let Ok(line) = serde_json::to_string(message) else { return };
            if write.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                return;
            }
            *unsent = None;
        }
        tokio::select! {
            line = lines.next() => {
                let Some(Ok(line)) = line else { return };
                // The first line may be the rest of one that an earlier reader began.
                if let Ok(status) = serde_json::from_str(&line) {
                    on_status(bounded(status));
                }
                tokio::time::sleep(LINE_PAUSE).await;
            }
            Some(message) = outbox.recv() => *unsent = Some(message),
        }
    }
}

/// Cuts what a hostile guest may have made long or hidden control characters in.
fn bounded(mut status: GuestStatus) -> GuestStatus {
    let excess = status.phases.len().saturating_sub(MAX_PHASES);
    status.phases.drain(..excess);
    for text in
        [&mut status.detail, &mut status.boot_error, &mut status.shutdown_progress, &mut status.health_detail]
            .into_iter()
            .flatten()
    {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.retain(|c| c == '\n' || !c.is_control());
    }
    status
}

#[cfg(test)]
mod tests {
    use cloister_guest_channel::status::{BootPhase, PhaseStart};
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::UnixListener;
    use uuid::Uuid;

    use super::*;

    fn status(error: &str) -> GuestStatus {
        GuestStatus {
            boot_id: Uuid::nil(),
            instance_id: None,
            phases: vec![PhaseStart { phase: BootPhase::Done, uptime_ms: 1 }; 100],
            detail: None,
            boot_error: Some(error.to_owned()),
            shutdown_progress: None,
            health: None,
            health_detail: None,
        }
    }

    #[tokio::test]
    async fn skips_garbage_reconnects_and_delivers_messages() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("status");
        let guest = UnixListener::bind(&socket).unwrap();
        let (messages, outbox) = mpsc::channel(1);
        let (seen, mut statuses) = mpsc::unbounded_channel();
        let script = async {
            let (mut first, _) = guest.accept().await.unwrap();
            first.write_all(b"\"boot_id\":1}\nnot json\n").await.unwrap();
            first.write_all(&vec![b'x'; MAX_LINE_BYTES + 1]).await.unwrap();
            drop(first);
            let (mut second, _) = guest.accept().await.unwrap();
            let line = serde_json::to_string(&status(&"\u{1b}é".repeat(MAX_TEXT_BYTES))).unwrap();
            second.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            messages.send(NodeMessage::Shutdown { timeout_s: 3 }).await.unwrap();
            let mut reply = String::new();
            BufReader::new(second).read_line(&mut reply).await.unwrap();
            (reply, statuses.recv().await.unwrap())
        };
        let (reply, seen) = tokio::select! {
            outcome = script => outcome,
            _ = follow(&socket, outbox, |status| seen.send(status).unwrap()) => unreachable!(),
        };
        assert_eq!(reply.trim(), r#"{"type":"shutdown","timeout_s":3}"#);
        assert_eq!(seen.phases.len(), MAX_PHASES);
        let error = seen.boot_error.unwrap();
        assert!(!error.contains('\u{1b}') && (1..=MAX_TEXT_BYTES).contains(&error.len()));
    }
}
