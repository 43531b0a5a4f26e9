//! What TLS connections to upstreams trust: authorities, or the keys of a verified machine and nothing else.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use pem::Pem;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::UpstreamError;

/// Longest file of authorities, in bytes.
const MAX_CA_BYTES: usize = 1 << 20;

/// The system's authorities, read once.
static NATIVE_ROOTS: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (_, refused) = roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        tracing::warn!(
            refused,
            "the system has no certificate authorities; upstreams need their own ca_file"
        );
    }
    Arc::new(roots)
});

/// SHA-256 of a `SubjectPublicKeyInfo` in DER.
pub(crate) type Pin = [u8; 32];

/// The leaf's key is none of the pins.
#[derive(Debug, thiserror::Error)]
#[error("the TLS key is none of the pinned ones")]
struct NotPinned;

/// Whether an error says that a connection ended at a key that is not pinned. Looks through what wraps it.
pub(super) fn is_mismatch(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(Error::InvalidCertificate(CertificateError::Other(OtherError(cause)))) =
            error.downcast_ref::<Error>()
        {
            return cause.is::<NotPinned>();
        }
        // What an `io::Error` wraps is not in its chain: its own source is that of the wrapped one.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    false
}

/// Trusts the system's authorities and those of a file.
pub(crate) fn by_authorities(ca_file: Option<&Path>) -> Result<ClientConfig, UpstreamError> {
    let roots = match ca_file {
        None => Arc::clone(&NATIVE_ROOTS),
        Some(path) => Arc::new(with_file(path)?),
    };
    Ok(builder()?.with_root_certificates(roots).with_no_client_auth())
}

/// Trusts keys; names and authorities are not asked. A session is never resumed: each connection shows its key.
pub(crate) fn by_pins(pins: &[Pin]) -> Result<ClientConfig, UpstreamError> {
    let verifier = Pinned { pins: pins.into(), provider: ring::default_provider() };
    let mut config =
        builder()?.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, UpstreamError> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(UpstreamError::Tls)
}

fn with_file(path: &Path) -> Result<RootCertStore, UpstreamError> {
    let unusable = |why: String| UpstreamError::Authorities { path: path.to_owned(), why };
    let text = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    if text.len() > MAX_CA_BYTES {
        return Err(unusable("it is longer than 1 MiB".to_owned()));
    }
    let blocks = pem::parse_many(&text).map_err(|error| unusable(error.to_string()))?;
    let mut roots = NATIVE_ROOTS.as_ref().clone();
    let before = roots.len();
    for block in blocks.into_iter().filter(|block| block.tag() == "CERTIFICATE") {
        roots
            .add(CertificateDer::from(Pem::into_contents(block)))
            .map_err(|error| unusable(error.to_string()))?;
    }
    if roots.len() == before { Err(unusable("it holds no certificate".to_owned())) } else { Ok(roots) }
}

/// Accepts a server by its key alone.
#[derive(Debug)]
struct Pinned {
    pins: Box<[Pin]>,
    provider: CryptoProvider,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (_, leaf) = X509Certificate::from_der(end_entity)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let pin: Pin = Sha256::digest(leaf.tbs_certificate.subject_pki.raw).into();
        if self.pins.contains(&pin) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(NotPinned)))))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
