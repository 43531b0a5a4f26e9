//! The vendor's certificates and revocation lists.

use std::time::Duration;

use jiff::{Timestamp, ToSpan, tz::TimeZone};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason, RevokedCertParams, SerialNumber,
    SubjectPublicKeyInfo,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use yasna::models::ObjectIdentifier;

use crate::TeeError;
use crate::keys::POINT_BYTES;
use crate::vendor::Validity;

const ORGANISATION: &str = "Cloister development TEE";
const YEARS: i64 = 20;

/// One certificate and the key that it certifies.
pub(crate) struct Holder {
    pub(crate) pem: String,
    pub(crate) der: CertificateDer<'static>,
    pub(crate) key_pem: String,
}

impl Holder {
    pub(crate) fn new(pem: String, key_pem: String) -> Result<Self, TeeError> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| TeeError::Malformed("a file that should hold a PEM certificate holds none"))?;
        Ok(Self { pem, der, key_pem })
    }

    pub(crate) fn key(&self) -> Result<KeyPair, TeeError> {
        Ok(KeyPair::from_pem(&self.key_pem)?)
    }

    pub(crate) fn issuer(&self) -> Result<Issuer<'static, KeyPair>, TeeError> {
        Ok(Issuer::from_ca_cert_pem(&self.pem, self.key()?)?)
    }
}

/// What a certificate is for.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    Root,
    PlatformCa,
    TcbSigning,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Root => "Cloister development root, no hardware protection",
            // Verifiers tell the kind of a platform's certificate by the word in it.
            Self::PlatformCa => "Cloister development PCK Platform CA",
            Self::TcbSigning => "Cloister development TCB signing",
        }
    }

    /// Serial number of the only certificate in this role.
    pub(crate) fn serial_number(self) -> SerialNumber {
        SerialNumber::from(match self {
            Self::Root => 1_u64,
            Self::PlatformCa => 2,
            Self::TcbSigning => 3,
        })
    }

    pub(crate) fn params(self, validity: Validity) -> CertificateParams {
        let mut params = subject(self.name(), validity);
        params.serial_number = Some(self.serial_number());
        let signs_certificates = match self {
            Self::Root => Some(1),
            Self::PlatformCa => Some(0),
            Self::TcbSigning => None,
        };
        match signs_certificates {
            Some(depth) => {
                params.is_ca = IsCa::Ca(BasicConstraints::Constrained(depth));
                params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            }
            None => params.key_usages = vec![KeyUsagePurpose::DigitalSignature],
        }
        params
    }
}

/// Parameters of a certificate for `name`.
pub(crate) fn subject(name: &str, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, ORGANISATION);
    params.use_authority_key_identifier_extension = true;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch(validity.from);
    params.not_after = epoch + since_epoch(validity.until);
    params
}

/// A certificate for somebody else's key, an uncompressed P-256 point.
pub(crate) fn certify(
    point: &[u8; POINT_BYTES],
    params: &CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
) -> Result<Certificate, TeeError> {
    let info = yasna::construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_sequence(|writer| {
                writer.next().write_oid(&ObjectIdentifier::from_slice(&[1, 2, 840, 10045, 2, 1]));
                writer.next().write_oid(&ObjectIdentifier::from_slice(&[1, 2, 840, 10045, 3, 1, 7]));
            });
            writer.next().write_bitvec_bytes(point, POINT_BYTES * 8);
        });
    });
    Ok(params.signed_by(&SubjectPublicKeyInfo::from_der(&info)?, issuer)?)
}

/// A revocation list, DER.
pub(crate) fn revocation_list(
    issuer: &Issuer<'_, KeyPair>,
    issued_at: Timestamp,
    next_update: Timestamp,
    revoked: &[SerialNumber],
) -> Result<Vec<u8>, TeeError> {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let revoked_certs = revoked
        .iter()
        .map(|serial| RevokedCertParams {
            serial_number: serial.clone(),
            revocation_time: epoch + since_epoch(issued_at),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        })
        .collect();
    let params = CertificateRevocationListParams {
        this_update: epoch + since_epoch(issued_at),
        next_update: epoch + since_epoch(next_update),
        // Grows with time, as a list's number must.
        crl_number: SerialNumber::from(u64::try_from(issued_at.as_second()).unwrap_or_default()),
        issuing_distribution_point: None,
        revoked_certs,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    Ok(params.signed_by(issuer)?.der().to_vec())
}

/// From yesterday, for clocks that disagree, for twenty years.
pub(crate) fn long_validity(now: Timestamp) -> Validity {
    let from = now.saturating_sub(24.hours()).unwrap_or(now);
    let later = now.to_zoned(TimeZone::UTC).saturating_add(YEARS.years());
    Validity { from, until: later.timestamp() }
}

/// Certificates know whole seconds from 1970 on.
fn since_epoch(at: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default())
}
