//! Evidence over keys, as certificates carry it.

use std::sync::Arc;

use cloister_attester::{Attester, Evidence, Platform};
use cloister_evidence::report_data::ReportData;
use cloister_evidence::{
    EventLogEntry, InvalidAttestation, PlatformEvidence, RUNTIME_EVENT_TYPE, RuntimeEvent,
    VersionedAttestation,
};
use cloister_ra_tls::{AttestedKey, MAX_EVENT_LOG_BYTES};

use super::certificates::CertificateError;
use super::document::event_log_json;

/// Whoever makes evidence, and the description that goes with it.
#[derive(Debug, Clone)]
pub(crate) struct Prover {
    pub(crate) attester: Attester,
    /// The machine's description as the node gave it, JSON text; unmeasured.
    pub(crate) vm_config: String,
}

impl Prover {
    /// Evidence over a key.
    pub(crate) async fn evidence_for(
        &self,
        key: &AttestedKey,
    ) -> Result<cloister_ra_tls::Evidence, CertificateError> {
        let report_data = key.report_data();
        let mut evidence = self.attester.quote(&report_data).await?;
        let stripped = evidence.event_log.iter().map(without_boot_payload).collect();
        evidence.event_log = Arc::new(stripped);
        let versioned = self.versioned(&evidence, &report_data)?;
        let event_log = event_log_json(&evidence.event_log);
        // A long log is told by the versioned form alone.
        let legacy = self.attester.platform().makes_tdx_quotes() && event_log.len() <= MAX_EVENT_LOG_BYTES;
        let quote = legacy.then_some(evidence.quote);
        Ok(cloister_ra_tls::Evidence { quote, event_log, attestation: Some(versioned) })
    }

    /// The versioned form of evidence.
    pub(super) fn versioned(
        &self,
        evidence: &Evidence,
        report_data: &ReportData,
    ) -> Result<Vec<u8>, InvalidAttestation> {
        let quote = evidence.quote.clone();
        let platform = match self.attester.platform() {
            Platform::Tdx | Platform::Development => {
                PlatformEvidence::Tdx { quote, event_log: evidence.event_log.to_vec() }
            }
            Platform::SevSnp => {
                PlatformEvidence::SevSnp { report: quote, certificates: Vec::new(), mr_config: String::new() }
            }
            Platform::Nitro => PlatformEvidence::NitroEnclave { document: quote },
        };
        let attestation = VersionedAttestation {
            evidence: platform,
            runtime_events: evidence.event_log.iter().filter_map(runtime_event).collect(),
            report_data: *report_data,
            config: self.vm_config.clone(),
        };
        attestation.encode()
    }
}

/// Boot events are checked by their digests; what the firmware logged with them can be long.
fn without_boot_payload(entry: &EventLogEntry) -> EventLogEntry {
    let mut entry = entry.clone();
    if entry.event_type != RUNTIME_EVENT_TYPE {
        entry.event_payload.clear();
    }
    entry
}

fn runtime_event(entry: &EventLogEntry) -> Option<RuntimeEvent> {
    let is_runtime = entry.event_type == RUNTIME_EVENT_TYPE;
    let payload = is_runtime.then(|| hex::decode(&entry.event_payload).ok())??;
    Some(RuntimeEvent::new(entry.event.as_str(), payload))
}
