//! Cookies of the pages: random values, kept to this host, not readable for scripts.

use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use cookie::time::Duration;
use cookie::{Cookie, SameSite};
use url::Url;
use zeroize::Zeroizing;

use crate::api::Api;
use crate::api::error::ApiResult;

const TOKEN_CHARS: usize = 64;

/// A cookie of this server.
#[derive(Debug, Clone, Copy)]
pub(super) struct CookieOf {
    /// Kept to this host and to TLS by browsers (RFC 6265bis section 4.1.3.2).
    name: &'static str,
    /// The same for a server without TLS.
    plain_name: &'static str,
    /// After so many seconds the browser forgets it; none is at its end.
    lasts_s: Option<i64>,
}

/// That of somebody who logged in.
pub(super) const SESSION: CookieOf =
    CookieOf { name: "__Host-cloister-session", plain_name: "cloister-session", lasts_s: None };
/// That of somebody whom the OpenID provider is asked for.
pub(super) const OPENID: CookieOf = CookieOf {
    name: "__Host-cloister-openid",
    plain_name: "cloister-openid",
    lasts_s: Some(super::openid::LOGIN_MS / 1000),
};

impl CookieOf {
    /// A new value.
    pub(super) fn new_value(api: &Api) -> ApiResult<Zeroizing<String>> {
        Ok(Zeroizing::new(hex::encode(api.random.bytes::<32>()?)))
    }

    fn name(self, public_url: &Url) -> &'static str {
        if public_url.scheme() == "https" { self.name } else { self.plain_name }
    }

    /// The value in a request, if it has the form of one.
    pub(super) fn sent(self, headers: &HeaderMap, public_url: &Url) -> Option<Zeroizing<String>> {
        let sent = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let mut cookies = sent.flat_map(Cookie::split_parse).filter_map(Result::ok);
        let cookie = cookies.find(|cookie| cookie.name() == self.name(public_url))?;
        let value = Zeroizing::new(cookie.value().to_owned());
        Some(value).filter(|value| value.len() == TOKEN_CHARS)
    }

    /// An answer after which the browser has this value, or none.
    pub(super) fn set(self, response: impl IntoResponse, public_url: &Url, value: Option<&str>) -> Response {
        let mut cookie = Cookie::new(self.name(public_url), value.unwrap_or_default());
        cookie.set_path("/");
        cookie.set_http_only(true);
        // Not strict: whoever comes from an application that asks for access is logged in, and whoever comes back from the
        // provider is known.
        cookie.set_same_site(SameSite::Lax);
        cookie.set_secure(public_url.scheme() == "https");
        cookie.set_max_age(self.lasts_s.map(Duration::seconds));
        if value.is_none() {
            cookie.make_removal();
        }
        let mut response = response.into_response();
        if let Ok(value) = HeaderValue::from_str(&cookie.to_string()) {
            response.headers_mut().append(SET_COOKIE, value);
        }
        response
    }
}
