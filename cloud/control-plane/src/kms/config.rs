use std::path::PathBuf;

use url::Url;

use super::contract::KmsContract;

/// Longest slug in bytes.
const MAX_SLUG_BYTES: usize = 63;

/// A key management service of the installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KmsConfig {
    /// Its name in requests and records: 1 to 63 lower-case letters, digits and hyphens. It stays the same
    /// for as long as CVMs have keys from this service.
    pub slug: String,
    /// Where guests reach its release port, such as `https://10.0.2.2:12001`.
    pub guest_url: Url,
    /// Where the control plane reaches its directory, such as `https://127.0.0.1:12002`.
    pub directory_url: Url,
    /// PEM certificates of its roots. Read when it is called, so that it may come into being later.
    pub ca_file: PathBuf,
    /// File with the administrator's token, one line; read when it is needed.
    pub admin_token_file: PathBuf,
    /// The contract that decides which applications get keys from it, if one does; the service asks the same.
    pub contract: Option<KmsContract>,
}

/// Why a key management service cannot be one of the installation's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKmsConfig {
    /// A name that cannot stand in a URL, or that looks like an id.
    #[error("{0:?} cannot name a KMS: use 1 to 63 lower-case letters, digits and hyphens")]
    Slug(String),
    /// Two services with one name.
    #[error("two KMSes are named {0:?}")]
    Twice(String),
    /// An address that is not https.
    #[error("{0} is no address of a KMS: it must begin with https://")]
    Address(Url),
}

impl KmsConfig {
    /// Checks what the types leave open.
    pub(super) fn check(&self) -> Result<(), InvalidKmsConfig> {
        let of_slug = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(1..=MAX_SLUG_BYTES).contains(&self.slug.len()) || !self.slug.bytes().all(of_slug) {
            return Err(InvalidKmsConfig::Slug(self.slug.clone()));
        }
        for url in [&self.guest_url, &self.directory_url] {
            if url.scheme() != "https" || !url.has_host() {
                return Err(InvalidKmsConfig::Address(url.clone()));
            }
        }
        Ok(())
    }
}
