//! Certificate requests of public peers (platform reference, section 9.4): SCALE, signed by the key that
//! the certificate is for.

use cloister_evidence::report_data::{self, ReportData};
use parity_scale_codec::{Decode, Encode};
use rcgen::SigningKey as _;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use x509_parser::oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY};
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo};

use crate::carried::{CarriedEvidence, InvalidEvidence};
use crate::{AttestedKey, RaTlsError};

const CONFIRMATION: &str = "please sign cert:";
/// Longest request that is read, in bytes.
pub const MAX_REQUEST_BYTES: usize = 256 << 10;
/// Most alternative names of a request.
pub const MAX_REQUEST_NAMES: usize = 64;
const MAX_PUBLIC_KEY_BYTES: usize = 256;
const MAX_TEXT_BYTES: usize = 256;

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRequest {
    /// Longer than [`MAX_REQUEST_BYTES`], or not of the version's form.
    #[error("not a certificate request of at most {MAX_REQUEST_BYTES} bytes")]
    Malformed,
    /// Some other document that its key signed.
    #[error("the request does not ask for a certificate")]
    Confirmation,
    /// Names that no certificate needs.
    #[error("the request has more than {MAX_REQUEST_NAMES} names, or one of them is too long")]
    Names,
    /// Not an ECDSA P-256 key, or not a signature by it.
    #[error("the request is not signed by the key that it is for")]
    Signature,
    /// Its evidence cannot be read.
    #[error("the request's evidence cannot be used")]
    Evidence(#[from] InvalidEvidence),
}

/// What the certificate shall be like.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[expect(clippy::struct_excessive_bools, reason = "they are those of the wire form")]
pub struct RequestedCertificate {
    /// Organisation.
    pub organization: Option<String>,
    /// Common name.
    pub subject: String,
    /// Host names.
    pub alternative_names: Vec<String>,
    /// For TLS servers.
    pub server: bool,
    /// For TLS clients.
    pub client: bool,
    /// Whether the certificate shall carry the evidence.
    pub with_evidence: bool,
    /// Whether it shall carry what is known about the application.
    pub with_app_info: bool,
    /// First second of validity, seconds since 1970; the issuer's choice when absent.
    pub not_before: Option<u64>,
    /// Last second of validity, seconds since 1970; the issuer's choice when absent.
    pub not_after: Option<u64>,
}

/// A request of the second version. Its evidence is not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    public_key: Vec<u8>,
    certificate: RequestedCertificate,
    attestation: Vec<u8>,
}

impl CertificateRequest {
    /// A request for `key` with a versioned attestation over its [`AttestedKey::report_data`].
    #[must_use]
    pub fn new(key: &AttestedKey, certificate: RequestedCertificate, attestation: Vec<u8>) -> Self {
        Self { public_key: key.public_key().to_vec(), certificate, attestation }
    }

    /// The bytes that are sent, and their signature by `key`, which must be the one that the request is
    /// for: ECDSA P-256 with SHA-256, DER.
    pub fn sign(&self, key: &AttestedKey) -> Result<(Vec<u8>, Vec<u8>), RaTlsError> {
        let bytes = self.encode();
        let signature = key.pair().sign(&bytes)?;
        Ok((bytes, signature))
    }

    /// The bytes that are sent and signed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = (CONFIRMATION, &self.public_key, &self.certificate).encode();
        bytes.extend_from_slice(&self.attestation);
        bytes
    }

    /// Reads a request and checks that the key it is for signed it: ECDSA P-256 with SHA-256, the
    /// signature in DER. The evidence is still to be verified.
    pub fn decode(bytes: &[u8], signature: &[u8]) -> Result<Self, InvalidRequest> {
        if bytes.len() > MAX_REQUEST_BYTES {
            return Err(InvalidRequest::Malformed);
        }
        let mut input = bytes;
        let confirmation = String::decode(&mut input).map_err(|_| InvalidRequest::Malformed)?;
        if confirmation != CONFIRMATION {
            return Err(InvalidRequest::Confirmation);
        }
        let public_key = Vec::<u8>::decode(&mut input).map_err(|_| InvalidRequest::Malformed)?;
        let certificate = RequestedCertificate::decode(&mut input).map_err(|_| InvalidRequest::Malformed)?;
        check_signature(&public_key, bytes, signature)?;
        check_names(&certificate)?;
        Ok(Self { public_key, certificate, attestation: input.to_vec() })
    }

    /// `SubjectPublicKeyInfo` of the key that the certificate is for, DER.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// What the evidence must be made over.
    #[must_use]
    pub fn report_data(&self) -> ReportData {
        report_data::of_tls_key(&self.public_key)
    }

    /// What the certificate shall be like.
    #[must_use]
    pub const fn certificate(&self) -> &RequestedCertificate {
        &self.certificate
    }

    /// The versioned attestation, encoded.
    #[must_use]
    pub fn attestation(&self) -> &[u8] {
        &self.attestation
    }

    /// The evidence, unverified.
    pub fn evidence(&self) -> Result<CarriedEvidence, InvalidRequest> {
        Ok(CarriedEvidence::from_attestation(&self.attestation)?)
    }
}

fn check_signature(public_key: &[u8], bytes: &[u8], signature: &[u8]) -> Result<(), InvalidRequest> {
    if public_key.len() > MAX_PUBLIC_KEY_BYTES {
        return Err(InvalidRequest::Signature);
    }
    let Ok(([], key)) = SubjectPublicKeyInfo::from_der(public_key) else {
        return Err(InvalidRequest::Signature);
    };
    let curve = key.algorithm.parameters.as_ref().and_then(|curve| curve.as_oid().ok());
    if key.algorithm.algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY || curve != Some(OID_EC_P256) {
        return Err(InvalidRequest::Signature);
    }
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &key.subject_public_key.data)
        .verify(bytes, signature)
        .map_err(|_| InvalidRequest::Signature)
}

fn check_names(certificate: &RequestedCertificate) -> Result<(), InvalidRequest> {
    let texts =
        certificate.alternative_names.iter().chain([&certificate.subject]).chain(&certificate.organization);
    if certificate.alternative_names.len() > MAX_REQUEST_NAMES
        || texts.into_iter().any(|text| text.len() > MAX_TEXT_BYTES)
    {
        return Err(InvalidRequest::Names);
    }
    Ok(())
}
