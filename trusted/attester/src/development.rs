//! The development TEE: the node plays the hardware behind a virtio serial port.
//!
//! Reading from a port gives an end of file while no node is connected, and writing blocks until one is;
//! so both are done by threads of their own, and the platform's thread waits for them with a limit.

use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_evidence::Measurement;
use cloister_evidence::report_data::ReportData;
use cloister_guest_channel::tee::{Call, MAX_LINE_BYTES, Outcome, Request, Response};
use tracing::warn;

use crate::hardware::{Hardware, HardwareError, Platform};

/// Silence after which a request is sent again: the node may have been restarted.
const RESEND_AFTER: Duration = Duration::from_secs(1);
/// Longest wait for an answer; a node restarts faster than that.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pauses before reading again from a port without a node.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Answers that wait to be read; more would be nobody's.
const MAX_ANSWERS: usize = 16;

/// How long the node may take.
#[derive(Debug, Clone, Copy)]
struct Patience {
    resend_after: Duration,
    in_all: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { resend_after: RESEND_AFTER, in_all: PATIENCE }
    }
}

/// The channel to the node.
#[derive(Debug)]
pub(crate) struct Development {
    lines: SyncSender<Vec<u8>>,
    answers: Receiver<Response>,
    next_id: u64,
    patience: Patience,
}

impl Development {
    /// Talks over a connection for as long as this lives.
    pub(crate) fn start(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        Self::with_patience(reader, writer, Patience::default())
    }

    fn with_patience(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        patience: Patience,
    ) -> io::Result<Self> {
        let (lines, outgoing) = sync_channel(1);
        let (incoming, answers) = sync_channel(MAX_ANSWERS);
        thread::Builder::new().name("tee-write".into()).spawn(move || send(writer, &outgoing))?;
        thread::Builder::new().name("tee-read".into()).spawn(move || receive(reader, &incoming))?;
        Ok(Self { lines, answers, next_id: 1, patience })
    }

    /// Asks until there is an answer. The node does nothing twice for one number.
    fn call(&mut self, call: Call) -> Result<Outcome, HardwareError> {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let mut line = serde_json::to_vec(&Request { id, call })
            .map_err(|_| HardwareError::Malformed("a request cannot be written"))?;
        line.push(b'\n');
        let silent = || HardwareError::Silent(self.patience.in_all.as_secs());
        let deadline = Instant::now() + self.patience.in_all;
        loop {
            // Full while the writer waits for a node: then an earlier copy is still to go out.
            let _ = self.lines.try_send(line.clone());
            let resend = Instant::now() + self.patience.resend_after;
            loop {
                let now = Instant::now();
                if now >= deadline {
                    return Err(silent());
                }
                if now >= resend {
                    break;
                }
                match self.answers.recv_timeout(resend.min(deadline) - now) {
                    Ok(Response { id: of, outcome: Outcome::Refused { reason } }) if of == id => {
                        return Err(HardwareError::Refused(printable(&reason)));
                    }
                    Ok(answer) if answer.id == id => return Ok(answer.outcome),
                    Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Err(silent()),
                }
            }
        }
    }
}

impl Hardware for Development {
    fn platform(&self) -> Platform {
        Platform::Development
    }

    fn boot_log(&mut self) -> Result<Vec<u8>, HardwareError> {
        match self.call(Call::BootLog)? {
            Outcome::BootLog { log } => BASE64_STANDARD
                .decode(log)
                .map_err(|_| HardwareError::Malformed("the boot log is not base64")),
            _ => Err(ANOTHER),
        }
    }

    fn quote(&mut self, report_data: &ReportData) -> Result<Vec<u8>, HardwareError> {
        match self.call(Call::Quote { report_data: hex::encode(report_data) })? {
            Outcome::Quote { quote } => {
                hex::decode(quote).map_err(|_| HardwareError::Malformed("the quote is not hex"))
            }
            _ => Err(ANOTHER),
        }
    }

    fn extend(&mut self, register: u32, index: u32, digest: &Measurement) -> Result<(), HardwareError> {
        match self.call(Call::Extend { register, index, digest: digest.to_string() })? {
            Outcome::Extended => Ok(()),
            _ => Err(ANOTHER),
        }
    }

    fn document(&mut self, _user_data: &[u8]) -> Result<Vec<u8>, HardwareError> {
        Err(HardwareError::Refused(format!("{} makes no Nitro documents", Platform::Development)))
    }
}

const ANOTHER: HardwareError = HardwareError::Malformed("the node answered another request");

