use cloister_app_compose::AppId;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

use crate::carried::{CarriedEvidence, InvalidEvidence};
use crate::extensions::{MAX_USAGE_BYTES, content, oid};

/// Longest certificate that is read, in bytes; a TLS handshake message ends there too.
pub const MAX_CERTIFICATE_BYTES: usize = 64 << 10;

/// Why a certificate cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InvalidCertificate {
    /// Not one X.509 certificate of acceptable length.
    #[error("not an X.509 certificate of at most {MAX_CERTIFICATE_BYTES} bytes")]
    Malformed,
    /// An extension of ours twice, or one that does not hold what it should.
    #[error("the certificate's {0} is malformed, too long or there twice")]
    Extension(&'static str),
    /// Nothing in it proves anything.
    #[error("the certificate carries no evidence")]
    NoEvidence,
    /// Its evidence cannot be read.
    #[error("the certificate's evidence cannot be used")]
    Evidence(#[from] InvalidEvidence),
}

/// What a certificate says. Nothing of it is verified: the evidence is to be verified, and the rest are
/// claims of whoever issued the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateEvidence {
    /// The holder's `SubjectPublicKeyInfo`, DER; what the evidence must be made over.
    pub public_key: Vec<u8>,
    /// The evidence.
    pub evidence: CarriedEvidence,
    /// Application, as the issuer says.
    pub app_id: Option<AppId>,
    /// Purpose, as the issuer says.
    pub usage: Option<String>,
    /// First second of validity.
    pub not_before: Timestamp,
    /// Last second of validity.
    pub not_after: Timestamp,
}

/// Reads the evidence in a certificate (DER). A versioned attestation is preferred over quote and event
/// log; a certificate with both forms is refused unless they say the same.
pub fn inspect(der: &[u8]) -> Result<CertificateEvidence, InvalidCertificate> {
    read(&parse(der)?)
}

/// Reads the evidence in the first certificate of a PEM text.
pub fn inspect_pem(pem: &str) -> Result<CertificateEvidence, InvalidCertificate> {
    inspect(&CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| InvalidCertificate::Malformed)?)
}

pub(crate) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, InvalidCertificate> {
    if der.len() > MAX_CERTIFICATE_BYTES {
        return Err(InvalidCertificate::Malformed);
    }
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(InvalidCertificate::Malformed),
    }
}

pub(crate) fn read(certificate: &X509Certificate<'_>) -> Result<CertificateEvidence, InvalidCertificate> {
    let extension = |oid, name| extension(certificate, oid, name);
    let legacy = match (extension(oid::QUOTE, "quote")?, extension(oid::EVENT_LOG, "event log")?) {
        (Some(quote), Some(event_log)) => Some(CarriedEvidence::from_quote(quote, &event_log)?),
        (None, None) => None,
        _ => return Err(InvalidEvidence::HalfAPair.into()),
    };
    let versioned = extension(oid::ATTESTATION, "attestation")?
        .map(|attestation| CarriedEvidence::from_attestation(&attestation))
        .transpose()?;
    let evidence = match (versioned, legacy) {
        (Some(versioned), Some(legacy)) => versioned.agreeing_with(&legacy)?,
        (Some(evidence), None) | (None, Some(evidence)) => evidence,
        (None, None) => return Err(InvalidCertificate::NoEvidence),
    };
    let malformed = |name| move || InvalidCertificate::Extension(name);
    let app_id = extension(oid::APP_ID, "application id")?
        .map(|id| id.try_into().map(AppId::from_bytes).map_err(|_| malformed("application id")()))
        .transpose()?;
    Ok(CertificateEvidence {
        public_key: certificate.public_key().raw.to_vec(),
        evidence,
        app_id,
        usage: usage(certificate)?,
        not_before: timestamp(certificate.validity().not_before)?,
        not_after: timestamp(certificate.validity().not_after)?,
    })
}

/// What the issuer says that the certificate is for.
pub(crate) fn usage(certificate: &X509Certificate<'_>) -> Result<Option<String>, InvalidCertificate> {
    extension(certificate, oid::USAGE, "usage")?
        .map(|usage| {
            String::from_utf8(usage)
                .ok()
                .filter(|usage| usage.len() <= MAX_USAGE_BYTES)
                .ok_or(InvalidCertificate::Extension("usage"))
        })
        .transpose()
}

fn extension(
    certificate: &X509Certificate<'_>,
    oid: &[u64],
    name: &'static str,
) -> Result<Option<Vec<u8>>, InvalidCertificate> {
    let invalid = || InvalidCertificate::Extension(name);
    let oid = Oid::from(oid).map_err(|_| invalid())?;
    // An error here is an extension that is there twice.
    let extension = certificate.get_extension_unique(&oid).map_err(|_| invalid())?;
    extension.map(|extension| content(extension.value).ok_or_else(invalid)).transpose()
}

fn timestamp(time: ASN1Time) -> Result<Timestamp, InvalidCertificate> {
    Timestamp::from_second(time.timestamp()).map_err(|_| InvalidCertificate::Malformed)
}
