//! The listener's certificate: the gateway's own, or one that is replaced when its files change.

use std::path::Path;
use std::sync::Arc;

use cloister_agent_client::AgentError;
use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WantsServerCert;
use rustls::{ConfigBuilder, ServerConfig};
use sha2::{Digest, Sha256};
use x509_parser::parse_x509_certificate;

use super::self_signed::SelfSigned;
use crate::config::TlsFiles;

/// Why a certificate is of no use.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file is not what it should be.
    #[error("{0} is not usable PEM")]
    Pem(std::path::PathBuf, #[source] rustls::pki_types::pem::Error),
    /// The chain is empty, or its first certificate is none.
    #[error("{0} does not begin with a certificate")]
    NoCertificate(std::path::PathBuf),
    /// The certificate and the key do not fit, or are of a kind that is not known.
    #[error("the certificate and its key do not fit, or cannot be used")]
    Unfit(#[from] rustls::Error),
    /// The guest agent gives no key for one that the gateway makes.
    #[error("the guest agent gives no key for TLS")]
    Agent(#[source] AgentError),
    /// It gives bytes that are no key; practically impossible.
    #[error("the key for TLS cannot be used")]
    Key,
    /// The system gives no random bytes for a key.
    #[error("the system gives no random bytes")]
    NoRandomness,
}

/// What the listener shows.
#[derive(Debug)]
pub struct Certificate {
    current: RwLock<Arc<Shown>>,
}

#[derive(Debug)]
struct Shown {
    config: Arc<ServerConfig>,
    /// As it stands in the files; empty for one that the gateway makes.
    chain: Vec<CertificateDer<'static>>,
    spki_sha256: [u8; 32],
}

impl Certificate {
    /// Reads the files.
    pub fn load(files: &TlsFiles) -> Result<Self, CertificateError> {
        Ok(Self { current: RwLock::new(Arc::new(Shown::load(files)?)) })
    }

    /// Makes one for each name that clients ask for, of the application's own key, or of a fresh one where no agent is named.
    pub async fn self_signed(agent_socket: Option<&Path>) -> Result<Self, CertificateError> {
        let own = Arc::new(SelfSigned::of(agent_socket).await?);
        let spki_sha256 = own.spki_sha256();
        let config = builder()?.with_cert_resolver(own);
        let shown = Shown { config: with_protocols(config), chain: Vec::new(), spki_sha256 };
        Ok(Self { current: RwLock::new(Arc::new(shown)) })
    }

    /// SHA-256 of the key (`SubjectPublicKeyInfo`, DER) that is shown now.
    #[must_use]
    pub fn spki_sha256(&self) -> [u8; 32] {
        self.current.read().spki_sha256
    }

    /// Reads the files again. What they hold now, where that is another certificate than the one that is shown; it is
    /// shown from [`Self::show`] on.
    pub(crate) fn changed(&self, files: &TlsFiles) -> Result<Option<Next>, CertificateError> {
        let next = Shown::load(files)?;
        Ok((next.chain != self.current.read().chain).then(|| Next(Arc::new(next))))
    }

    /// Shows another certificate to those who connect from now on.
    pub(crate) fn show(&self, next: Next) {
        *self.current.write() = next.0;
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().config)
    }
}

/// A certificate that is not shown yet.
#[derive(Debug)]
pub(crate) struct Next(Arc<Shown>);

impl Next {
    /// SHA-256 of its key.
    pub(crate) fn spki_sha256(&self) -> [u8; 32] {
        self.0.spki_sha256
    }
}

impl Shown {
    fn load(files: &TlsFiles) -> Result<Self, CertificateError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |error| CertificateError::Pem(path, error)
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.certificate)
            .and_then(Iterator::collect)
            .map_err(unusable(&files.certificate))?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unusable(&files.key))?;
        let no_certificate = || CertificateError::NoCertificate(files.certificate.clone());
        let leaf = chain.first().ok_or_else(no_certificate)?;
        let (_, parsed) = parse_x509_certificate(leaf).map_err(|_| no_certificate())?;
        let spki_sha256 = Sha256::digest(parsed.public_key().raw).into();
        let config = builder()?.with_single_cert(chain.clone(), key)?;
        Ok(Self { config: with_protocols(config), chain, spki_sha256 })
    }
}

fn builder() -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_no_client_auth())
}

fn with_protocols(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}
