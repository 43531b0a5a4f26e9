//! Applications that people can let in.

use std::collections::HashSet;

use url::{Host, Url};

/// An application that is known by where it wants answers. It has no secret (RFC 6749 section 2.1: public).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// What it calls itself in requests, 1 to 100 printable ASCII characters.
    pub id: String,
    /// What people read, 1 to 100 characters.
    pub name: String,
    /// Where its answers may go, at least one; compared as text. `http` addresses of loopback, without a port, stand for all ports
    /// (RFC 8252 section 7.3).
    pub redirect_uris: Vec<String>,
}

/// Why an application cannot be let in.
#[derive(Debug, thiserror::Error)]
pub enum InvalidClient {
    /// Its id.
    #[error("the id of an OAuth client has to be 1 to 100 printable ASCII characters, and its own: {0:?}")]
    Id(String),
    /// Its name.
    #[error("the name of the OAuth client {0} has to be 1 to 100 characters, without control characters")]
    Name(String),
    /// A redirect URI.
    #[error(
        "{1:?} is no redirect URI for the OAuth client {0}: https, http of 127.0.0.1 or [::1], or an application's own \
         scheme with a dot in it, and no fragment"
    )]
    RedirectUri(String, String),
    /// It has none.
    #[error("the OAuth client {0} has no redirect URI; without one it is never answered")]
    NoRedirectUri(String),
}

const MAX_TEXT: usize = 100;

impl Client {
    /// Checks what an operator configured.
    pub(crate) fn checked(configured: Vec<Self>) -> Result<Vec<Self>, InvalidClient> {
        let mut known = HashSet::new();
        for client in &configured {
            client.check()?;
            if !known.insert(&client.id) {
                return Err(InvalidClient::Id(client.id.clone()));
            }
        }
        Ok(configured)
    }

    fn check(&self) -> Result<(), InvalidClient> {
        if !(1..=MAX_TEXT).contains(&self.id.len()) || !self.id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidClient::Id(self.id.clone()));
        }
        let length = self.name.chars().count();
        if !(1..=MAX_TEXT).contains(&length) || self.name.contains(char::is_control) {
            return Err(InvalidClient::Name(self.id.clone()));
        }
        if self.redirect_uris.is_empty() {
            return Err(InvalidClient::NoRedirectUri(self.id.clone()));
        }
        match self.redirect_uris.iter().find(|uri| !is_safe(uri)) {
            Some(uri) => Err(InvalidClient::RedirectUri(self.id.clone(), uri.clone())),
            None => Ok(()),
        }
    }

    /// Where an answer goes that is wanted at an address; `None` if this application never said so.
    pub(crate) fn redirect(&self, wanted: &str) -> Option<Url> {
        let url = Url::parse(wanted).ok()?;
        let is_known = |known: &String| known == wanted || is_same_but_for_the_port(known, &url);
        (url.fragment().is_none() && self.redirect_uris.iter().any(is_known)).then_some(url)
    }
}

fn is_safe(uri: &str) -> bool {
    let Ok(url) = Url::parse(uri) else { return false };
    let has_no_extras = url.fragment().is_none() && url.username().is_empty() && url.password().is_none();
    let is_private_scheme = url.scheme().contains('.');
    has_no_extras && (url.scheme() == "https" || is_private_scheme || is_loopback(&url))
}

/// Whether an address is one of the computer itself.
pub(super) fn is_loopback(url: &Url) -> bool {
    let is_loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(_)) | None => false,
    };
    url.scheme() == "http" && is_loopback
}

