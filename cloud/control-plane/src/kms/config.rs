use std::path::PathBuf;

use url::Url;

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
}
