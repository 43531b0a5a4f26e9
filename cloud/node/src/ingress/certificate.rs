//! TLS of the ingress from a certificate of the installation.

use std::sync::Arc;

use cloister_fleet_tls::{Credentials, FleetTlsError};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Domain;

/// The names for which the ingress of a domain needs a certificate, as for
/// [`Authority::issue_server`](cloister_fleet_tls::Authority::issue_server).
#[must_use]
pub fn wildcard_names(domain: &Domain) -> Vec<String> {
    vec![format!("*.{domain}"), domain.to_string()]
}

/// A TLS server for any client with this certificate and key; the authority's certificate goes along.
pub fn server_config(credentials: &Credentials) -> Result<Arc<ServerConfig>, FleetTlsError> {
    let certificate = |pem: &str| {
        CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| FleetTlsError::MissingPem("certificate"))
    };
    let chain = vec![certificate(&credentials.certificate)?, certificate(&credentials.authority)?];
    let key = PrivateKeyDer::from_pem_slice(credentials.private_key.as_bytes())
        .map_err(|_| FleetTlsError::MissingPem("private key"))?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}
