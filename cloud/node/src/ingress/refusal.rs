//! What the ingress answers by itself. The texts are fixed: nothing that a client sent comes back.

use std::error::Error;
use std::io;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};

use super::Body;
use super::routes::Elsewhere;
use crate::backends::{Backend, Readiness};

/// Why a request does not reach an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No host, several, or one that is no text.
    NoHost,
    /// A host of somebody else.
    ForeignHost,
    /// Below the domain, but not of the right form.
    MalformedName,
    /// Nothing of that identity runs.
    UnknownApp,
    /// Nothing of that identity runs here, and where else cannot be found out.
    Unlocated,
    /// It boots, or its application is not up yet.
    Starting,
    /// It goes out of service.
    Leaving,
    /// Its application or its boot failed.
    Unhealthy,
    /// One of the three, on another node.
    NotReady,
    /// A name for TLS in the guest was used for plain HTTP.
    TlsOnly,
    /// The method would make the ingress an open proxy.
    Method,
    /// The app has as many requests under way, or as many of its ports in use, as it may.
    Busy,
    /// The app's port takes no connections or gave no answer.
    Unreachable,
}

impl Refusal {
    /// Why an app without a ready replica gets no request.
    pub(super) fn of_nobody(here: &[Backend], elsewhere: &Elsewhere) -> Self {
        match here.iter().map(|backend| backend.readiness).max() {
            Some(Readiness::Starting) => Self::Starting,
            Some(Readiness::Leaving) => Self::Leaving,
            Some(Readiness::Unhealthy) => Self::Unhealthy,
            // It was tried, in vain.
            Some(Readiness::Ready) => Self::Unreachable,
            None if !elsewhere.routes.is_empty() => Self::NotReady,
            None if elsewhere.is_certain => Self::UnknownApp,
            None => Self::Unlocated,
        }
    }

    /// What a failure on the way to the guest means: the backends' own reasons lie below those of the
    /// HTTP client.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            match error.downcast_ref().map(io::Error::kind) {
                // It was ready a moment ago.
                Some(io::ErrorKind::NotFound) => return Self::Leaving,
                Some(io::ErrorKind::QuotaExceeded) => return Self::Busy,
                _ => cause = error.source(),
            }
        }
        Self::Unreachable
    }

    fn parts(self) -> (StatusCode, &'static str) {
        match self {
            Self::NoHost => (
                StatusCode::BAD_REQUEST,
                "The request must name exactly one host, such as <app_id>.<domain>.",
            ),
            Self::ForeignHost => (
                StatusCode::NOT_FOUND,
                "Nothing is served under this host name. Apps are at <app_id>[-<port>].<domain>.",
            ),
            Self::MalformedName => (
                StatusCode::NOT_FOUND,
                "This is not the name of an app. Names have the form <app_id>[-<port>].<domain>, with the 40 hex \
                 digits of the app_id and a port from 1 to 65535.",
            ),
            Self::UnknownApp => (
                StatusCode::NOT_FOUND,
                "No running CVM has this app_id or instance_id. Check the identifier, and that the CVM is started.",
            ),
            Self::Unlocated => (
                StatusCode::SERVICE_UNAVAILABLE,
                "No running CVM has this app_id or instance_id here, and whether one runs elsewhere cannot be found \
                 out now. Try again shortly.",
            ),
            Self::Starting => (StatusCode::SERVICE_UNAVAILABLE, "The app is starting. Try again shortly."),
            Self::Leaving => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The app is being updated, moved or stopped. Try again shortly.",
            ),
            Self::Unhealthy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The app is unhealthy: it failed to start, or fails its health check. See the CVM's status and logs.",
            ),
            Self::NotReady => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The app is not ready: it is starting, being updated, or unhealthy. Try again shortly.",
            ),
            Self::TlsOnly => (
                StatusCode::MISDIRECTED_REQUEST,
                "Names that end in s lead to TLS inside the CVM. Use https on the ingress' TLS port, or the name without s.",
            ),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not served here."),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The app has too many requests under way or ports in use. Try again shortly.",
            ),
            Self::Unreachable => (
                StatusCode::BAD_GATEWAY,
                "The CVM runs, but nothing answered at this port. The app may still be starting, listen on another \
                 port (use <app_id>-<port>), or have failed: see the CVM's logs.",
            ),
        }
    }

    /// The answer for an HTTP client.
    pub(super) fn response(self) -> Response<Body> {
        let (status, text) = self.parts();
        let body = Full::new(Bytes::from(format!("{text}\n"))).map_err(|never| match never {}).boxed();
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status.is_server_error() {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("2"));
        }
        response
    }

    /// The fatal alert for a client that wants TLS in the guest (RFC 8446, section 6).
    pub(super) fn tls_alert(self) -> [u8; 7] {
        const UNRECOGNIZED_NAME: u8 = 112;
        const INTERNAL_ERROR: u8 = 80;
        let description = match self {
            _ if self.parts().0.is_server_error() => INTERNAL_ERROR,
            _ => UNRECOGNIZED_NAME,
        };
        [21, 3, 3, 0, 2, 2, description]
    }
}
