//! The address of a management API.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use reqwest::ClientBuilder;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

const PREFIX: &str = "/api/v1";

/// Base URL of a management API, with `/api/v1` and without a trailing slash. Plain `http` is for this
/// machine only: a key must not cross a network unprotected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct BaseUrl(Url);

/// A text that is no base URL.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BaseUrlError {
    /// Not a URL at all.
    #[error("{0} is not a URL; write it like https://cloud.example.org")]
    Malformed(String),
    /// A part that no base URL has.
    #[error("the URL must have only a scheme (http or https), a host, a port and the path {PREFIX}")]
    Surplus,
    /// A key would cross a network unprotected.
    #[error("http is only for this machine; use https for {0}")]
    Unprotected(String),
}

impl BaseUrl {
    /// The URL of a path below the prefix; `segments` may hold any characters.
    pub(crate) fn join(&self, segments: &[&str]) -> Url {
        let mut url = self.0.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.extend(segments);
        }
        url
    }

    /// Whether the server is reached through the loopback interface.
    pub(crate) fn is_loopback(&self) -> bool {
        is_loopback(&self.0)
    }

    pub(crate) const fn url(&self) -> &Url {
        &self.0
    }

    /// The URL without the prefix, for people.
    pub(crate) fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }
}

/// Whether the URL's host can only be this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// What goes to this machine goes past every proxy and every resolver: names below `.localhost` are loopback addresses
/// (RFC 6761, 6.3), which not every resolver knows, and a hostile one answers otherwise.
pub(crate) fn kept_on_this_machine(builder: ClientBuilder, url: &Url) -> ClientBuilder {
    if !is_loopback(url) {
        return builder;
    }
    let builder = builder.no_proxy();
    let Some(Host::Domain(name)) = url.host() else { return builder };
    let port = url.port_or_known_default().unwrap_or_default();
    let addresses = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    builder.resolve_to_addrs(name, &addresses.map(|address| SocketAddr::new(address, port)))
}

impl FromStr for BaseUrl {
    type Err = BaseUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut url = Url::parse(text.trim()).map_err(|_| BaseUrlError::Malformed(text.to_owned()))?;
        let path = url.path().trim_end_matches('/');
        let bare = url.username().is_empty() && url.password().is_none();
        let plain = url.query().is_none() && url.fragment().is_none() && url.has_host();
        if !bare || !plain || !(path.is_empty() || path == PREFIX) {
            return Err(BaseUrlError::Surplus);
        }
        match url.scheme() {
            "https" => {}
            "http" if is_loopback(&url) => {}
            "http" => return Err(BaseUrlError::Unprotected(url.host_str().unwrap_or_default().to_owned())),
            _ => return Err(BaseUrlError::Surplus),
        }
        url.set_path(PREFIX);
        Ok(Self(url))
    }
}

impl TryFrom<String> for BaseUrl {
    type Error = BaseUrlError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<BaseUrl> for String {
    fn from(url: BaseUrl) -> Self {
        url.to_string()
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_server_are_equal() {
        for text in
            ["https://c.example", "https://c.example/", "https://C.example/api/v1/", "https://c.example:443"]
        {
            assert_eq!(text.parse::<BaseUrl>().unwrap().to_string(), "https://c.example/api/v1", "{text}");
        }
    }

    #[test]
    fn plain_http_is_for_this_machine_only() {
        for text in
            ["http://127.0.0.1:8700", "http://localhost:8700", "http://api.localhost", "http://[::1]:1"]
        {
            assert!(text.parse::<BaseUrl>().is_ok(), "{text}");
        }
        for text in ["http://c.example", "http://10.0.0.1", "http://localhost.example", "http://0.0.0.0"] {
            assert!(matches!(text.parse::<BaseUrl>(), Err(BaseUrlError::Unprotected(_))), "{text}");
        }
    }

    #[test]
    fn refuses_what_could_hide_a_key_or_another_path() {
        for text in
            ["https://u:p@c.example", "https://c.example/x", "https://c.example?k=1", "ftp://c.example", "c"]
        {
            assert!(text.parse::<BaseUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn segments_cannot_leave_the_prefix() {
        let base: BaseUrl = "https://c.example".parse().unwrap();
        assert_eq!(base.join(&["cvms", "a/../b?c"]).as_str(), "https://c.example/api/v1/cvms/a%2F..%2Fb%3Fc");
    }
}
