//! What leads from a quote to the platform's key.

use x509_parser::pem::Pem;

use super::{InvalidPckCertificate, PckCertificate};

/// Type of certification data that is the platform's certificate chain, PEM.
pub const PCK_CERTIFICATE_CHAIN: u16 = 5;
/// Most certificates of a chain: platform, intermediate, root, and one to spare.
const MAX_CERTIFICATES: usize = 4;

/// Certification data of a quote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificationData<'a> {
    /// [`PCK_CERTIFICATE_CHAIN`], or a type that only names the platform.
    pub kind: u16,
    /// The data.
    pub data: &'a [u8],
}

/// Why certification data does not lead to a platform's key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCertification {
    /// Not a certificate chain: the quote only names its platform.
    #[error("the quote carries certification data of type {0}, not its platform's certificates")]
    Kind(u16),
    /// Not one to four PEM certificates and nothing else.
    #[error("the quote's certificate chain is not one to {MAX_CERTIFICATES} PEM certificates")]
    Pem,
    /// The first certificate is not that of a platform.
    #[error("the quote's first certificate is not that of a platform")]
    Leaf(#[source] InvalidPckCertificate),
}

impl<'a> CertificationData<'a> {
    /// The chain as PEM text: platform, intermediate, root. Zeros that end it are left out.
    pub fn pem_chain(&self) -> Result<&'a str, InvalidCertification> {
        if self.kind != PCK_CERTIFICATE_CHAIN {
            return Err(InvalidCertification::Kind(self.kind));
        }
        let text = std::str::from_utf8(self.data).map_err(|_| InvalidCertification::Pem)?;
        let text = text.trim_end_matches('\0');
        if text.is_ascii() { Ok(text) } else { Err(InvalidCertification::Pem) }
    }

    /// The chain as DER: platform, intermediate, root.
    pub fn certificates(&self) -> Result<Vec<Vec<u8>>, InvalidCertification> {
        let mut certificates = Vec::new();
        for block in Pem::iter_from_buffer(self.pem_chain()?.as_bytes()) {
            let block = block.map_err(|_| InvalidCertification::Pem)?;
            if block.label != "CERTIFICATE" || certificates.len() == MAX_CERTIFICATES {
                return Err(InvalidCertification::Pem);
            }
            certificates.push(block.contents);
        }
        if certificates.is_empty() { Err(InvalidCertification::Pem) } else { Ok(certificates) }
    }

    /// The platform's certificate.
    pub fn pck_certificate(&self) -> Result<PckCertificate, InvalidCertification> {
        let certificates = self.certificates()?;
        let leaf = certificates.first().ok_or(InvalidCertification::Pem)?;
        PckCertificate::parse(leaf).map_err(InvalidCertification::Leaf)
    }
}
