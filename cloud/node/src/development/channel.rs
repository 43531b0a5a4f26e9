//! The node's end of a VM's channel to its hardware.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_development_tee::{ExtendError, MachineRegisters};
use cloister_evidence::BootLog;
use cloister_evidence::report_data::ReportData;
use cloister_guest_channel::tee::{Call, MAX_LINE_BYTES, Outcome, Request, Response};
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio_util::codec::{FramedRead, LinesCodec};

use super::DevelopmentPlatform;

/// Pause before the channel is opened again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);
/// Shortest time from one line to the next: a guest that says more is slowed down.
const CALL_PAUSE: Duration = Duration::from_millis(5);
/// How long a question for a quote waits for the platform's certificate: less than guests wait for answers.
const CERTIFICATE_PATIENCE: Duration = Duration::from_secs(15);
/// What a guest is told when only the node's log may say more.
const NODE_FAILED: &str = "the node cannot keep the registers";

/// Answers the guest for ever, one question after the other. `registers` is the file that the VM's launch
/// made; whoever takes over a running VM goes on with what is in it.
pub(crate) async fn serve(socket: &Path, registers: &Path, platform: &DevelopmentPlatform) -> ! {
    let registers = MachineRegisters::recover(registers).inspect_err(|error| {
        tracing::error!(error = error as &dyn std::error::Error, "cannot recover the registers of a VM");
    });
    let mut tee = Tee { registers: registers.ok().flatten(), platform, waited_for: None };
    loop {
        if let Ok(stream) = UnixStream::connect(socket).await {
            exchange(stream, &mut tee).await;
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

async fn exchange(stream: UnixStream, tee: &mut Tee<'_>) {
    let (read, mut write) = stream.into_split();
    let mut lines = FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE_BYTES));
    while let Some(Ok(line)) = lines.next().await {
        // The first line may be the rest of one that an earlier reader began.
        if let Some(response) = tee.respond(&line).await {
            let Ok(answer) = serde_json::to_string(&response) else { return };
            if write.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(CALL_PAUSE).await;
    }
}

/// The hardware of one VM.
struct Tee<'a> {
    /// `None` for a VM that was launched without.
    registers: Option<MachineRegisters>,
    platform: &'a DevelopmentPlatform,
    /// The last question that waited for the platform's certificate in vain. The guest asked it again
    /// meanwhile; those copies do not wait as well, or later questions would get no answer in time.
    waited_for: Option<u64>,
}

/// What every question has.
#[derive(Deserialize)]
struct Numbered {
    id: u64,
}

impl Tee<'_> {
    /// The answer to a line; `None` when it is no question.
    async fn respond(&mut self, line: &str) -> Option<Response> {
        let Numbered { id } = serde_json::from_str(line).ok()?;
        let outcome = match serde_json::from_str::<Request>(line) {
            Ok(request) => self.call(id, request.call).await.unwrap_or_else(refused),
            Err(_) => refused("the call is unknown or malformed"),
        };
        Some(Response { id, outcome })
    }

    async fn call(&mut self, id: u64, call: Call) -> Result<Outcome, String> {
        let registers = self
            .registers
            .as_mut()
            .ok_or("the VM was launched without registers, or they were lost; launch it again")?;
        match call {
            Call::BootLog => {
                let log = BootLog::encode(registers.boot_events()).map_err(|error| error.to_string())?;
                Ok(Outcome::BootLog { log: BASE64_STANDARD.encode(log) })
            }
            Call::Extend { register, index, digest } => {
                let digest = digest.parse().map_err(|_| "a digest has 96 hex digits")?;
                registers.extend(register, index, digest).map_err(|error| reason(&error))?;
                Ok(Outcome::Extended)
            }
            Call::Quote { report_data } => {
                let mut data: ReportData = [0; 64];
                hex::decode_to_slice(&report_data, &mut data)
                    .map_err(|_| "report data has 128 hex digits")?;
                let has_waited = self.waited_for == Some(id);
                let patience = if has_waited { Duration::ZERO } else { CERTIFICATE_PATIENCE };
                let Some(platform) = self.platform.certified(patience).await else {
                    self.waited_for = Some(id);
                    return Err("the platform has no certificate: the control plane gave none yet".to_owned());
                };
                let quote = platform.quote(&registers.report(data)).map_err(|error| {
                    tracing::error!(error = &error as &dyn std::error::Error, "cannot sign a quote");
                    "the node cannot sign"
                })?;
                Ok(Outcome::Quote { quote: hex::encode(quote) })
            }
        }
    }
}

