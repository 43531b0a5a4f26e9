//! A server that answers callers without good evidence in its own words instead of by a TLS alert.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    Connection, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, ServerConnection,
    SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server};

use super::configs::provider;
use super::drive::handshake;
use super::streams::{HandshakeError, limited};
use super::verifiers::no_tls12;
use crate::peer::{PeerError, PeerIdentity, PeerVerifier, Role};
use crate::{AttestedCertificate, AttestedKey, RaTlsError};

/// A connection whose client was judged, whatever the judgement: nobody but the caller turns it away.
#[derive(Debug)]
pub struct Judged<S> {
    /// The stream of plaintext. Where `peer` is an error it may carry a refusal and nothing else.
    pub stream: server::TlsStream<S>,
    /// Who the client is, or why it is not believed.
    pub peer: Result<Arc<PeerIdentity>, PeerError>,
}

/// Accepts any client that can do TLS 1.3, and judges it right after the handshake. The handshake proves
/// that the client has the key of the certificate that it shows, if it shows one; the evidence is verified
/// off the runtime's threads before [`JudgingAcceptor::accept`] returns. So the server knows of every caller
/// who it is, and can still tell a refused one why, in HTTP. Cheap to clone.
#[derive(Clone)]
pub struct JudgingAcceptor {
    config: Arc<ServerConfig>,
    peers: PeerVerifier,
}

impl JudgingAcceptor {
    /// With this certificate, for these protocols of ALPN (none: it is not spoken), judging by `peers`.
    /// Without session resumption, as [`server_config`](super::server_config).
    pub fn new(
        key: &AttestedKey,
        certificate: &AttestedCertificate,
        alpn: &[&str],
        peers: PeerVerifier,
    ) -> Result<Self, RaTlsError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(AnyClient(provider())))
            .with_single_cert(certificate.chain().to_vec(), key.private_key_der())?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Ok(Self { config: Arc::new(config), peers })
    }

    /// Shakes hands within 20 seconds, and judges the client within as many. Where that takes longer, because
    /// collateral cannot be had, the judgement is [`PeerError::TooSlow`]: nothing is known of the client, and
    /// it can still be told so.
    pub async fn accept<S>(&self, mut stream: S) -> Result<Judged<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let done = limited(Box::pin(self.shake(&mut stream))).await?;
        let chain: Vec<_> =
            done.peer_certificates().unwrap_or_default().iter().map(|one| one.clone().into_owned()).collect();
        let peer = match limited(self.judge(chain)).await {
            Err(HandshakeError::TimedOut) => Err(PeerError::TooSlow),
            judged => judged?,
        };
        let accepting =
            TlsAcceptor::from(Arc::clone(&self.config)).accept_with(stream, |connection| *connection = done);
        Ok(Judged { stream: accepting.await?, peer })
    }

    async fn shake<S>(&self, stream: &mut S) -> Result<ServerConnection, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connection = ServerConnection::new(Arc::clone(&self.config)).map_err(HandshakeError::Tls)?;
        match handshake(connection.into(), stream, &self.peers.turns()).await? {
            Connection::Server(done) => Ok(done),
            Connection::Client(_) => Err(HandshakeError::Interrupted),
        }
    }

    async fn judge(
        &self,
        chain: Vec<CertificateDer<'static>>,
    ) -> Result<Result<Arc<PeerIdentity>, PeerError>, HandshakeError> {
        let turn = self.peers.turns().acquire_owned().await.map_err(|_| HandshakeError::Interrupted)?;
        let peers = self.peers.clone();
        tokio::task::spawn_blocking(move || {
            let peer = peers.chain(&chain, Role::Client);
            drop(turn);
            peer
        })
        .await
        .map_err(|_| HandshakeError::Interrupted)
    }
}

impl fmt::Debug for JudgingAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JudgingAcceptor").field("peers", &self.peers).finish_non_exhaustive()
    }
}

/// Asks for a certificate and takes any, or none. That the client has its key is still proven: the
/// signature over the handshake is verified.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
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
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
