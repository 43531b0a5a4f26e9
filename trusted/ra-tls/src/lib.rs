//! TLS whose certificates carry evidence (platform reference, section 9).
//!
//! A key is made inside a confidential machine, the machine's evidence is made over that key, and a
//! certificate with that key carries the evidence. Whoever shakes hands with the holder of the key then
//! knows which machine and which software it talks to, whoever issued the certificate.
//!
//! - [`AttestedKey`] makes certificates, [`inspect()`] and [`CertificateRequest`] read what others made.
//! - [`PeerVerifier`] says who the holder of a key is, by a [`PeerPolicy`].
//! - [`server_config`] and [`client_config`] make TLS ask it in each handshake; [`Acceptor`] and
//!   [`Connector`] do so without making other connections wait, and hand over the [`PeerIdentity`].
//! - [`JudgingAcceptor`] lets a server tell a refused caller why in its own protocol.
//! - [`AuthorityConnector`] is for clients that know a server by its issuer, such as the guests of a KMS.

mod carried;
mod certificate;
mod error;
mod extensions;
mod inspect;
mod issue;
mod key;
mod peer;
mod request;
#[cfg(test)]
mod tests;
mod tls;

pub use carried::{CarriedEvidence, InvalidEvidence};
pub use certificate::{AttestedCertificate, Evidence, Subject};
pub use error::RaTlsError;
pub use extensions::{MAX_ATTESTATION_BYTES, MAX_EVENT_LOG_BYTES, MAX_QUOTE_BYTES, oid};
pub use inspect::{CertificateEvidence, InvalidCertificate, MAX_CERTIFICATE_BYTES, inspect, inspect_pem};
pub use issue::{AuthoritySubject, CertificateIssuer};
pub use key::AttestedKey;
pub use peer::{Issuers, MAX_SERVER_CHAIN, PeerError, PeerIdentity, PeerPolicy, PeerVerifier, Role};
pub use request::{
    CertificateRequest, InvalidRequest, MAX_REQUEST_BYTES, MAX_REQUEST_NAMES, RequestedCertificate,
};
pub use tls::{
    Accepted, Acceptor, Authority, AuthorityConnector, AuthorityError, AuthorityHandshakeError,
    AuthorityPolicy, Clients, Connected, Connector, HandshakeError, Judged, JudgingAcceptor, KMS_USAGE,
    authority_client_config, client_config, public_key_of, public_key_of_pem, server_config,
};