fn refused(reason: impl Into<String>) -> Outcome {
    Outcome::Refused { reason: reason.into() }
}

/// What the guest is told; paths of the host are for the node's log.
fn reason(error: &ExtendError) -> String {
    if let ExtendError::Tee(error) = error {
        tracing::error!(error = error as &dyn std::error::Error, "cannot extend a register of a VM");
        return NODE_FAILED.to_owned();
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use cloister_evidence::{ImageMeasurement, Measurement};
    use tokio::io::{AsyncBufReadExt, BufReader, Lines};
    use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
    use tokio::time::Instant;

    use super::*;

    struct Guest {
        answers: Lines<BufReader<OwnedReadHalf>>,
        questions: OwnedWriteHalf,
    }

    impl Guest {
        async fn say(&mut self, text: &str) {
            self.questions.write_all(text.as_bytes()).await.unwrap();
        }

        async fn ask(&mut self, id: u64, call: Call) {
            let line = serde_json::to_string(&Request { id, call }).unwrap();
            self.say(&format!("{line}\n")).await;
        }

        async fn hears(&mut self) -> Response {
            serde_json::from_str(&self.answers.next_line().await.unwrap().unwrap()).unwrap()
        }
    }

    /// Lets a guest talk to a platform without a certificate.
    async fn with_guest(talk: impl AsyncFnOnce(Guest)) {
        let dir = tempfile::tempdir().unwrap();
        let platform = DevelopmentPlatform::open(dir.path().join("platform")).unwrap();
        let any = Measurement::of("any");
        let image = ImageMeasurement { firmware: any, kernel: any, initrd: any, cmdline: String::new() };
        let registers =
            MachineRegisters::launch(&dir.path().join("registers"), &image, 1, 1 << 30, [0; 48]).unwrap();
        let mut tee = Tee { registers: Some(registers), platform: &platform, waited_for: None };
        let (node, guest) = UnixStream::pair().unwrap();
        let (read, questions) = guest.into_split();
        let guest = Guest { answers: BufReader::new(read).lines(), questions };
        tokio::join!(exchange(node, &mut tee), talk(guest));
    }

    /// As long as guests wait for an answer, asking again each second.
    const GUESTS_PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_certificate_holds_no_later_question_up() {
        with_guest(async |mut guest| {
            let begin = Instant::now();
            for _ in 0..20 {
                guest.ask(1, Call::Quote { report_data: "00".repeat(64) }).await;
            }
            guest.ask(2, Call::Extend { register: 3, index: 0, digest: "00".repeat(48) }).await;
            for _ in 0..20 {
                let Response { id: 1, outcome: Outcome::Refused { reason } } = guest.hears().await else {
                    panic!("no refusal")
                };
                assert!(reason.contains("certificate"), "{reason}");
            }
            assert!(begin.elapsed() > GUESTS_PATIENCE / 2, "it is waited for");
            assert_eq!(guest.hears().await, Response { id: 2, outcome: Outcome::Extended });
            assert!(begin.elapsed() < GUESTS_PATIENCE, "{:?}", begin.elapsed());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_anything_is_slowed_down() {
        with_guest(async |mut guest| {
            let begin = Instant::now();
            guest.say(&"x\n".repeat(1000)).await;
            guest.ask(1, Call::BootLog).await;
            assert!(matches!(guest.hears().await.outcome, Outcome::BootLog { .. }));
            assert!(begin.elapsed() >= CALL_PAUSE * 1000, "{:?}", begin.elapsed());
        })
        .await;
    }
}
