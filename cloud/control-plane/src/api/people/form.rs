//! Forms, where they come from, and who sends them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::RequestExt;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, FromRequest, FromRequestParts, Request};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use maud::html;
use url::{Url, form_urlencoded};
use zeroize::Zeroizing;

use super::markup::Page;
use crate::api::error::ApiError;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORM: &str = "application/x-www-form-urlencoded";
const MAX_FIELDS: usize = 20;

/// What somebody typed, by the names of the fields. Of two with one name the last counts.
#[derive(Default)]
pub(in crate::api) struct Fields(HashMap<String, Zeroizing<String>>);

impl Fields {
    /// A field; empty if it was not sent.
    pub(in crate::api) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |text| text.as_str())
    }

    /// A field that is a secret.
    pub(in crate::api) fn secret(&self, name: &str) -> Zeroizing<String> {
        self.0.get(name).cloned().unwrap_or_default()
    }

    /// What stands behind the `?` of an address, or in a form.
    pub(in crate::api) fn parse(text: &[u8]) -> Self {
        let fields = form_urlencoded::parse(text).take(MAX_FIELDS);
        Self(fields.map(|(name, text)| (name.into_owned(), Zeroizing::new(text.into_owned()))).collect())
    }
}

impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case(FORM) {
            return Err(ApiError::of_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let bytes: Bytes =
            request.extract().await.map_err(|_| ApiError::of_status(StatusCode::PAYLOAD_TOO_LARGE))?;
        Ok(Self::parse(&bytes))
    }
}

/// Layer that takes forms of this site only. Browsers say where a form is from: in `Sec-Fetch-Site` (Fetch Metadata), older
/// ones in `Origin`. What says neither is no browser, and has no cookies that it does not know.
pub(super) async fn from_this_site(request: Request, next: Next) -> Response {
    if request.method().is_safe() || is_of_this_site(request.headers()) {
        return next.run(request).await;
    }
    let body = html! { p { "Go to the page itself and fill in the form there." } };
    let words = "This form was sent by another site, and nothing was done.";
    Page::new("Not from here", body).refused(StatusCode::FORBIDDEN, words).into_response()
}

fn is_of_this_site(headers: &HeaderMap) -> bool {
    let header = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(site) = header(FETCH_SITE) {
        return site == "same-origin";
    }
    let Some(origin) = header(ORIGIN) else { return true };
    // A proxy ends TLS, so that the scheme is not known here.
    let host = header(HOST).filter(|host| !host.is_empty());
    let Some((url, host)) = Url::parse(origin).ok().zip(host) else { return false };
    Url::parse(&format!("{}://{host}", url.scheme())).is_ok_and(|own| own.origin() == url.origin())
}

/// Where a request comes from, as far as it is one household: an IPv4 address, or the network of an IPv6 address.
pub(super) struct From(pub(super) Option<IpAddr>);

impl<S: Send + Sync> FromRequestParts<S> for From {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Ok(Self(peer.map(|ConnectInfo(address)| household(address.ip()))))
    }
}

fn household(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(network).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_this_site_sends_forms() {
        for (headers, is_taken) in [
            (vec![], true),
            (vec![("sec-fetch-site", "same-origin")], true),
            (vec![("sec-fetch-site", "same-site")], false),
            (vec![("sec-fetch-site", "cross-site")], false),
            (vec![("sec-fetch-site", "none")], false),
            (
                vec![
                    ("sec-fetch-site", "cross-site"),
                    ("origin", "https://a.example"),
                    ("host", "a.example"),
                ],
                false,
            ),
            (vec![("origin", "https://a.example"), ("host", "a.example")], true),
            (vec![("origin", "http://a.example:81"), ("host", "a.example:81")], true),
            (vec![("origin", "http://a.example:81"), ("host", "a.example")], false),
            (vec![("origin", "https://b.example"), ("host", "a.example")], false),
            (vec![("origin", "null"), ("host", "a.example")], false),
            (vec![("origin", "https://a.example")], false),
        ] {
            let map = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            assert_eq!(is_of_this_site(&map.collect()), is_taken, "{headers:?}");
        }
    }

    #[test]
    fn a_household_has_one_network() {
        for (address, network) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(household(address.parse().unwrap()), network.parse::<IpAddr>().unwrap());
        }
    }

    #[test]
    fn fields_are_what_was_typed() {
        let fields = Fields::parse(b"a=1&b=x+%26&a=2");
        assert_eq!((fields.text("a"), fields.text("b"), fields.text("c")), ("2", "x &", ""));
    }
}