/// Native applications listen at whatever port is free.
fn is_same_but_for_the_port(known: &str, wanted: &Url) -> bool {
    let Ok(known) = Url::parse(known) else { return false };
    if !is_loopback(&known) || known.port().is_some() {
        return false;
    }
    let mut wanted = wanted.clone();
    wanted.set_port(None).is_ok() && wanted == known
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn client(uris: &[&str]) -> Client {
        let redirect_uris = uris.iter().map(ToString::to_string).collect();
        Client { id: "app".into(), name: "An app".into(), redirect_uris }
    }

    #[test]
    fn an_address_is_the_same_text_but_for_the_port_of_loopback() {
        let client = client(&[
            "https://app.example/callback?a=b",
            "http://127.0.0.1/callback",
            "http://127.0.0.1:9000/fixed",
            "com.example.app:/callback",
        ]);
        for (wanted, is_known) in [
            ("https://app.example/callback?a=b", true),
            ("https://app.example/callback", false),
            ("https://app.example/callback?a=b&c", false),
            ("https://app.example/callback?a=b#", false),
            ("https://app.example:444/callback?a=b", false),
            ("https://app.example:443/callback?a=b", false),
            ("https://APP.example/callback?a=b", false),
            ("https://user@app.example/callback?a=b", false),
            ("http://app.example/callback?a=b", false),
            ("http://127.0.0.1/callback", true),
            ("http://127.0.0.1:49152/callback", true),
            ("http://127.0.0.1:49152/callback/", false),
            ("http://127.0.0.1:49152/callback?x", false),
            ("http://127.0.0.1:49152/callback#x", false),
            ("http://127.0.0.1:49152@evil.example/callback", false),
            ("http://localhost:49152/callback", false),
            ("http://127.0.0.2:49152/callback", false),
            ("https://127.0.0.1:49152/callback", false),
            ("http://127.0.0.1:9000/fixed", true),
            ("http://127.0.0.1:9001/fixed", false),
            ("com.example.app:/callback", true),
            ("com.example.app:/other", false),
            ("javascript:alert(1)", false),
            ("", false),
        ] {
            assert_eq!(client.redirect(wanted).is_some(), is_known, "{wanted}");
        }
    }

    proptest! {
        #[test]
        fn nothing_else_is_ever_known(wanted in "(https?://)?[127.0@:/a-c#?\\\\%]{0,10}(127\\.0\\.0\\.1|app\\.example)[:0-9@/a-c#?\\\\.]{0,12}(/callback)?") {
            let client = client(&["https://app.example/callback", "http://127.0.0.1/callback"]);
            if let Some(url) = client.redirect(&wanted) {
                prop_assert_eq!(url.path(), "/callback");
                prop_assert!(url.query().is_none() && url.fragment().is_none() && url.username().is_empty());
                prop_assert!(is_loopback(&url) || wanted == "https://app.example/callback");
            }
        }

        #[test]
        fn every_port_of_loopback_is_known(port in 1..=u16::MAX) {
            let client = client(&["http://127.0.0.1/callback", "http://[::1]/callback"]);
            for host in ["127.0.0.1", "[::1]"] {
                let wanted = format!("http://{host}:{port}/callback");
                prop_assert!(client.redirect(&wanted).is_some());
            }
        }
    }

    #[test]
    fn what_an_operator_configures_is_checked() {
        let with = |id: &str, name: &str, uri: &str| Client {
            id: id.into(),
            name: name.into(),
            redirect_uris: vec![uri.into()],
        };
        assert_eq!(Client::checked(vec![with("a", "A", "https://a.example/")]).unwrap().len(), 1);
        for client in [
            with("", "A", "https://a.example/"),
            with("a b", "A", "https://a.example/"),
            with("a", "", "https://a.example/"),
            with("a", "A\n", "https://a.example/"),
            with("a", "A", "http://a.example/"),
            with("a", "A", "https://a.example/#x"),
            with("a", "A", "https://user@a.example/"),
            with("a", "A", "javascript:alert(1)"),
            with("a", "A", "callback"),
        ] {
            assert!(Client::checked(vec![client.clone()]).is_err(), "{client:?}");
        }
        let twice = with("a", "A", "https://a.example/");
        let nowhere = Client { redirect_uris: vec![], ..twice.clone() };
        assert!(
            Client::checked(vec![nowhere]).is_err() && Client::checked(vec![twice.clone(), twice]).is_err()
        );
    }
}
