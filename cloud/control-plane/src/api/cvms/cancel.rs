//! `POST /cvms/{cvm_id}/operations/cancel`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{CancelResponse, ErrorCode, PlainError};

use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::api::responses::OnCvm;
use crate::api::target::Target;
use crate::operations::CancelError;

/// Cancel the operation in progress
///
/// The operation stops, what it did is undone, and it ends as failed. An idle CVM is answered with
/// `cancelled: false`; repeating the call while the operation is being undone changes nothing. Refused are
/// operations that take power away or delete, one that failed by itself and is being undone already, and one
/// that has only to tidy up.
#[utoipa::path(
    post, path = "/cvms/{cvm_id}/operations/cancel", tag = "Operations", operation_id = "cancel_cvm_operation",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses(
        (status = 200, description = "Told to stop, or idle", body = CancelResponse),
        (status = 409, description = "The operation runs to its end", body = PlainError),
        OnCvm,
    ),
)]
pub(crate) async fn cancel(State(api): State<Api>, Target(cvm): Target) -> ApiResult<Json<CancelResponse>> {
    let cancellation = api.lifecycle.cancel(cvm.id).await.map_err(|error| match error {
        CancelError::NotFound => ApiError::coded(ErrorCode::CvmNotFound),
        CancelError::NotCancellable(_) | CancelError::TooLate(_) | CancelError::RollingBack(_) => {
            ApiError::plain(StatusCode::CONFLICT, error.to_string())
        }
        CancelError::Store(error) => error.into(),
    })?;
    let correlation_id = cancellation.correlation_id;
    Ok(Json(CancelResponse { cancelled: correlation_id.is_some(), correlation_id }))
}
