//! The keys and certificates of one boot. Without a key management service the agent is its own
//! authority, whose certificate carries the evidence for its key; neither outlives the boot.

use std::sync::Arc;

use cloister_attester::AttestError;
use cloister_evidence::InvalidAttestation;
use cloister_ra_tls::{AttestedCertificate, AttestedKey, CertificateIssuer, RaTlsError, Subject, oid};
use jiff::{Timestamp, ToSpan as _};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::Attestation;
use super::tls_keys::TlsKeyRequest;
use crate::keys::SignerError;

/// Clocks of peers may be behind by this much.
const LEEWAY_HOURS: i64 = 24;
/// What makes evidence fresh is a challenge, not a date; so certificates outlast any boot.
const VALID_HOURS: i64 = 10 * 365 * 24;
const USAGE_AUTHORITY: &str = "app:ca";
const USAGE_LEAF: &str = "app:custom";

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error(transparent)]
    Attest(#[from] AttestError),
    #[error("the evidence cannot be encoded")]
    Encode(#[from] InvalidAttestation),
    #[error("the agent has no certificate authority yet; try again")]
    NotYet,
    #[error(transparent)]
    Signer(#[from] SignerError),
    #[error(transparent)]
    RaTls(#[from] RaTlsError),
    #[error("the certificate cannot be made")]
    Certificate(#[from] rcgen::Error),
    #[error("the TLS configuration cannot be made")]
    Tls(#[from] rustls::Error),
    #[error("the private key cannot be read")]
    Key,
    #[error("not_before must be earlier than not_after, both in seconds since 1970")]
    Dates,
}

/// The authority of this boot, and the agent's own certificate from it.
pub(crate) struct Certificates {
    authority_pem: String,
    authority_key: zeroize::Zeroizing<String>,
    agent_pem: String,
    server: Arc<ServerConfig>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("agent_pem", &self.agent_pem).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Makes all of it: two keys, two quotes.
    pub(super) async fn make(attestation: &Attestation, now: Timestamp) -> Result<Self, CertificateError> {
        let (authority_pem, authority_key) = authority(attestation, now).await?;
        let issuer = CertificateIssuer::from_pem(&authority_pem, &authority_key)?;
        let key = AttestedKey::generate()?;
        let (not_before, not_after) = (validity(now, -LEEWAY_HOURS), validity(now, VALID_HOURS));
        let facts = &attestation.facts;
        let mut subject =
            Subject::new(facts.app_id.to_string(), facts.host_names.clone(), not_before, not_after);
        subject.app_id = Some(facts.app_id);
        subject.usage = Some(USAGE_LEAF.to_owned());
        subject.client = false;
        let certificate = key.certificate(&attestation.evidence_for(&key).await?, &subject, Some(&issuer))?;
        let mut server = server_config(&key, &certificate)?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        let agent_pem = certificate.chain_pem().concat();
        Ok(Self { authority_pem, authority_key, agent_pem, server: Arc::new(server) })
    }

    /// The agent's certificate and that of the authority, PEM.
    pub(crate) fn agent_pem(&self) -> String {
        self.agent_pem.clone()
    }

    /// For connections from outside.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// A certificate for a key of the application: the chain, PEM, leaf first.
    pub(super) async fn sign(
        &self,
        attestation: &Attestation,
        key: &AttestedKey,
        request: &TlsKeyRequest,
        now: Timestamp,
    ) -> Result<Vec<String>, CertificateError> {
        let not_before = date(request.not_before)?.unwrap_or_else(|| validity(now, -LEEWAY_HOURS));
        let not_after = date(request.not_after)?.unwrap_or_else(|| validity(now, VALID_HOURS));
        if not_before >= not_after {
            return Err(CertificateError::Dates);
        }
        let app_id = request.with_app_info.then_some(attestation.facts.app_id);
        if request.attested {
            let issuer = CertificateIssuer::from_pem(&self.authority_pem, &self.authority_key)?;
            let mut subject =
                Subject::new(request.subject.as_str(), request.alt_names.clone(), not_before, not_after);
            (subject.server, subject.client) = (request.server, request.client);
            (subject.app_id, subject.usage) = (app_id, Some(USAGE_LEAF.to_owned()));
            let evidence = attestation.evidence_for(key).await?;
            return Ok(key.certificate(&evidence, &subject, Some(&issuer))?.chain_pem());
        }
        let mut params = params(&request.subject, request.alt_names.clone(), not_before, not_after)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        for (wanted, usage) in [
            (request.server, ExtendedKeyUsagePurpose::ServerAuth),
            (request.client, ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            if wanted {
                params.insert_extended_key_usage(usage);
            }
        }
        params.custom_extensions.push(extension(oid::USAGE, USAGE_LEAF.as_bytes()));
        params.custom_extensions.extend(app_id.map(|id| extension(oid::APP_ID, id.as_bytes())));
        let pair = KeyPair::from_pem(&key.private_key_pem())?;
        let issuer = Issuer::from_ca_cert_pem(&self.authority_pem, KeyPair::from_pem(&self.authority_key)?)?;
        let leaf = params.signed_by(&pair, &issuer)?.pem();
        Ok(vec![leaf, self.authority_pem.clone()])
    }
}

/// TLS 1.3 without sessions for clients that are not asked who they are. The library's own configuration
/// can ask them, and would bring everything that verifies evidence into the initial RAM disk: 1 MB more to
/// load at every boot.
fn server_config(
    key: &AttestedKey,
    certificate: &AttestedCertificate,
) -> Result<ServerConfig, CertificateError> {
    let private_key =
        PrivateKeyDer::from_pem_slice(key.private_key_pem().as_bytes()).map_err(|_| CertificateError::Key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(certificate.chain().to_vec(), private_key)?;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Certificate and key of the authority, PEM.
async fn authority(
    attestation: &Attestation,
    now: Timestamp,
) -> Result<(String, zeroize::Zeroizing<String>), CertificateError> {
    let key = AttestedKey::generate()?;
    let evidence = attestation.evidence_for(&key).await?;
    let (not_before, not_after) = (validity(now, -LEEWAY_HOURS), validity(now, VALID_HOURS));
    let mut params = params("Cloister application CA", Vec::new(), not_before, not_after)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.custom_extensions = vec![
        extension(oid::APP_ID, attestation.facts.app_id.as_bytes()),
        extension(oid::USAGE, USAGE_AUTHORITY.as_bytes()),
    ];
    // Whoever reads an authority's evidence reads the versioned form; the older one would only make every
    // chain longer.
    let versioned = evidence.attestation.as_deref().unwrap_or_default();
    params.custom_extensions.push(extension(oid::ATTESTATION, versioned));
    let pem = key.private_key_pem();
    let certificate = params.self_signed(&KeyPair::from_pem(&pem)?)?;
    Ok((certificate.pem(), pem))
}

fn params(
    name: &str,
    alt_names: Vec<String>,
    not_before: Timestamp,
    not_after: Timestamp,
) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(alt_names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since_epoch = |at: Timestamp| {
        u64::try_from(at.as_second()).map(std::time::Duration::from_secs).map_err(|_| CertificateError::Dates)
    };
    params.not_before = epoch + since_epoch(not_before)?;
    params.not_after = epoch + since_epoch(not_after)?;
    Ok(params)
}

fn extension(oid: &[u64], content: &[u8]) -> CustomExtension {
    CustomExtension::from_oid_content(oid, yasna::construct_der(|writer| writer.write_bytes(content)))
}

fn date(seconds: Option<u64>) -> Result<Option<Timestamp>, CertificateError> {
    let Some(seconds) = seconds else { return Ok(None) };
    let seconds = i64::try_from(seconds).map_err(|_| CertificateError::Dates)?;
    Timestamp::from_second(seconds).map(Some).map_err(|_| CertificateError::Dates)
}

/// `hours` after `now`, or before it; within the dates that a certificate can hold.
fn validity(now: Timestamp, hours: i64) -> Timestamp {
    let at = now.saturating_add(hours.hours()).unwrap_or(now);
    at.max(Timestamp::UNIX_EPOCH)
}
