use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{Credentials, FleetTlsError, Identity, JoinToken};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificate(pem: &str) -> Result<CertificateDer<'static>, FleetTlsError> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| FleetTlsError::MissingPem("certificate"))
}

fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, FleetTlsError> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| FleetTlsError::MissingPem("private key"))
}

fn trust_only(authority: CertificateDer<'static>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority)?;
    Ok(Arc::new(roots))
}

/// TLS server that verifies client certificates against the installation's authority. With
/// `allow_anonymous` a client may come without one (enrolment); [`peer_identity`] is then `None`.
pub fn server_config(
    credentials: &Credentials,
    allow_anonymous: bool,
) -> Result<ServerConfig, FleetTlsError> {
    let authority = certificate(&credentials.authority)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(trust_only(authority.clone())?, provider());
    let verifier = if allow_anonymous { verifier.allow_unauthenticated() } else { verifier }.build()?;
    // The authority's certificate goes along, so that an enrolling node can compare it with its token.
    let chain = vec![certificate(&credentials.certificate)?, authority];
    Ok(ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, private_key(&credentials.private_key)?)?)
}

/// TLS client that shows its own certificate and trusts only the installation's authority. Every holder
/// of a certificate is trusted: the caller checks the [`peer_identity`] before it says anything.
pub fn client_config(credentials: &Credentials) -> Result<ClientConfig, FleetTlsError> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(trust_only(certificate(&credentials.authority)?)?)
        .with_client_auth_cert(
            vec![certificate(&credentials.certificate)?],
            private_key(&credentials.private_key)?,
        )?)
}

/// Like [`client_config`], for a peer of one identity: the handshake with any other fails, under
/// whatever host names that one has a certificate.
pub fn client_config_for(credentials: &Credentials, peer: Identity) -> Result<ClientConfig, FleetTlsError> {
    let roots = trust_only(certificate(&credentials.authority)?)?;
    let chain = WebPkiServerVerifier::builder_with_provider(roots, provider()).build()?;
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(OnePeer { chain, peer }))
        .with_client_auth_cert(
            vec![certificate(&credentials.certificate)?],
            private_key(&credentials.private_key)?,
        )?)
}

/// TLS client without a certificate that trusts exactly the authority pinned by a join token.
pub fn enrolment_client_config(token: JoinToken) -> Result<ClientConfig, FleetTlsError> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedAuthority { token }))
        .with_no_client_auth())
}

/// What the peer of an accepted connection is, read from its verified leaf certificate.
#[must_use]
pub fn peer_identity(peer_certificates: Option<&[CertificateDer<'_>]>) -> Option<Identity> {
    let leaf = peer_certificates?.first()?;
    let (_, leaf) = X509Certificate::from_der(leaf).ok()?;
    let names = leaf.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) => uri.parse().ok(),
        _ => None,
    })
}

/// Accepts a server that is valid under the authority and has one identity.
#[derive(Debug)]
struct OnePeer {
    chain: Arc<WebPkiServerVerifier>,
    peer: Identity,
}

impl ServerCertVerifier for OnePeer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        if peer_identity(Some(std::slice::from_ref(end_entity))).as_ref() == Some(&self.peer) {
            Ok(verified)
        } else {
            Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Accepts a server whose chain ends in the pinned authority and is valid under it.
#[derive(Debug)]
struct PinnedAuthority {
    token: JoinToken,
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = intermediates
            .iter()
            .find(|certificate| self.token.pins(certificate))
            .ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        WebPkiServerVerifier::builder_with_provider(trust_only(authority.clone().into_owned())?, provider())
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            dss,
            &ring::default_provider().signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &ring::default_provider().signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
