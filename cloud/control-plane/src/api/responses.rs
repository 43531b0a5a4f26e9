//! The failures that many operations share, for the OpenAPI document.

use cloister_management_api::{ErrorBody, PlainError, ValidationError};
use utoipa::{IntoResponses, ToSchema};

/// Every operation that needs a credential.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes responses, is never made")]
pub(crate) enum Authenticated {
    /// No credential, or an invalid, expired or revoked one.
    #[response(status = 401)]
    Unauthorised(PlainError),
    /// The request does not fit its schema.
    #[response(status = 422)]
    Invalid(ValidationError),
}

/// Every operation on one CVM.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes responses, is never made")]
pub(crate) enum OnCvm {
    /// The name or identifier matches several CVMs (ERR-03-002, ERR-03-010).
    #[response(status = 400)]
    Ambiguous(ErrorBody),
    /// No credential, or an invalid, expired or revoked one.
    #[response(status = 401)]
    Unauthorised(PlainError),
    /// The CVM belongs to another workspace (ERR-03-004).
    #[response(status = 403)]
    Foreign(ErrorBody),
    /// There is no such CVM (ERR-03-001).
    #[response(status = 404)]
    NotFound(ErrorBody),
    /// The request does not fit its schema.
    #[response(status = 422)]
    Invalid(ValidationError),
}

/// Every operation that changes a CVM's power state.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes responses, is never made")]
pub(crate) enum OnPower {
    /// Another operation works on the CVM; repeat the request after `Retry-After`.
    #[response(status = 409)]
    Busy(PlainError),
    /// The CVM's node is under maintenance; repeat the request after `Retry-After`.
    #[response(status = 503)]
    Maintenance(PlainError),
}

/// Every operation that gives a CVM another configuration.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes responses, is never made")]
pub(crate) enum OnChange {
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(PlainError),
}

/// Every operation that changes a document which has a tag.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes responses, is never made")]
pub(crate) enum OnMatch {
    /// The document is not the one that `If-Match` names; read it again.
    #[response(status = 412)]
    Changed(PlainError),
}

/// Every operation that those who decide for the application may have to allow.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes responses, is never made")]
pub(crate) enum OnApproval {
    /// Those who decide have not allowed it, or it was only to be prepared (ERR-01-005). It is kept: the details
    /// say what has to be allowed, and have the token to commit it with.
    #[response(status = 465)]
    Required(ErrorBody),
    /// The workspace asks the chain too often at the same time; repeat the request after `Retry-After`.
    #[response(status = 429)]
    TooMany(PlainError),
    /// The change does not give the expected compose hash, or nothing that was prepared does (ERR-01-006).
    #[response(status = 466)]
    Superseded(ErrorBody),
    /// The transaction is not confirmed, was reverted, or did not allow this (ERR-01-007).
    #[response(status = 467)]
    Unproved(ErrorBody),
    /// Those who decide do not allow it (ERR-01-008).
    #[response(status = 468)]
    Denied(ErrorBody),
    /// Those who decide cannot be asked: the chain is not configured, or has no contract of the application.
    #[response(status = 500)]
    Misconfigured(PlainError),
    /// Those who decide cannot be asked now, or the node is under maintenance; repeat the request after
    /// `Retry-After`.
    #[response(status = 503)]
    Unreachable(PlainError),
}

/// Every operation whose only credential is a commit token.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes responses, is never made")]
pub(crate) enum OnCommit {
    /// The body is too large.
    #[response(status = 413)]
    TooLarge(PlainError),
    /// The request does not fit its schema.
    #[response(status = 422)]
    Invalid(ValidationError),
    /// The same token is used at this moment, or the workspace asks the chain too often at the same time; repeat the
    /// request after `Retry-After`.
    #[response(status = 429)]
    InUse(PlainError),
    /// The token is unknown, expired, superseded or used, or the CVM was changed meanwhile (ERR-01-006).
    #[response(status = 466)]
    TokenInvalid(ErrorBody),
    /// Those who decide cannot be asked: the chain is not configured, or has no contract of the application.
    #[response(status = 500)]
    Misconfigured(PlainError),
    /// Those who decide cannot be asked now, or the node is under maintenance; repeat the request after
    /// `Retry-After`.
    #[response(status = 503)]
    Unreachable(PlainError),
}

/// A form with a file, for the OpenAPI document.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a request, is never made")]
pub(crate) struct FileForm {
    /// The file.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// Every operation for administrators.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes responses, is never made")]
pub(crate) enum ForAdmins {
    /// No credential, or an invalid, expired or revoked one.
    #[response(status = 401)]
    Unauthorised(PlainError),
    /// The caller is no administrator.
    #[response(status = 403)]
    Forbidden(PlainError),
    /// The request does not fit its schema.
    #[response(status = 422)]
    Invalid(ValidationError),
}
