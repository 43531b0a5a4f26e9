//! Pages for people who have a commit token: what a prepared change does, and a button that commits it. The token
//! stands behind the `#` of the address, which browsers send to nobody; without it the page shows nothing.

use std::sync::Arc;

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
struct File {
    content_type: &'static str,
    text: &'static str,
}

const PAGE: File = File { content_type: "text/html; charset=utf-8", text: include_str!("page/commit.html") };
const SCRIPT: File =
    File { content_type: "text/javascript; charset=utf-8", text: include_str!("page/commit.js") };
const STYLE: File = File { content_type: "text/css; charset=utf-8", text: include_str!("page/commit.css") };

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

/// The page of each kind of change, whichever CVM it is about, and what it loads.
pub(in crate::api) fn router() -> Router<Arc<Api>> {
    Router::new()
        .route("/commit-update/{vm_uuid}", get(async || PAGE))
        .route("/commit-replica/{vm_uuid}", get(async || PAGE))
        .route("/commit.js", get(async || SCRIPT))
        .route("/commit.css", get(async || STYLE))
}