fn send(mut port: impl Write, lines: &Receiver<Vec<u8>>) {
    while let Ok(line) = lines.recv() {
        // The request is repeated when no answer comes.
        if let Err(error) = port.write_all(&line).and_then(|()| port.flush()) {
            warn!("cannot write to the port of the development TEE: {error}");
        }
    }
}

fn receive(mut port: impl Read, answers: &SyncSender<Response>) {
    let mut inbox = Inbox::default();
    let mut buffer = vec![0; 16 << 10];
    let mut pause = FIRST_PAUSE;
    loop {
        let count = port.read(&mut buffer).unwrap_or(0);
        if count == 0 {
            inbox = Inbox::default();
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        } else {
            pause = FIRST_PAUSE;
        }
        for answer in inbox.push(buffer.get(..count).unwrap_or_default()) {
            match answers.try_send(answer) {
                Err(std::sync::mpsc::TrySendError::Disconnected(_)) => return,
                // Full: nobody asked for that much.
                Ok(()) | Err(std::sync::mpsc::TrySendError::Full(_)) => {}
            }
        }
    }
}

/// Answers out of a stream that may begin in the middle of a line or hold nonsense.
#[derive(Debug, Default)]
struct Inbox {
    line: Vec<u8>,
}

impl Inbox {
    fn push(&mut self, bytes: &[u8]) -> Vec<Response> {
        let mut answers = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            // One that is too long is cut, and so is no JSON.
            let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend(text.iter().take(room));
            if ends {
                answers.extend(serde_json::from_slice::<Response>(&self.line));
                self.line.clear();
            }
        }
        answers
    }
}

/// A node's words, fit for our log.
fn printable(text: &str) -> String {
    text.chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;

    use super::*;

    const SHORT: Patience =
        Patience { resend_after: Duration::from_millis(20), in_all: Duration::from_secs(20) };

    fn pair(patience: Patience) -> (Development, UnixStream) {
        let (ours, node) = UnixStream::pair().unwrap();
        (Development::with_patience(ours.try_clone().unwrap(), ours, patience).unwrap(), node)
    }

    fn answer(node: &mut UnixStream, id: u64, outcome: Outcome) {
        let mut line = serde_json::to_vec(&Response { id, outcome }).unwrap();
        line.push(b'\n');
        node.write_all(&line).unwrap();
    }

    #[test]
    fn repeats_a_request_that_nobody_answered_and_skips_nonsense() {
        let (mut development, mut node) = pair(SHORT);
        let served = thread::spawn(move || {
            let mut lines = BufReader::new(node.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            let again = lines.next().unwrap().unwrap();
            node.write_all(b"half a line\n{\"id\":7}\n").unwrap();
            answer(&mut node, 99, Outcome::Quote { quote: "00".into() });
            answer(&mut node, 1, Outcome::Extended);
            (first, again)
        });
        development.extend(3, 0, &Measurement::ZERO).unwrap();
        let (first, again) = served.join().unwrap();
        assert_eq!(first, again);
        let zeros = "0".repeat(96);
        assert_eq!(first, format!(r#"{{"id":1,"call":"extend","register":3,"index":0,"digest":"{zeros}"}}"#));
    }

    #[test]
    fn gives_up_on_a_silent_node() {
        let patience = Patience { resend_after: Duration::from_millis(5), in_all: Duration::from_millis(30) };
        let (mut development, _node) = pair(patience);
        assert!(matches!(development.quote(&[0; 64]), Err(HardwareError::Silent(_))));
        assert!(matches!(development.extend(3, 0, &Measurement::ZERO), Err(HardwareError::Silent(_))));
        // The node went away altogether.
        let (mut development, node) = pair(patience);
        drop(node);
        assert!(matches!(development.boot_log(), Err(HardwareError::Silent(_))));
    }

    #[test]
    fn a_refusal_and_a_wrong_answer_are_errors() {
        let (mut development, mut node) = pair(SHORT);
        answer(&mut node, 1, Outcome::Refused { reason: "no\nmore".into() });
        answer(&mut node, 2, Outcome::Extended);
        answer(&mut node, 3, Outcome::Quote { quote: "zz".into() });
        let refused = development.quote(&[0; 64]).unwrap_err();
        assert_eq!(refused.to_string(), "the platform refused: no more");
        assert!(matches!(development.quote(&[0; 64]), Err(HardwareError::Malformed(_))));
        assert!(matches!(development.quote(&[0; 64]), Err(HardwareError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn hostile_lines_are_bounded_and_never_panic(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..20),
        ) {
            let mut inbox = Inbox::default();
            for piece in &pieces {
                inbox.push(piece);
            }
            inbox.push(&vec![b'x'; MAX_LINE_BYTES + 10]);
            prop_assert!(inbox.line.len() <= MAX_LINE_BYTES);
        }
    }
}
