//! Pages for people who need not log in: for those who have a commit token, what a prepared change does, and a button that
//! commits it; for those who let a device in with an API key, what it calls itself, and two buttons. A commit token stands
//! behind the `#` of the address, which browsers send to nobody; an API key is typed in and leaves the page in a header only.
//! Who logged in has a page of `people/` for devices.

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::api::Api;

/// Everything comes from this server, and nothing can be put around or into the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page.
pub(super) struct File {
    content_type: &'static str,
    text: &'static str,
}

const fn page(text: &'static str) -> File {
    File { content_type: "text/html; charset=utf-8", text }
}

const fn script(text: &'static str) -> File {
    File { content_type: "text/javascript; charset=utf-8", text }
}

const COMMIT: File = page(include_str!("page/commit.html"));
const COMMIT_SCRIPT: File = script(include_str!("page/commit.js"));
pub(super) const DEVICE: File = page(include_str!("page/device.html"));
const DEVICE_SCRIPT: File = script(include_str!("page/device.js"));
const STYLE: File = File { content_type: "text/css; charset=utf-8", text: include_str!("page/page.css") };

impl IntoResponse for File {
    fn into_response(self) -> Response {
        let headers: [(HeaderName, &str); 5] = [
            (CONTENT_TYPE, self.content_type),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-cache"),
        ];
        (headers, self.text).into_response()
    }
}

/// The page of each kind of change, whichever CVM it is about, that for devices, and what they load.
pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/commit-update/{vm_uuid}", get(async || COMMIT))
        .route("/commit-replica/{vm_uuid}", get(async || COMMIT))
        .route("/commit.js", get(async || COMMIT_SCRIPT))
        .route("/device/key", get(async || DEVICE))
        .route("/device.js", get(async || DEVICE_SCRIPT))
        .route("/page.css", get(async || STYLE))
}
