//! `POST /cvms/batch-stop`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{BatchStopError, BatchStopRequest, BatchStopResponse, PlainError};

use super::power;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::Authenticated;
use crate::api::target;
use crate::operations::{CvmStatus, OperationKind};
use crate::store::Caller;

/// Most CVMs of a request.
const MAX_CVMS: usize = 50;

/// What became of one CVM.
enum Outcome {
    Stopped,
    Skipped,
    Failed(&'static str),
}

/// Stop many CVMs
///
/// Takes the power of each away, as `POST /cvms/{cvm_id}/stop` does, but disturbs no operation: CVMs that
/// another operation works on, or that are off already, are skipped.
#[utoipa::path(
    post, path = "/cvms/batch-stop", tag = "CVMs", operation_id = "batch_stop_cvms",
    request_body(content = BatchStopRequest, example = json!({"cvm_ids": ["cvm_1"]})),
    responses(
        (status = 200, description = "What became of each", body = BatchStopResponse),
        (status = 400, description = "More than 50 ids", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn batch_stop(
    State(api): State<Api>,
    Auth(caller): Auth,
    Body(request): Body<BatchStopRequest>,
) -> ApiResult<Json<BatchStopResponse>> {
    if request.cvm_ids.len() > MAX_CVMS {
        let text = format!("At most {MAX_CVMS} CVMs can be stopped at once; split the list");
        return Err(ApiError::plain(StatusCode::BAD_REQUEST, text));
    }
    let mut response = BatchStopResponse { total: request.cvm_ids.len(), ..BatchStopResponse::default() };
    for cvm_id in request.cvm_ids {
        match stop(&api, &caller, &cvm_id).await? {
            Outcome::Stopped => response.stopped += 1,
            Outcome::Skipped => response.skipped += 1,
            Outcome::Failed(error) => {
                response.errors.push(BatchStopError { cvm_id, error: error.to_owned() });
            }
        }
    }
    Ok(Json(response))
}

async fn stop(api: &Api, caller: &Caller, cvm_id: &str) -> ApiResult<Outcome> {
    let cvm = match target::find(api, caller, cvm_id).await {
        Ok(cvm) => cvm,
        // One of ours failed, which concerns the whole request.
        Err(error) if error.status().is_server_error() => return Err(error),
        // A foreign CVM is as little known here as one that does not exist.
        Err(_) => return Ok(Outcome::Failed("CVM not found")),
    };
    if cvm.operation_id.is_some() || cvm.status == CvmStatus::Stopped {
        return Ok(Outcome::Skipped);
    }
    match power::accept(api, caller, &cvm, OperationKind::PowerOff, false).await {
        Ok(_) => Ok(Outcome::Stopped),
        Err(error) if error.status() == StatusCode::CONFLICT => Ok(Outcome::Skipped),
        Err(error) if error.status().is_server_error() => Err(error),
        Err(_) => Ok(Outcome::Failed("The CVM cannot be stopped in its status")),
    }
}
