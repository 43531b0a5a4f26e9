//! The places where rustls asks whether a certificate is good.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, PeerIncompatible,
    SignatureScheme,
};

use super::configs::provider;
use crate::InvalidCertificate;
use crate::peer::{PeerError, PeerVerifier, Role};

/// Verifies one chain as rustls hands it over.
fn verify(
    peers: &PeerVerifier,
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    role: Role,
) -> Result<(), Error> {
    let chain: Vec<_> = std::iter::once(end_entity).chain(intermediates).cloned().collect();
    peers.chain(&chain, role).map(drop).map_err(into_tls)
}

/// The error that makes rustls send a fitting alert, with the reason inside.
fn into_tls(error: PeerError) -> Error {
    let alert = match &error {
        PeerError::Chain(webpki::Error::CertExpired { .. }) => Some(CertificateError::Expired),
        PeerError::Chain(webpki::Error::CertNotValidYet { .. }) => Some(CertificateError::NotValidYet),
        PeerError::Chain(webpki::Error::UnknownIssuer) => Some(CertificateError::UnknownIssuer),
        PeerError::Certificate(InvalidCertificate::Malformed) => Some(CertificateError::BadEncoding),
        _ => None,
    };
    if let Some(alert) = alert {
        return Error::InvalidCertificate(alert);
    }
    let temporary = error.is_temporary();
    let error = OtherError(Arc::new(Arc::new(error)));
    if temporary { Error::Other(error) } else { Error::InvalidCertificate(CertificateError::Other(error)) }
}

/// The reason that [`into_tls`] put inside.
pub(super) fn reason(error: &Error) -> Option<Arc<PeerError>> {
    match error {
        Error::Other(OtherError(error))
        | Error::InvalidCertificate(CertificateError::Other(OtherError(error))) => {
            error.downcast_ref::<Arc<PeerError>>().cloned()
        }
        _ => None,
    }
}

/// Never asked: there is TLS 1.3 only.
pub(super) fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::PeerIncompatible(PeerIncompatible::SupportedVersionsExtensionRequired))
}

pub(super) struct AttestedServer {
    peers: PeerVerifier,
    provider: Arc<CryptoProvider>,
}

impl AttestedServer {
    pub(super) fn new(peers: PeerVerifier) -> Self {
        Self { peers, provider: provider() }
    }
}

impl ServerCertVerifier for AttestedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        verify(&self.peers, end_entity, intermediates, Role::Server).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

pub(super) struct AttestedClients {
    peers: PeerVerifier,
    required: bool,
    provider: Arc<CryptoProvider>,
}

impl AttestedClients {
    pub(super) fn new(peers: PeerVerifier, required: bool) -> Self {
        Self { peers, required, provider: provider() }
    }
}

impl ClientCertVerifier for AttestedClients {
    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    /// None: clients show what they have, whoever issued it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        verify(&self.peers, end_entity, intermediates, Role::Client).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl fmt::Debug for AttestedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttestedServer").field("peers", &self.peers).finish_non_exhaustive()
    }
}

impl fmt::Debug for AttestedClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttestedClients").field("peers", &self.peers).finish_non_exhaustive()
    }
}
