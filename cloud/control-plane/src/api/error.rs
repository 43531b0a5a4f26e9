//! Failed requests. Handlers return an [`ApiError`]; its body is written by the outermost layer, which
//! knows the request id.

use std::error::Error;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use cloister_app_compose::decode::Fault;
use cloister_management_api::{ErrorBody, ErrorCode, ErrorDetail, ErrorLink, PlainError, ValidationError};
use serde::Serialize;
use serde_json::Value;
use url::Url;

use crate::clock::NoRandomness;
use crate::people::PeopleError;
use crate::store::StoreError;

/// Seconds after which a client may repeat a request that was refused only for now.
pub(crate) const RETRY_AFTER_S: u32 = 5;

/// A failed request.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    status: StatusCode,
    content: Content,
    retry_after_s: Option<u32>,
}

#[derive(Debug, Clone)]
enum Content {
    Plain(String),
    Coded {
        code: ErrorCode,
        message: String,
        details: Vec<ErrorDetail>,
        suggestions: Vec<String>,
        links: Vec<ErrorLink>,
    },
    Faults(Vec<Fault>),
}

pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// A failure without a code.
    pub(crate) fn plain(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, content: Content::Plain(detail.into()), retry_after_s: None }
    }

    /// A failure of the catalogue in its own words.
    pub(crate) fn coded(code: ErrorCode) -> Self {
        Self::explained(code, code.title())
    }

    /// A failure of the catalogue with a more exact message.
    pub(crate) fn explained(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::from_u16(code.status()).unwrap_or(StatusCode::BAD_REQUEST),
            content: Content::Coded {
                code,
                message: message.into(),
                details: Vec::new(),
                suggestions: Vec::new(),
                links: Vec::new(),
            },
            retry_after_s: None,
        }
    }

    /// A request that does not fit its schema.
    pub(crate) fn faults(faults: Vec<Fault>) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            content: Content::Faults(faults),
            retry_after_s: None,
        }
    }

    /// One fault at a place, for what the schema alone cannot say.
    pub(crate) fn fault(loc: &[&str], kind: &'static str, msg: impl Into<String>) -> Self {
        let loc = loc.iter().map(ToString::to_string).collect();
        Self::faults(vec![Fault { loc, msg: msg.into(), kind }])
    }

    /// Names the member that a coded failure is about.
    pub(crate) fn about(mut self, field: &str, value: impl Into<Value>) -> Self {
        if let Content::Coded { details, .. } = &mut self.content {
            details.push(ErrorDetail { field: field.to_owned(), value: value.into(), message: None });
        }
        self
    }

    /// The same with the reason for this value.
    pub(crate) fn about_because(
        mut self,
        field: &str,
        value: impl Into<Value>,
        reason: impl Into<String>,
    ) -> Self {
        if let Content::Coded { details, .. } = &mut self.content {
            details.push(ErrorDetail {
                field: field.to_owned(),
                value: value.into(),
                message: Some(reason.into()),
            });
        }
        self
    }

    /// Adds what to do, or to know for that, to a coded failure.
    pub(crate) fn suggest(mut self, text: impl Into<String>) -> Self {
        if let Content::Coded { suggestions, .. } = &mut self.content {
            suggestions.push(text.into());
        }
        self
    }

    /// Adds where a person goes on, to a coded failure.
    pub(crate) fn link(mut self, url: impl Into<String>, label: &str) -> Self {
        if let Content::Coded { links, .. } = &mut self.content {
            links.push(ErrorLink { url: url.into(), label: label.to_owned() });
        }
        self
    }

    /// Answers with another status than the catalogue's, where the interface says so.
    pub(crate) const fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The status of the answer.
    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    /// The code, if it has one.
    pub(crate) const fn code(&self) -> Option<ErrorCode> {
        match &self.content {
            Content::Coded { code, .. } => Some(*code),
            Content::Plain(_) | Content::Faults(_) => None,
        }
    }

    /// Says that the same request may succeed later.
    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// Something of ours failed. Logged here, once; the caller gets no detail but the request id.
    pub(crate) fn internal(error: &(dyn Error + 'static)) -> Self {
        tracing::error!(error, "a request failed");
        Self::unexpected()
    }

    /// What a caller is told about a failure of ours.
    pub(crate) fn unexpected() -> Self {
        let text = "Internal error; give the operator the value of X-Request-ID";
        Self::plain(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    /// No usable credential. Never coded: clients know it by its form.
    pub(crate) fn unauthorised(detail: &str) -> Self {
        Self::plain(StatusCode::UNAUTHORIZED, detail)
    }

    /// A valid credential without the right.
    pub(crate) fn forbidden(detail: &str) -> Self {
        Self::plain(StatusCode::FORBIDDEN, detail)
    }

    /// Something other than a CVM that does not exist, or that the caller may not know of.
    pub(crate) fn not_found(what: &str) -> Self {
        Self::plain(StatusCode::NOT_FOUND, format!("{what} not found"))
    }

    /// What an empty response of a library stands for.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        let detail = match status {
            StatusCode::NOT_FOUND => "Not Found; see /openapi.json for the paths",
            StatusCode::METHOD_NOT_ALLOWED => "Method Not Allowed",
            StatusCode::PAYLOAD_TOO_LARGE => "The request body is too large",
            StatusCode::GATEWAY_TIMEOUT => {
                "The request took too long; look whether it had an effect before you repeat it"
            }
            StatusCode::INTERNAL_SERVER_ERROR => return Self::unexpected(),
            other => other.canonical_reason().unwrap_or("The request failed"),
        };
        let error = Self::plain(status, detail);
        if status == StatusCode::GATEWAY_TIMEOUT { error.retry_after(RETRY_AFTER_S) } else { error }
    }

    /// Writes the body.
    pub(crate) fn render(self, mut headers: HeaderMap, request_id: &str, public_url: &Url) -> Response {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let body = match self.content {
            Content::Plain(detail) => json(&PlainError { detail }),
            Content::Faults(faults) => json(&ValidationError::from(faults)),
            Content::Coded { code, message, details, suggestions, links } => json(&ErrorBody {
                error_code: code.to_string(),
                message,
                details,
                suggestions: [code.remedy().to_owned()].into_iter().chain(suggestions).collect(),
                links: links.into_iter().chain(link(code, public_url)).collect(),
                request_id: request_id.to_owned(),
            }),
        };
        (self.status, headers, Body::from(body)).into_response()
    }
}

fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}

/// Where this service explains a code.
fn link(code: ErrorCode, public_url: &Url) -> Option<ErrorLink> {
    let url = public_url.join(&format!("/errors/{code}")).ok()?;
    Some(ErrorLink { url: url.into(), label: format!("About {code}") })
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::internal(&error)
    }
}

impl From<PeopleError> for ApiError {
    fn from(error: PeopleError) -> Self {
        Self::internal(&error)
    }
}

impl From<NoRandomness> for ApiError {
    fn from(error: NoRandomness) -> Self {
        Self::internal(&error)
    }
}
