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
/// Shortest time from an answer to the next question: a guest that asks more is slowed down, not served.
const CALL_PAUSE: Duration = Duration::from_millis(5);
/// What a guest is told when only the node's log may say more.
const NODE_FAILED: &str = "the node cannot keep the registers";

/// Answers the guest for ever, one question after the other. `registers` is the file that the VM's launch
/// made; whoever takes over a running VM goes on with what is in it.
pub(crate) async fn serve(socket: &Path, registers: &Path, platform: &DevelopmentPlatform) -> ! {
    let registers = MachineRegisters::recover(registers).inspect_err(|error| {
        tracing::error!(error = error as &dyn std::error::Error, "cannot recover the registers of a VM");
    });
    let mut tee = Tee { registers: registers.ok().flatten(), platform };
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
        let Some(response) = tee.respond(&line).await else { continue };
        let Ok(answer) = serde_json::to_string(&response) else { return };
        if write.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
            return;
        }
        tokio::time::sleep(CALL_PAUSE).await;
    }
}

/// The hardware of one VM.
struct Tee<'a> {
    /// `None` for a VM that was launched without.
    registers: Option<MachineRegisters>,
    platform: &'a DevelopmentPlatform,
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
            Ok(request) => self.call(request.call).await.unwrap_or_else(refused),
            Err(_) => refused("the call is unknown or malformed"),
        };
        Some(Response { id, outcome })
    }

    async fn call(&mut self, call: Call) -> Result<Outcome, String> {
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
                let platform = self
                    .platform
                    .certified()
                    .await
                    .ok_or("the platform has no certificate: the control plane does not give one")?;
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
