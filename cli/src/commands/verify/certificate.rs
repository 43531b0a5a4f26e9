//! Evidence in TLS certificates.

use cloister_ra_tls::{CarriedEvidence, CertificateEvidence, InvalidCertificate};
use cloister_verifier::appraisal::{AttestedCertificate, Connection};

use crate::failure::Failure;

/// What a certificate that a connection ended at says about the connection. `must` is whether the
/// connection had to end inside the CVM.
pub(super) fn connected(der: &[u8], must: bool) -> Connection {
    match cloister_ra_tls::inspect(der) {
        Ok(evidence) => attested(evidence).map_or_else(
            |_| Connection::Unattested("the evidence in its certificate cannot be used".to_owned()),
            Connection::Attested,
        ),
        Err(InvalidCertificate::NoEvidence) if !must => Connection::Terminated,
        Err(error) => Connection::Unattested(error.to_string()),
    }
}

/// The same for one that was recorded.
pub(super) fn recorded(pem: &str) -> Connection {
    let evidence = cloister_ra_tls::inspect_pem(pem).map_err(|error| error.to_string());
    let attested = evidence.and_then(|evidence| attested(evidence).map_err(|failure| failure.message));
    attested.map_or_else(Connection::Unattested, Connection::Recorded)
}

fn attested(certificate: CertificateEvidence) -> Result<AttestedCertificate, Failure> {
    let CarriedEvidence::Tdx { quote, event_log, .. } = certificate.evidence;
    let event_log = serde_json::to_string(&event_log)
        .map_err(|error| Failure::local("the certificate's event log cannot be used", error))?;
    Ok(AttestedCertificate {
        public_key_info: certificate.public_key,
        quote,
        event_log,
        not_before: certificate.not_before,
        not_after: certificate.not_after,
    })
}
