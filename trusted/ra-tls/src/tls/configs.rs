use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};

use super::verifiers::{AttestedClients, AttestedServer};
use crate::peer::PeerVerifier;
use crate::{AttestedCertificate, AttestedKey, RaTlsError};

/// What a server demands of clients.
#[derive(Debug, Clone)]
pub enum Clients {
    /// They are not asked who they are.
    Anonymous,
    /// They may come without a certificate; one that they show must hold.
    Optional(PeerVerifier),
    /// They must show who they are.
    Required(PeerVerifier),
}

impl Clients {
    pub(super) const fn verifier(&self) -> Option<&PeerVerifier> {
        match self {
            Self::Anonymous => None,
            Self::Optional(verifier) | Self::Required(verifier) => Some(verifier),
        }
    }
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// TLS 1.3 server with an attested certificate. Evidence of clients is verified in the handshake, which
/// may wait for collateral: an asynchronous server accepts with an [`Acceptor`](super::Acceptor).
///
/// There is no session resumption: a resumed session would speak for evidence that was verified when the
/// session began, however long ago. A peer that comes back soon is remembered by its certificate instead.
pub fn server_config(
    key: &AttestedKey,
    certificate: &AttestedCertificate,
    clients: &Clients,
) -> Result<ServerConfig, RaTlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
    let builder = match clients {
        Clients::Anonymous => builder.with_no_client_auth(),
        Clients::Optional(verifier) => {
            builder.with_client_cert_verifier(Arc::new(AttestedClients::new(verifier.clone(), false)))
        }
        Clients::Required(verifier) => {
            builder.with_client_cert_verifier(Arc::new(AttestedClients::new(verifier.clone(), true)))
        }
    };
    let mut config = builder.with_single_cert(certificate.chain().to_vec(), key.private_key_der())?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// TLS 1.3 client that talks only to servers which `servers` lets in, and shows `own` certificate if it
/// has one and is asked. Host names are not compared: a server is who its evidence says, and anybody can
/// write any name into a certificate.
///
/// Without session resumption, for the same reason as [`server_config`].
pub fn client_config(
    servers: &PeerVerifier,
    own: Option<(&AttestedKey, &AttestedCertificate)>,
) -> Result<ClientConfig, RaTlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AttestedServer::new(servers.clone())));
    let mut config = match own {
        Some((key, certificate)) => {
            builder.with_client_auth_cert(certificate.chain().to_vec(), key.private_key_der())?
        }
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Ok(config)
}
