//! What the gateway answers when it does not answer: one table of kinds, two shapes of bodies.

use http::StatusCode;
use serde::Serialize;

use crate::accounting::Left;

/// Why a request got no answer. The texts of the interface stand in [`Kind::row`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No bearer key, or none that is known.
    Authentication,
    /// The key's owner has no credit left.
    NoCredit,
    /// The key may not use this model.
    ModelNotAllowed,
    /// The request cannot be understood, or asks for what is not there.
    InvalidRequest,
    /// No model has this name.
    UnknownModel,
    /// The model has no route that the request's constraints leave.
    NoRoute,
    /// Nothing is at this path.
    UnknownPath,
    /// The path does not take this method.
    Method,
    /// The body is larger than the limit.
    TooLarge,
    /// The key's own limit.
    RateLimited,
    /// The upstream's limit, on the last route.
    UpstreamBusy,
    /// The upstream did not take the request, for a reason that lies in the request; with its status.
    UpstreamRefused(StatusCode),
    /// The upstream has nothing of this name.
    UpstreamNotFound,
    /// The upstream failed, timed out, or answered with nonsense.
    Upstream,
    /// No route could prove what the request demands.
    VerificationFailed,
    /// None of the sessions that were asked for holds.
    SessionNotAccepted,
    /// Whoever knows keys and credits cannot be asked.
    Unavailable,
    /// Whoever knows keys and credits says no, with a status.
    Denied(StatusCode),
    /// A fault of the gateway.
    Internal,
    /// A receipt or session that is not there, or not for this key.
    NotFound,
    /// A receipt with an owner, and no key.
    Unauthorized,
    /// An endpoint for the operator, and another token than the operator's.
    Forbidden,
    /// A list of the configuration that cannot be served; with its `error.type`.
    InvalidConfiguration(&'static str),
    /// Encryption between client and gateway; with its name.
    E2ee(&'static str),
    /// Older clients name how texts are signed; not like this.
    SigningAlgo,
    /// Evidence of the machine is asked for more often than the machine can make it.
    TooManyReports,
}

/// How a kind is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// HTTP status.
    pub status: StatusCode,
    /// `error.type`.
    pub kind: &'static str,
    /// `error.code`.
    pub code: Option<&'static str>,
}

impl Kind {
    /// How it is answered (spec 7.3).
    #[must_use]
    pub const fn row(self) -> Row {
        use StatusCode as Status;
        let (status, kind, code) = match self {
            Self::Authentication => (Status::UNAUTHORIZED, "authentication_error", None),
            Self::NoCredit => (Status::FORBIDDEN, "permission_error", Some("insufficient_credits")),
            Self::ModelNotAllowed => (Status::FORBIDDEN, "permission_error", Some("model_not_allowed")),
            Self::InvalidRequest => (Status::BAD_REQUEST, "invalid_request_error", None),
            Self::UnknownModel => (Status::BAD_REQUEST, "model_not_found", Some("model_not_found")),
            Self::NoRoute | Self::UnknownPath | Self::UpstreamNotFound => {
                (Status::NOT_FOUND, "not_found_error", None)
            }
            Self::Method => (Status::METHOD_NOT_ALLOWED, "invalid_request_error", None),
            Self::TooLarge => (Status::PAYLOAD_TOO_LARGE, "invalid_request_error", None),
            Self::RateLimited => (Status::TOO_MANY_REQUESTS, "rate_limit_error", Some("rate_limit_exceeded")),
            Self::UpstreamBusy | Self::TooManyReports => {
                (Status::TOO_MANY_REQUESTS, "rate_limit_error", None)
            }
            Self::UpstreamRefused(status) => (status, "invalid_request_error", None),
            Self::Upstream => (Status::BAD_GATEWAY, "upstream_error", None),
            Self::Unavailable => (Status::SERVICE_UNAVAILABLE, "service_unavailable", None),
            Self::Denied(status) => (status, denied_type(status), None),
            Self::VerificationFailed => (Status::SERVICE_UNAVAILABLE, "upstream_verification_failed", None),
            Self::SessionNotAccepted => (Status::PRECONDITION_FAILED, "session_not_accepted", None),
            Self::Internal => (Status::INTERNAL_SERVER_ERROR, "internal_error", None),
            Self::NotFound => (Status::NOT_FOUND, "not_found", None),
            Self::Unauthorized => (Status::UNAUTHORIZED, "unauthorized", None),
            Self::Forbidden => (Status::FORBIDDEN, "forbidden", None),
            Self::InvalidConfiguration(name) | Self::E2ee(name) => (Status::BAD_REQUEST, name, None),
            Self::SigningAlgo => (Status::BAD_REQUEST, "invalid_signing_algo", None),
        };
        Row { status, kind, code }
    }

    /// Its name in a log: the code that clients get, or the type where that says as much.
    #[must_use]
    pub fn name(self) -> &'static str {
        let Row { kind, code, .. } = self.row();
        code.unwrap_or(kind)
    }

    /// Whether what was to protect the request did not hold: no surface has another word for that, and to try again
    /// proves nothing.
    #[must_use]
    pub const fn is_about_proof(self) -> bool {
        matches!(self, Self::VerificationFailed | Self::SessionNotAccepted | Self::E2ee(_))
    }
}

