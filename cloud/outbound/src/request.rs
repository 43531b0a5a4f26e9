//! The request as it is sent.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Request, Version};
use http_body_util::Full;
use url::{Position, Url};

use crate::errors::SendError;

/// Headers that belong to the connection: they are made here, and nobody gives them.
const OURS: &[&str] = &[
    "host",
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A POST of a body to a URL that was checked.
pub(crate) fn post(
    url: &Url,
    mut headers: HeaderMap,
    body: Full<Bytes>,
) -> Result<Request<Full<Bytes>>, SendError> {
    if OURS.iter().any(|name| headers.contains_key(*name)) {
        return Err(SendError::Request);
    }
    let host = &url[Position::BeforeHost..Position::AfterPort];
    let host = HeaderValue::from_str(host).map_err(|_| SendError::Request)?;
    headers.insert(header::HOST, host);
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_11;
    let target = &url[Position::BeforePath..Position::AfterQuery];
    *request.uri_mut() = target.parse().map_err(|_| SendError::Request)?;
    *request.headers_mut() = headers;
    Ok(request)
}
