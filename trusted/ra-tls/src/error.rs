/// Why a certificate or a TLS configuration cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RaTlsError {
    /// A key or certificate that cannot be made or read.
    #[error("the certificate cannot be made")]
    Certificate(#[from] rcgen::Error),
    /// TLS does not take the parts it was given.
    #[error("the TLS configuration cannot be made")]
    Tls(#[from] rustls::Error),
    /// Evidence for a certificate is larger than any peer would read.
    #[error("the {what} has {length} bytes; a certificate holds at most {most}")]
    TooLarge {
        /// The part.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
        /// Limit in bytes.
        most: usize,
    },
    /// There is nothing that proves anything.
    #[error("there is no evidence for the certificate")]
    NoEvidence,
    /// A PEM text without the part it should have.
    #[error("the PEM text holds no {0}")]
    Pem(&'static str),
    /// Dates that no certificate can hold.
    #[error("the dates of the certificate must be ordered and lie after 1970")]
    Dates,
}
