use std::fmt;

use http::Uri;
use rustls::pki_types::ServerName;

/// Port of an address that names none.
const HTTPS_PORT: u16 = 443;

/// An address of the configuration that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address of a KMS; it must be https://host:port")]
pub(crate) struct InvalidEndpoint(String);

/// Where a KMS releases keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) name: ServerName<'static>,
}

impl Endpoint {
    /// Reads `https://host:port`.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidEndpoint> {
        let invalid = || InvalidEndpoint(text.chars().take(256).collect());
        let uri: Uri = text.parse().map_err(|_| invalid())?;
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority =
            authority.filter(|_| bare && uri.scheme_str() == Some("https")).ok_or_else(invalid)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|_| invalid())?;
        let port = match (authority.as_str() == authority.host(), authority.port_u16()) {
            (true, _) => HTTPS_PORT,
            (false, Some(port)) => port,
            (false, None) => return Err(invalid()),
        };
        Ok(Self { host, port, name })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            write!(f, "https://[{host}]:{port}")
        } else {
            write!(f, "https://{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_a_node_writes_and_nothing_else() {
        for (text, shown) in [
            ("https://10.0.2.2:12001", "https://10.0.2.2:12001"),
            ("https://kms.example/", "https://kms.example:443"),
            ("https://[fe80::1]:7", "https://[fe80::1]:7"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), shown);
        }
        for text in [
            "",
            "http://10.0.2.2:12001",
            "10.0.2.2:12001",
            "https://",
            "https://kms.example/path",
            "https://kms.example?x",
            "https://user@kms.example",
            "https://a b",
            "https://kms.example:123456",
        ] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text: String) {
            let _ = Endpoint::parse(&text);
            let _ = Endpoint::parse(&format!("https://{text}"));
        }
    }
}