/// `error.type` of what a control plane denies.
const fn denied_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        402 | 403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        500.. => "service_unavailable",
        _ => "invalid_request_error",
    }
}

/// A failure as the client gets it. The message is for clients: it names no upstream, no host and no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GatewayError {
    /// Why.
    pub kind: Kind,
    /// The same in words.
    pub message: String,
    /// The member of the request that it is about.
    pub param: Option<String>,
    /// Seconds after which it makes sense to ask again.
    pub retry_after: Option<u64>,
    /// What the key's limits say, where one of them is the reason.
    pub left: Option<Box<Left>>,
}

/// Longest message, in bytes. What clients send and upstreams answer stands in some of them.
const MAX_MESSAGE_BYTES: usize = 4 << 10;
/// Most characters of a name that a client sent.
const MAX_NAME: usize = 64;

/// A name that a client sent, fit to be shown to it: of what is sent in megabytes no message may be made.
#[must_use]
pub fn shown(name: &str) -> String {
    printable(name, MAX_NAME)
}

/// So many characters of what somebody else wrote, without those that do something to what shows them.
#[must_use]
pub fn printable(text: &str, most: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(most).collect()
}

impl GatewayError {
    /// A failure of a kind. A message that is too long is cut.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MAX_MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
            message.shrink_to_fit();
        }
        Self { kind, message, param: None, retry_after: None, left: None }
    }

    /// A fault of the request in one of its members.
    #[must_use]
    pub fn parameter(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(Kind::InvalidRequest, message) }
    }

    /// A limit of the key has no room.
    #[must_use]
    pub fn limited(left: Left) -> Self {
        let retry_after = left.refusal().map(|decision| decision.reset_s.max(1));
        Self {
            retry_after,
            left: Some(Box::new(left)),
            ..Self::new(Kind::RateLimited, "Rate limit exceeded")
        }
    }

    /// The status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.kind.row().status
    }

    /// The body in the gateway's own shape (spec 2.12).
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let row = self.kind.row();
        let error = OpenAiError {
            message: &self.message,
            kind: row.kind,
            code: row.code,
            param: self.param.as_deref(),
        };
        // Texts only: this cannot fail.
        serde_json::to_vec(&Outer { error }).unwrap_or_default()
    }

    /// The body in the shape of the Messages surface.
    #[must_use]
    pub fn messages_body(&self, request_id: &str) -> Vec<u8> {
        let row = self.kind.row();
        let kind = if self.kind.is_about_proof() { row.kind } else { messages_type(row.status) };
        let error = MessagesError { kind, message: &self.message };
        serde_json::to_vec(&MessagesOuter { kind: "error", error, request_id }).unwrap_or_default()
    }
}

/// `error.type` of the Messages surface, which goes by the status alone where that surface has a word for it.
const fn messages_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

#[derive(Serialize)]
struct Outer<'a> {
    error: OpenAiError<'a>,
}

#[derive(Serialize)]
struct OpenAiError<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<&'a str>,
}

#[derive(Serialize)]
struct MessagesOuter<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    error: MessagesError<'a>,
    request_id: &'a str,
}

#[derive(Serialize)]
struct MessagesError<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    message: &'a str,
}

/// What an error says, with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_shapes() {
        let error = GatewayError::parameter("provider.zdr", "must be true or false");
        assert_eq!(
            String::from_utf8(error.body()).unwrap(),
            r#"{"error":{"message":"must be true or false","type":"invalid_request_error","code":null,"param":"provider.zdr"}}"#
        );
        assert_eq!(
            String::from_utf8(error.messages_body("req_1")).unwrap(),
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"must be true or false"},"request_id":"req_1"}"#
        );
    }

    #[test]
    fn the_table_of_the_specification() {
        for (kind, status, name) in [
            (Kind::Authentication, 401, "authentication_error"),
            (Kind::InvalidRequest, 400, "invalid_request_error"),
            (Kind::UnknownModel, 400, "model_not_found"),
            (Kind::NoRoute, 404, "not_found_error"),
            (Kind::Upstream, 502, "upstream_error"),
            (Kind::NoCredit, 403, "permission_error"),
            (Kind::RateLimited, 429, "rate_limit_error"),
            (Kind::Internal, 500, "internal_error"),
            (Kind::Unavailable, 503, "service_unavailable"),
        ] {
            let row = kind.row();
            assert_eq!((row.status.as_u16(), row.kind), (status, name), "{kind:?}");
        }
        assert_eq!(messages_type(StatusCode::PAYLOAD_TOO_LARGE), "request_too_large");
        assert_eq!(messages_type(StatusCode::BAD_GATEWAY), "api_error");
        assert_eq!(messages_type(StatusCode::UNPROCESSABLE_ENTITY), "invalid_request_error");
    }
}
