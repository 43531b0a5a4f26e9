use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use cloister_node_api::{NodeError, NodeErrorCode};

use crate::error::VmError;
use crate::images::ImageError;

/// A failure as the control plane sees it.
pub(super) struct ApiError(NodeError);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.http_status());
        (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Json(self.0)).into_response()
    }
}

impl From<VmError> for ApiError {
    fn from(error: VmError) -> Self {
        Self(error.into())
    }
}

impl From<ImageError> for ApiError {
    fn from(error: ImageError) -> Self {
        let code = error.code();
        if code == NodeErrorCode::Internal {
            tracing::error!(error = &error as &dyn std::error::Error, "the image store failed");
        }
        Self(NodeError { code, message: error.to_string() })
    }
}

impl From<JsonRejection> for ApiError {
    fn from(error: JsonRejection) -> Self {
        VmError::Invalid(error.body_text()).into()
    }
}

impl From<PathRejection> for ApiError {
    fn from(error: PathRejection) -> Self {
        VmError::Invalid(error.body_text()).into()
    }
}

impl From<QueryRejection> for ApiError {
    fn from(error: QueryRejection) -> Self {
        VmError::Invalid(error.body_text()).into()
    }
}
