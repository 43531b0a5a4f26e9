//! The evidence of a CVM, asked for now, as answers show it.

use std::time::Duration;

use cloister_evidence::{EventLog, Quote};
use cloister_management_api::{AppCertificate, AttestedEvent, EvidenceVerdict, TcbInfo};
use cloister_verifier::VerifiedQuote;

use super::certificates::app_certificates;
use super::wire;
use crate::api::Api;
use crate::api::slots::Slots;
use crate::evidence::{GuestEvidence, Nonce, Unjudged, Verdict, examine};
use crate::operations::CvmStatus;
use crate::store::CvmRow;

/// Evidence of one CVM that is asked for at a time by its workspace, and as often by everybody.
pub(crate) const MAX_READS: usize = 4;
/// How long a guest may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a CVM presented, and what it is worth.
pub(crate) struct Presented {
    evidence: GuestEvidence,
    verdict: Verdict,
    /// The verified quote; only when the verdict is good.
    pub(crate) quote: Option<VerifiedQuote>,
}

/// Asks a CVM for its evidence, in a slot of `reads`. The reason, for people, when there is none.
pub(crate) async fn presented(api: &Api, cvm: &CvmRow, reads: &Slots) -> Result<Presented, String> {
    if matches!(cvm.status, CvmStatus::Stopped | CvmStatus::Removing) {
        return Err(format!("the CVM is {}", cvm.status));
    }
    let too_many = || "too many requests for this CVM's evidence are under way".to_owned();
    let _slot = reads.take(cvm.id).ok_or_else(too_many)?;
    let Ok(bytes) = api.random.bytes() else { return Err("no randomness for a nonce".to_owned()) };
    let nonce = Nonce(bytes);
    let asked = api.fleet.attestation(cvm.node_id, cvm.vm_uuid, nonce.0);
    let document = match tokio::time::timeout(PATIENCE, asked).await {
        Ok(document) => document.map_err(|error| error.to_string())?,
        Err(_) => return Err("the guest did not answer in time".to_owned()),
    };
    let no_quote = || "the guest presented no quote".to_owned();
    let evidence = GuestEvidence::read(document).ok_or_else(no_quote)?;
    let (verdict, quote) = match examine(api, &evidence, cvm, nonce).await {
        Ok(examined) => (examined.verdict, examined.quote),
        Err(error @ (Unjudged::Collateral(_) | Unjudged::Store(_) | Unjudged::Register(_))) => {
            tracing::warn!(
                cvm_id = cvm.id,
                error = &error as &dyn std::error::Error,
                "a CVM's evidence cannot be judged"
            );
            (Verdict::refused(vec![error.to_string()]), None)
        }
        Err(error) => (Verdict::refused(vec![error.to_string()]), None),
    };
    Ok(Presented { evidence, verdict, quote })
}

impl Presented {
    /// The quote's bytes.
    pub(crate) fn quote_bytes(&self) -> &[u8] {
        &self.evidence.quote
    }

    /// Our verdict.
    pub(crate) fn verdict(&self) -> EvidenceVerdict {
        wire::evidence_verdict(&self.verdict)
    }

    /// The certificates of the guest agent.
    pub(crate) fn certificates(&self) -> Option<Vec<AppCertificate>> {
        self.evidence.document.app_cert.as_deref().map(app_certificates)
    }

    /// The event log.
    pub(crate) fn events(&self) -> Vec<AttestedEvent> {
        events(&self.evidence.event_log)
    }

    /// Security versions of the TEE that the quote names, hex.
    pub(crate) fn tee_tcb_svn(&self) -> Option<String> {
        Some(hex::encode(Quote::parse(&self.evidence.quote).ok()?.td_report()?.tee_tcb_svn))
    }

    /// What the quote says was measured; `None` when it is that of no virtual machine.
    pub(crate) fn tcb_info(&self, cvm: &CvmRow) -> Option<TcbInfo> {
        let quote = Quote::parse(&self.evidence.quote).ok()?;
        let td = quote.td_report()?;
        Some(TcbInfo {
            mrtd: td.mrtd.to_string(),
            rootfs_hash: None,
            rtmr0: td.rtmr0.to_string(),
            rtmr1: td.rtmr1.to_string(),
            rtmr2: td.rtmr2.to_string(),
            rtmr3: td.rtmr3.to_string(),
            event_log: self.events(),
            app_compose: cvm.app_compose.clone(),
        })
    }
}

fn events(log: &EventLog) -> Vec<AttestedEvent> {
    let wire = |entry: &cloister_evidence::EventLogEntry| AttestedEvent {
        imr: entry.imr,
        event_type: entry.event_type,
        digest: entry.digest.clone(),
        event: entry.event.clone(),
        event_payload: entry.event_payload.clone(),
    };
    log.entries().iter().map(wire).collect()
}
