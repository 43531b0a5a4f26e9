//! The installation's certificate authority and the mutual TLS between control plane and nodes.
//!
//! Every installation mints one authority at first start. A certificate of it names what its holder is,
//! as a URI in the subject alternative names ([`Identity`]); the TLS handshake proves possession of the
//! key, the caller decides what that identity may do. A node gets its certificate by *enrolment*: it
//! shows a one-time join token that also pins the authority, so neither side trusts the network.

mod authority;
mod configs;
mod files;
mod identity;
mod join_token;
mod listener;
mod shared_secret;
#[cfg(test)]
mod tests;

pub use authority::{Authority, Credentials, make_node_request};
pub use configs::{client_config, client_config_for, enrolment_client_config, peer_identity, server_config};
pub use identity::{Identity, is_node_name};
pub use join_token::{InvalidJoinToken, JoinToken};
pub use listener::{Peer, TlsListener};
pub use shared_secret::shared_secret;

use std::path::PathBuf;

/// Why credentials or a TLS configuration could not be had.
#[derive(Debug, thiserror::Error)]
pub enum FleetTlsError {
    /// A file of the authority or of an identity cannot be read or written.
    #[error("cannot read or write {path}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file of a shared secret holds something else.
    #[error("{path} does not hold 64 hex digits; remove it to have a new one made")]
    Secret {
        /// Which file.
        path: PathBuf,
    },
    /// A key or certificate could not be made or understood.
    #[error("malformed key, certificate or certificate request")]
    Certificate(#[from] rcgen::Error),
    /// PEM text without the expected object in it.
    #[error("no {0} in the PEM text")]
    MissingPem(&'static str),
    /// rustls refused the material.
    #[error("TLS refuses these credentials")]
    Tls(#[from] rustls::Error),
    /// The trust anchor cannot be used to verify client certificates.
    #[error("the authority's certificate cannot verify peers")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}
