//! TLS whose certificates carry evidence (platform reference, section 9).
//!
//! A key is made inside a confidential machine, the machine's evidence is made over that key, and a
//! certificate with that key carries the evidence. Whoever shakes hands with the holder of the key then
//! knows which machine and which software it talks to, whoever issued the certificate.

mod certificate;
mod error;
mod extensions;
mod key;

pub use certificate::{AttestedCertificate, CertificateIssuer, Evidence, Subject};
pub use error::RaTlsError;
pub use extensions::{MAX_ATTESTATION_BYTES, MAX_EVENT_LOG_BYTES, MAX_QUOTE_BYTES, oid};
pub use key::AttestedKey;
