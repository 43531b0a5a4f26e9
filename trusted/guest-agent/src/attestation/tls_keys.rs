//! Certificates for the application's own TLS keys.

use cloister_ra_tls::{AttestedKey, CertificateRequest, RequestedCertificate};
use jiff::Timestamp;

use super::{Attestation, CERTIFICATES_PATIENCE, CertificateError};

/// What `GetTlsKey` is asked for.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent flag of the request")]
pub(crate) struct TlsKeyRequest {
    pub(crate) subject: String,
    pub(crate) alt_names: Vec<String>,
    /// The certificate carries evidence for its key.
    pub(crate) attested: bool,
    pub(crate) server: bool,
    pub(crate) client: bool,
    /// The certificate names the application.
    pub(crate) with_app_info: bool,
    /// Unix time in seconds.
    pub(crate) not_before: Option<u64>,
    /// Unix time in seconds.
    pub(crate) not_after: Option<u64>,
}

impl Attestation {
    /// A certificate for a key of the application: the chain, PEM, leaf first. The KMS signs it where there
    /// is one, so that it holds in all CVMs of the application; else the authority of this boot does.
    pub(crate) async fn tls_certificate(
        &self,
        key: &AttestedKey,
        request: &TlsKeyRequest,
        now: Timestamp,
    ) -> Result<Vec<String>, CertificateError> {
        let Some(keys) = &self.keys else {
            let certificates = self.certificates(CERTIFICATES_PATIENCE).await;
            let certificates = certificates.ok_or(CertificateError::NotYet)?;
            return certificates.sign(self, key, request, now).await;
        };
        if request.not_before.zip(request.not_after).is_some_and(|(before, after)| before >= after) {
            return Err(CertificateError::Dates);
        }
        let certificate = RequestedCertificate {
            organization: None,
            subject: request.subject.clone(),
            alternative_names: request.alt_names.clone(),
            server: request.server,
            client: request.client,
            with_evidence: request.attested,
            with_app_info: request.with_app_info,
            not_before: request.not_before,
            not_after: request.not_after,
        };
        let attestation = self.evidence_for(key).await?.attestation.unwrap_or_default();
        let (request, signature) = CertificateRequest::new(key, certificate, attestation).sign(key)?;
        Ok(keys.signer.sign(request, signature).await?)
    }
}
