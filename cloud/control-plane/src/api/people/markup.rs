//! What all pages look like.

use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use crate::api::guard::keep_body;

/// Nothing is loaded but the style, and forms go nowhere but here.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// A page.
pub(super) struct Page {
    status: StatusCode,
    title: &'static str,
    /// What went wrong.
    failure: Option<String>,
    body: Markup,
}

impl Page {
    pub(super) fn new(title: &'static str, body: Markup) -> Self {
        Self { status: StatusCode::OK, title, failure: None, body }
    }

    /// The same, which says above everything else why nothing was done.
    pub(super) fn refused(mut self, status: StatusCode, failure: impl Into<String>) -> Self {
        self.status = status;
        self.failure = Some(failure.into());
        self
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let headers: [(HeaderName, &str); 4] = [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            // Not less: browsers would send forms with `Origin: null`, as from another site.
            (REFERRER_POLICY, "same-origin"),
            (CACHE_CONTROL, "no-store"),
        ];
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="robots" content="noindex";
                    title { (self.title) }
                    link rel="stylesheet" href="/page.css";
                }
                body {
                    main {
                        h1 { (self.title) }
                        @if let Some(failure) = self.failure { p #message .failed role="alert" { (failure) } }
                        (self.body)
                    }
                }
            }
        };
        let mut response = (self.status, headers, Html(page.into_string())).into_response();
        keep_body(&mut response);
        response
    }
}

/// A field for a code by time or a backup code.
pub(super) fn code_field(label: &str, is_required: bool) -> Markup {
    html! {
        label for="code" { (label) }
        input #code name="code" autocomplete="one-time-code" spellcheck="false" maxlength="40"
            required[is_required];
    }
}
