use std::io;
use std::path::PathBuf;

/// A failure of the development TEE or its vendor. Never holds key material.
#[derive(Debug, thiserror::Error)]
pub enum TeeError {
    /// A file of keys, certificates or registers cannot be read or written.
    #[error("cannot read or write {path}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A certificate or revocation list cannot be made or read.
    #[error("cannot make or read a certificate of the development TEE")]
    Certificate(#[from] rcgen::Error),
    /// A file or an argument is not what it should be.
    #[error("{0}")]
    Malformed(&'static str),
    /// A key cannot sign, or the system gives no randomness.
    #[error("the cryptographic provider failed")]
    Provider,
    /// A document of the collateral cannot be written.
    #[error("cannot write a document of the collateral")]
    Document(#[source] serde_json::Error),
}

impl From<ring::error::Unspecified> for TeeError {
    fn from(_: ring::error::Unspecified) -> Self {
        Self::Provider
    }
}
