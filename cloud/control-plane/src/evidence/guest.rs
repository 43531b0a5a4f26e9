//! The evidence of a CVM: asked for with a fresh nonce, and compared with what the installation knows.

use cloister_app_compose::ComposeHash;
use cloister_evidence::{AppInfo, AttestationDocument, EventLog, Registers};
use cloister_verifier::{TrustRoot, VerifiedQuote};

use super::verdict::{Judged, Unjudged, Verdict, judge};
use crate::App;
use crate::store::CvmRow;

/// Bytes that make evidence fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nonce(pub(crate) [u8; 32]);

impl Nonce {
    /// The report data that a quote over it carries.
    pub(crate) fn report_data(self) -> [u8; 64] {
        let mut report_data = [0; 64];
        let (start, _) = report_data.split_at_mut(32);
        start.copy_from_slice(&self.0);
        report_data
    }
}

/// What a guest presented.
#[derive(Debug)]
pub(crate) struct GuestEvidence {
    /// Everything it sent; nothing of it is believed.
    pub(crate) document: AttestationDocument,
    /// Bytes of its quote.
    pub(crate) quote: Vec<u8>,
    /// Its event log; empty when it cannot be read.
    pub(crate) event_log: EventLog,
}

impl GuestEvidence {
    /// Reads what a guest sent; `None` when there is no quote in it.
    pub(crate) fn read(document: AttestationDocument) -> Option<Self> {
        let quote = hex::decode(document.quote.as_deref()?).ok()?;
        let event_log = EventLog::parse(&document.event_log).unwrap_or_default();
        Some(Self { document, quote, event_log })
    }
}

/// Evidence with its verdict.
pub(crate) struct Examined {
    pub(crate) verdict: Verdict,
    /// The verified quote; only when the verdict is good.
    pub(crate) quote: Option<VerifiedQuote>,
}

/// Judges the evidence of a CVM: its quote, that it is fresh, that the event log built its registers, that
/// the log names the compose document, the application and the instance that the CVM is, and that a
/// development platform is that of the CVM's node.
pub(crate) async fn examine(
    app: &App,
    evidence: &GuestEvidence,
    cvm: &CvmRow,
    nonce: Nonce,
) -> Result<Examined, Unjudged> {
    let Judged { verdict, quote } = judge(&app.verifier, &evidence.quote).await?;
    let Some(quote) = quote else { return Ok(Examined { verdict, quote: None }) };
    let mut reasons = differences(&quote, evidence, cvm, nonce);
    if quote.trust_root == TrustRoot::Development && !is_platform_of(app, cvm.node_id, quote.ppid).await? {
        reasons.push("the platform was certified for another node than the CVM's".to_owned());
    }
    if reasons.is_empty() {
        return Ok(Examined { verdict, quote: Some(quote) });
    }
    Ok(Examined { verdict: Verdict::refused(reasons), quote: None })
}

/// Whether our vendor certified a development platform for this node. Hardware is certified for nobody in
/// particular: that a node passes on evidence from elsewhere is noticed only by what else does not fit.
async fn is_platform_of(app: &App, node_id: i64, ppid: [u8; 16]) -> Result<bool, Unjudged> {
    let (Some(vendor), Some(node)) = (app.development_vendor.clone(), app.store.node(node_id).await?) else {
        return Ok(false);
    };
    let registered = tokio::task::spawn_blocking(move || vendor.node_of(&ppid)).await;
    let registered = registered.map_err(|_| Unjudged::Busy)??;
    Ok(registered.is_some_and(|name| name == node.name))
}

/// What does not fit, in plain words.
fn differences(quote: &VerifiedQuote, evidence: &GuestEvidence, cvm: &CvmRow, nonce: Nonce) -> Vec<String> {
    let mut reasons = Vec::new();
    if quote.report_data != nonce.report_data() {
        reasons.push("the quote is not fresh: it was made over other bytes than were asked for".to_owned());
    }
    match &quote.registers {
        Some(registers) => reasons.extend(misbuilt(&evidence.event_log, registers)),
        None => reasons.push("the quote is not that of a virtual machine".to_owned()),
    }
    let info = match AppInfo::from_event_log(&evidence.event_log) {
        Ok(info) => info,
        Err(error) => {
            reasons.push(error.to_string());
            return reasons;
        }
    };
    let expected = ComposeHash::of(cvm.app_compose.as_bytes());
    reasons.extend(difference("compose hash", info.compose_hash, &expected));
    reasons.extend(difference("app id", info.app_id, &cvm.app_id));
    if let Some(expected) = &cvm.instance_id {
        let measured = info.instance_id.map(|instance| instance.to_string());
        reasons.extend(difference("instance id", measured, expected));
    }
    reasons
}

/// The registers that the log does not build. Logs may leave out what the launch measured; what software
/// in the guest measured must be there.
fn misbuilt(log: &EventLog, registers: &Registers) -> Vec<String> {
    let built = match log.builds(registers) {
        Ok(built) => built,
        Err(error) => return vec![error.to_string()],
    };
    let logged = |register: u32| register == 3 || log.entries().iter().any(|entry| entry.imr == register);
    (0u32..)
        .zip(built)
        .filter(|(register, is_built)| !is_built && logged(*register))
        .map(|(register, _)| format!("the event log does not build RTMR {register} of the quote"))
        .collect()
}

fn difference<T: PartialEq + std::fmt::Display>(
    what: &str,
    measured: Option<T>,
    expected: &T,
) -> Option<String> {
    match measured {
        Some(measured) if measured == *expected => None,
        Some(measured) => Some(format!("the {what} is {measured} in the event log, and {expected} here")),
        None => Some(format!("the event log does not say the {what}")),
    }
}
