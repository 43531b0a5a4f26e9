//! The failures that many operations share, for the OpenAPI document.

use cloister_management_api::{ErrorBody, PlainError, ValidationError};
use utoipa::IntoResponses;

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
