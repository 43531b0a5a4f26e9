//! Authorities, and certificates for keys of others.

use cloister_app_compose::AppId;
use jiff::Timestamp;
use pem::Pem;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SubjectPublicKeyInfo,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::certificate::{MAX_CERTIFICATE_BYTES, params, valid_between, within};
use crate::extensions::{MAX_USAGE_BYTES, extension, oid};
use crate::{AttestedCertificate, Evidence, RaTlsError, Subject};

/// A certificate authority that signs attested certificates, where they do not sign themselves.
pub struct CertificateIssuer {
    /// Its certificate, then those above it.
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    pub(crate) issuer: Issuer<'static, KeyPair>,
}

/// What an authority's certificate says.
#[derive(Debug, Clone)]
pub struct AuthoritySubject {
    /// Organisation, if it shall be named.
    pub organization: Option<String>,
    /// Common name.
    pub common_name: String,
    /// The only application that it speaks for, if so.
    pub app_id: Option<AppId>,
    /// What it is for on the platform, such as `app:ca`.
    pub usage: Option<String>,
    /// Most further authorities below it; any number when absent.
    pub path_length: Option<u8>,
    /// First second of validity.
    pub not_before: Timestamp,
    /// Last second of validity.
    pub not_after: Timestamp,
}

impl CertificateIssuer {
    /// Reads a certificate, or a chain that begins with it and goes along with what it issues, and its
    /// PKCS#8 key.
    pub fn from_pem(chain: &str, key: &str) -> Result<Self, RaTlsError> {
        Self::with_key(chain, KeyPair::from_pem(key)?)
    }

    /// The same with a PKCS#8 key in DER.
    pub fn from_pem_and_der(chain: &str, key: &[u8]) -> Result<Self, RaTlsError> {
        Self::with_key(chain, KeyPair::try_from(key)?)
    }

    fn with_key(chain: &str, key: KeyPair) -> Result<Self, RaTlsError> {
        let certificates = certificates(chain)?;
        let first = certificates.first().ok_or(RaTlsError::Pem("certificate"))?;
        let issuer = Issuer::from_ca_cert_der(first, key)?;
        Ok(Self { certificates, issuer })
    }

    /// An authority with this PKCS#8 key (DER), which `above` signs or, without one, which signs itself.
    pub fn authority(
        key: &[u8],
        subject: &AuthoritySubject,
        above: Option<&Self>,
    ) -> Result<Self, RaTlsError> {
        let pair = KeyPair::try_from(key)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(organization) = &subject.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization.as_str());
        }
        params.distinguished_name.push(DnType::CommonName, subject.common_name.as_str());
        valid_between(&mut params, subject.not_before, subject.not_after)?;
        params.is_ca = IsCa::Ca(match subject.path_length {
            Some(length) => BasicConstraints::Constrained(length),
            None => BasicConstraints::Unconstrained,
        });
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.use_authority_key_identifier_extension = above.is_some();
        if let Some(app_id) = &subject.app_id {
            params.custom_extensions.push(extension(oid::APP_ID, app_id.as_bytes()));
        }
        if let Some(usage) = &subject.usage {
            within("usage", usage.as_bytes(), MAX_USAGE_BYTES)?;
            params.custom_extensions.push(extension(oid::USAGE, usage.as_bytes()));
        }
        let certificate = match above {
            Some(above) => params.signed_by(&pair, &above.issuer)?,
            None => params.self_signed(&pair)?,
        };
        let certificates = std::iter::once(certificate.der().clone())
            .chain(above.into_iter().flat_map(|above| above.certificates.iter().cloned()))
            .collect();
        Ok(Self { certificates, issuer: Issuer::new(params, pair) })
    }

    /// A certificate for the holder of this key (`SubjectPublicKeyInfo`, DER), with its evidence if that
    /// shall be in it. Whoever calls has verified that the holder has the key, and the evidence.
    pub fn issue(
        &self,
        public_key: &[u8],
        evidence: Option<&Evidence>,
        subject: &Subject,
    ) -> Result<AttestedCertificate, RaTlsError> {
        let public_key = SubjectPublicKeyInfo::from_der(public_key)?;
        let mut params = params(subject)?;
        if let Some(evidence) = evidence {
            params.custom_extensions.extend(evidence.extensions()?);
        }
        let leaf = params.signed_by(&public_key, &self.issuer)?;
        within("certificate", leaf.der(), MAX_CERTIFICATE_BYTES)?;
        let chain = std::iter::once(leaf.der().clone()).chain(self.certificates.iter().cloned()).collect();
        Ok(AttestedCertificate { chain })
    }

    /// PEM of its own certificate.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        self.certificates.first().map(pem_of).unwrap_or_default()
    }

    /// PEM certificates: its own, then those above it.
    #[must_use]
    pub fn chain_pem(&self) -> Vec<String> {
        self.certificates.iter().map(pem_of).collect()
    }
}

pub(crate) fn pem_of(der: &CertificateDer<'static>) -> String {
    pem::encode(&Pem::new("CERTIFICATE", der.to_vec()))
}

/// At least one certificate.
pub(crate) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, RaTlsError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| RaTlsError::Pem("certificate"))?;
    if certificates.is_empty() { Err(RaTlsError::Pem("certificate")) } else { Ok(certificates) }
}
