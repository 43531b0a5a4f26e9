//! Evidence of the machine. Anybody may ask for it, and it is slow to make: callers wait in one queue of bounded
//! length.

use std::fmt;
use std::time::{Duration, Instant};

use cloister_agent_client::{Agent, Info, OwnEvidence};
use cloister_evidence::VersionedAttestation;
use cloister_evidence::report_data::ReportData;
use tokio::sync::{OnceCell, Semaphore};
use tracing::warn;

use crate::accounting::Window;
use crate::error::{GatewayError, Kind};

/// Callers that may wait or be served.
const QUEUE: usize = 32;
/// Reports that are made in a minute.
const PER_MINUTE: u64 = 600;
/// Longest wait in the queue.
const PATIENCE: Duration = Duration::from_secs(20);

/// The machine's evidence, and what kind it is.
#[derive(Debug)]
pub(super) struct Proven {
    pub(super) evidence: OwnEvidence,
    /// `tdx` or `sev_snp`.
    pub(super) tee_type: &'static str,
}

/// Asks the guest agent.
pub(super) struct Prover {
    agent: Agent,
    /// What the machine says about itself, once it could be asked.
    info: OnceCell<Info>,
    places: Semaphore,
    /// The agent makes one at a time.
    turn: Semaphore,
    window: Window,
    started: Instant,
}

impl fmt::Debug for Prover {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Prover").field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl Prover {
    pub(super) async fn start(agent: Agent) -> Self {
        let prover = Self {
            agent,
            info: OnceCell::new(),
            places: Semaphore::new(QUEUE),
            turn: Semaphore::new(1),
            window: Window::new(PER_MINUTE),
            started: Instant::now(),
        };
        prover.info().await;
        prover
    }

    /// `app-id:0x…` of what was measured, if the machine told.
    pub(super) fn subject(&self) -> Option<String> {
        let info = self.info.get()?;
        (!info.app_id.is_empty()).then(|| format!("app-id:0x{}", info.app_id))
    }

    /// The compose document, if the machine tells it. Development agents of single processes have none.
    pub(super) async fn app_compose(&self) -> Option<String> {
        let info = self.info().await?;
        (!info.app_compose.is_empty()).then(|| info.app_compose.clone())
    }

    async fn info(&self) -> Option<&Info> {
        let asked = self.info.get_or_try_init(|| self.agent.info()).await;
        asked.inspect_err(|error| warn!(%error, "the guest agent does not describe the machine")).ok()
    }

    /// Evidence over bytes of our choice.
    pub(super) async fn prove(&self, report_data: &ReportData) -> Result<Proven, GatewayError> {
        let _place = self.places.try_acquire().map_err(|_| busy(1))?;
        let decision = self.window.take(1, self.started.elapsed());
        if !decision.admitted {
            return Err(busy(decision.reset_s));
        }
        let waited = tokio::time::timeout(PATIENCE, self.turn.acquire()).await;
        let _turn = waited.map_err(|_| busy(1))?.map_err(|_| unproved())?;
        let evidence = self.agent.quote(report_data).await.map_err(|error| {
            warn!(%error, "the guest agent gives no evidence");
            unproved()
        })?;
        let tee_type = tee_type(&evidence).ok_or_else(|| {
            warn!("the guest agent gives evidence of a platform that has no name in reports");
            unproved()
        })?;
        Ok(Proven { evidence, tee_type })
    }
}

fn tee_type(evidence: &OwnEvidence) -> Option<&'static str> {
    let Some(attestation) = &evidence.attestation else { return Some("tdx") };
    VersionedAttestation::decode(attestation).ok()?.evidence.tee_type()
}

pub(super) fn busy(seconds: u64) -> GatewayError {
    GatewayError {
        retry_after: Some(seconds),
        ..GatewayError::new(Kind::TooManyReports, "Too many attestation reports are asked for at once")
    }
}

fn unproved() -> GatewayError {
    GatewayError::new(Kind::Unavailable, "The machine's evidence cannot be had now. Please try again later.")
}
