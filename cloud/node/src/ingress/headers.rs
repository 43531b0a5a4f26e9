//! Headers that belong to one hop, and those that tell the app about the hop before it.

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    UPGRADE,
    TE,
    TRANSFER_ENCODING,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Claims about earlier hops that a client could make up.
const CLAIMS: [HeaderName; 7] = [
    FORWARDED,
    X_FORWARDED_FOR,
    X_FORWARDED_HOST,
    X_FORWARDED_PROTO,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-real-ip"),
];

/// Removes what ends at this hop, also what `Connection` lists, and a length beside a transfer coding, which
/// overrides it (RFC 9112, section 6.3). `te: trailers` stays: it says that the client reads trailers, and so
/// do we.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let has_trailers = lists(headers, &TE, "trailers");
    let listed: Vec<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        .filter(|name| *name != HOST)
        .collect();
    for name in HOP_BY_HOP.iter().chain(&listed) {
        headers.remove(name);
    }
    if has_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// The protocol that a client wants to switch to, such as `websocket`. HTTP/2 by upgrade is not offered:
/// it would tunnel requests past the routing.
pub(super) fn wanted_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let wants = lists(headers, &CONNECTION, "upgrade");
    let protocol = headers.get(UPGRADE).filter(|_| wants)?;
    tokens(headers, &UPGRADE).all(|token| !token.eq_ignore_ascii_case("h2c")).then(|| protocol.clone())
}

/// Sets the two headers of a protocol switch.
pub(super) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Tells the app who asked, how and for which host; what the client claimed about that is gone.
pub(super) fn set_forwarded(headers: &mut HeaderMap, peer: IpAddr, scheme: &'static str, host: &HeaderValue) {
    for name in &CLAIMS {
        headers.remove(name);
    }
    if let Ok(address) = HeaderValue::from_str(&peer.to_canonical().to_string()) {
        headers.insert(X_FORWARDED_FOR, address);
    }
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    headers.insert(X_FORWARDED_HOST, host.clone());
}

/// Makes one field of the several in which HTTP/2 clients send their cookies: HTTP/1.1 knows only one
/// (RFC 9113, section 8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let fields: Vec<&[u8]> = headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes).collect();
    if fields.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&fields.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

fn lists(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|listed| listed.eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        headers.keys().map(HeaderName::as_str).collect()
    }

    #[test]
    fn strips_what_connection_lists_but_never_the_host() {
        let mut headers = map(&[
            ("host", "a"),
            ("connection", "Keep-Alive, X-Secret, host, not a name"),
            ("keep-alive", "5"),
            ("x-secret", "1"),
            ("te", "gzip, Trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("accept", "*/*"),
        ]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(names(&headers), ["host", "accept", "te"]);
        assert_eq!(headers.get(TE).unwrap(), "trailers");
    }

    #[test]
    fn upgrades_need_both_headers_and_are_never_h2c() {
        let wants =
            |connection, upgrade| wanted_upgrade(&map(&[("connection", connection), ("upgrade", upgrade)]));
        assert_eq!(wants("keep-alive, Upgrade", "websocket").unwrap(), "websocket");
        assert_eq!(wants("keep-alive", "websocket"), None);
        assert_eq!(wants("upgrade", "websocket, H2C"), None);
        assert_eq!(wanted_upgrade(&map(&[("connection", "upgrade")])), None);
    }

    #[test]
    fn claims_of_the_client_are_replaced() {
        let mut headers =
            map(&[("x-forwarded-for", "6.6.6.6"), ("forwarded", "for=6.6.6.6"), ("x-real-ip", "6.6.6.6")]);
        set_forwarded(
            &mut headers,
            "::ffff:10.0.0.1".parse().unwrap(),
            "https",
            &HeaderValue::from_static("h"),
        );
        assert_eq!(names(&headers), ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"]);
        assert_eq!(headers.get("x-forwarded-for").unwrap(), "10.0.0.1");
    }
}
