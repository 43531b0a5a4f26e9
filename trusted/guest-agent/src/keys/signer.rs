use std::fmt::Debug;
use std::pin::Pin;

/// Why there is no certificate from the KMS. The text says what the KMS said, and holds no secret.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SignerError(pub(crate) String);

/// A certificate that is being made: PEM, leaf, the application's authority, root.
pub(crate) type Signing<'a> = Pin<Box<dyn Future<Output = Result<Vec<String>, SignerError>> + Send + 'a>>;

/// Who signs certificates for the application.
pub(crate) trait CertificateSigner: Debug + Send + Sync {
    /// Has a certificate request signed: its bytes, and the signature over them by its key (platform
    /// reference, section 9.4).
    fn sign(&self, request: Vec<u8>, signature: Vec<u8>) -> Signing<'_>;
}
