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
    /// The change does not give the expected compose hash (ERR-01-006).
    #[response(status = 466)]
    Superseded(ErrorBody),
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
