use std::time::Duration;

use cloister_app_compose::AppId;
use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyUsagePurpose};
use rustls::pki_types::CertificateDer;

use crate::extensions::{MAX_ATTESTATION_BYTES, MAX_EVENT_LOG_BYTES, extension, oid, pack_event_log};
use crate::issue::{CertificateIssuer, certificates, pem_of};
use crate::{AttestedKey, MAX_QUOTE_BYTES, RaTlsError};

/// Largest certificate that is made, in bytes: a TLS handshake message ends at 64 KiB, and its chain must
/// fit too.
pub(crate) const MAX_CERTIFICATE_BYTES: usize = 56 << 10;

/// Evidence over a key's [`AttestedKey::report_data`]. Newer peers read the versioned attestation, older
/// ones quote and event log; a certificate carries what is here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// TDX quote.
    pub quote: Option<Vec<u8>>,
    /// Event log, the JSON text of an array; goes with the quote.
    pub event_log: String,
    /// Versioned attestation, encoded.
    pub attestation: Option<Vec<u8>>,
}

/// What a certificate says besides its evidence. All of it are claims of the issuer.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Organisation, if it shall be named.
    pub organization: Option<String>,
    /// Common name.
    pub common_name: String,
    /// Host names and IP addresses.
    pub names: Vec<String>,
    /// Application, if it shall be named.
    pub app_id: Option<AppId>,
    /// Purpose on the platform, such as `app:custom`.
    pub usage: Option<String>,
    /// Whether it is for TLS servers.
    pub server: bool,
    /// Whether it is for TLS clients.
    pub client: bool,
    /// First second of validity.
    pub not_before: Timestamp,
    /// Last second of validity.
    pub not_after: Timestamp,
}

impl Subject {
    /// A subject for servers and clients, valid from `not_before` through `not_after`.
    #[must_use]
    pub fn new(
        common_name: impl Into<String>,
        names: Vec<String>,
        not_before: Timestamp,
        not_after: Timestamp,
    ) -> Self {
        Self {
            organization: None,
            common_name: common_name.into(),
            names,
            app_id: None,
            usage: None,
            server: true,
            client: true,
            not_before,
            not_after,
        }
    }
}

/// A certificate with evidence, and the chain that goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttestedCertificate {
    pub(crate) chain: Vec<CertificateDer<'static>>,
}

impl AttestedCertificate {
    /// Wraps a chain that somebody else issued for an attested key, leaf first.
    pub fn from_pem_chain(pem: &str) -> Result<Self, RaTlsError> {
        Ok(Self { chain: certificates(pem)? })
    }

    /// DER certificates, leaf first.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// PEM certificates, leaf first.
    #[must_use]
    pub fn chain_pem(&self) -> Vec<String> {
        self.chain.iter().map(pem_of).collect()
    }
}

impl AttestedKey {
    /// Makes a certificate for this key that carries `evidence`, signed by `issuer` or, without one, by
    /// the key itself. Fails when there is no evidence or when it does not fit into a TLS handshake.
    pub fn certificate(
        &self,
        evidence: &Evidence,
        subject: &Subject,
        issuer: Option<&CertificateIssuer>,
    ) -> Result<AttestedCertificate, RaTlsError> {
        let mut params = params(subject)?;
        params.custom_extensions.extend(evidence.extensions()?);
        let leaf = match issuer {
            Some(issuer) => params.signed_by(self.pair(), &issuer.issuer)?,
            None => params.self_signed(self.pair())?,
        };
        within("certificate", leaf.der(), MAX_CERTIFICATE_BYTES)?;
        let chain = std::iter::once(leaf.der().clone())
            .chain(issuer.into_iter().flat_map(|issuer| issuer.certificates.iter().cloned()))
            .collect();
        Ok(AttestedCertificate { chain })
    }
}

impl Evidence {
    pub(crate) fn extensions(&self) -> Result<Vec<rcgen::CustomExtension>, RaTlsError> {
        let mut extensions = Vec::new();
        if let Some(quote) = &self.quote {
            within("quote", quote, MAX_QUOTE_BYTES)?;
            within("event log", self.event_log.as_bytes(), MAX_EVENT_LOG_BYTES)?;
            let event_log = pack_event_log(&self.event_log).map_err(|_| RaTlsError::NoEvidence)?;
            extensions.extend([extension(oid::QUOTE, quote), extension(oid::EVENT_LOG, &event_log)]);
        }
        if let Some(attestation) = &self.attestation {
            within("attestation", attestation, MAX_ATTESTATION_BYTES)?;
            extensions.push(extension(oid::ATTESTATION, attestation));
        }
        if extensions.is_empty() { Err(RaTlsError::NoEvidence) } else { Ok(extensions) }
    }
}

pub(crate) fn params(subject: &Subject) -> Result<CertificateParams, RaTlsError> {
    let mut params = CertificateParams::new(subject.names.clone())?;
    params.distinguished_name = DistinguishedName::new();
    if let Some(organization) = &subject.organization {
        params.distinguished_name.push(DnType::OrganizationName, organization.as_str());
    }
    params.distinguished_name.push(DnType::CommonName, subject.common_name.as_str());
    valid_between(&mut params, subject.not_before, subject.not_after)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    for (wanted, usage) in [
        (subject.server, ExtendedKeyUsagePurpose::ServerAuth),
        (subject.client, ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        if wanted {
            params.insert_extended_key_usage(usage);
        }
    }
    if let Some(app_id) = &subject.app_id {
        params.custom_extensions.push(extension(oid::APP_ID, app_id.as_bytes()));
    }
    if let Some(usage) = &subject.usage {
        within("usage", usage.as_bytes(), crate::extensions::MAX_USAGE_BYTES)?;
        params.custom_extensions.push(extension(oid::USAGE, usage.as_bytes()));
    }
    Ok(params)
}

pub(crate) fn valid_between(
    params: &mut CertificateParams,
    not_before: Timestamp,
    not_after: Timestamp,
) -> Result<(), RaTlsError> {
    if not_before > not_after {
        return Err(RaTlsError::Dates);
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch(not_before)?;
    params.not_after = epoch + since_epoch(not_after)?;
    Ok(())
}

/// Time since 1970; a certificate's dates end with the year 9999, as a [`Timestamp`] does.
fn since_epoch(at: Timestamp) -> Result<Duration, RaTlsError> {
    u64::try_from(at.as_second()).map(Duration::from_secs).map_err(|_| RaTlsError::Dates)
}

pub(crate) fn within(what: &'static str, part: &[u8], most: usize) -> Result<(), RaTlsError> {
    if part.len() > most { Err(RaTlsError::TooLarge { what, length: part.len(), most }) } else { Ok(()) }
}
