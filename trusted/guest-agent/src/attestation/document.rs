//! The evidence in the forms that others read.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_attester::{AttestError, Evidence, Platform};
use cloister_evidence::report_data::ReportData;
use cloister_evidence::{AttestationDocument, EventLogEntry, InvalidAttestation};
use cloister_ra_tls::AttestedKey;

use super::certificates::CertificateError;
use super::{Attestation, Certificates, Prover};

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
        self.prover().versioned(evidence, report_data)
    }

    /// Evidence over a key, as certificates carry it.
    pub(super) async fn evidence_for(
        &self,
        key: &AttestedKey,
    ) -> Result<cloister_ra_tls::Evidence, CertificateError> {
        self.prover().evidence_for(key).await
    }

    fn prover(&self) -> Prover {
        Prover { attester: self.attester.clone(), vm_config: self.facts.vm_config.clone() }
    }
}

/// The JSON text of a log.
pub(crate) fn event_log_json(entries: &[EventLogEntry]) -> String {
    serde_json::to_string(entries).unwrap_or_default()
}
