//! The evidence in the forms that others read.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_attester::{AttestError, Evidence, Platform};
use cloister_evidence::report_data::ReportData;
use cloister_evidence::{
    AttestationDocument, EventLogEntry, InvalidAttestation, PlatformEvidence, RUNTIME_EVENT_TYPE,
    RuntimeEvent, VersionedAttestation,
};

use super::{Attestation, Certificates};

/// Longest wait for the certificate that goes along, which is made before any other quote.
const CERTIFICATES_PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no document.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DocumentError {
    #[error(transparent)]
    Attest(#[from] AttestError),
    #[error("the evidence cannot be written as a versioned attestation")]
    Encode(#[from] InvalidAttestation),
}

impl Attestation {
    /// Everything that a verifier wants, over `report_data`.
    pub(crate) async fn document(
        &self,
        report_data: &ReportData,
    ) -> Result<AttestationDocument, DocumentError> {
        let evidence = self.quote(report_data).await?;
        let platform = self.attester.platform();
        let certificates = self.certificates(CERTIFICATES_PATIENCE).await;
        Ok(AttestationDocument {
            quote: platform.makes_tdx_quotes().then(|| hex::encode(&evidence.quote)),
            event_log: event_log_json(&evidence.event_log),
            report_data: hex::encode(report_data),
            vm_config: self.facts.vm_config.clone(),
            attestation: Some(hex::encode(self.versioned(&evidence, report_data)?)),
            document: (platform == Platform::Nitro).then(|| BASE64_STANDARD.encode(&evidence.quote)),
            app_compose: Some(self.facts.app_compose.clone()),
            app_cert: certificates.as_deref().map(Certificates::agent_pem),
        })
    }

    /// The versioned form.
    pub(crate) fn versioned(
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
            config: self.facts.vm_config.clone(),
        };
        attestation.encode()
    }
}

/// The JSON text of a log.
pub(crate) fn event_log_json(entries: &[EventLogEntry]) -> String {
    serde_json::to_string(entries).unwrap_or_default()
}

fn runtime_event(entry: &EventLogEntry) -> Option<RuntimeEvent> {
    let is_runtime = entry.event_type == RUNTIME_EVENT_TYPE;
    let payload = is_runtime.then(|| hex::decode(&entry.event_payload).ok())??;
    Some(RuntimeEvent::new(entry.event.as_str(), payload))
}
