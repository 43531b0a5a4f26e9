//! What the operations on a CVM's power state share.

use axum::Json;
use axum::http::StatusCode;
use cloister_management_api::{ApiVersion, ErrorCode, Vm};

use crate::api::Api;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::placing::placement_error;
use crate::api::scene::Scene;
use crate::api::view::View;
use crate::fleet::{PlacementError, Refusal};
use crate::operations::{LifecycleRequest, OperationKind, RequestError, Unfunded};
use crate::store::{Caller, CvmRow};

/// Accepts an operation and shows the CVM as it is then.
pub(super) async fn request(
    api: &Api,
    caller: &Caller,
    version: ApiVersion,
    cvm: &CvmRow,
    kind: OperationKind,
    force: bool,
) -> ApiResult<Json<Vm>> {
    let cvm = accept(api, caller, cvm, kind, force).await?;
    let scene = Scene::of(api, std::slice::from_ref(&cvm)).await?;
    Ok(Json(View::new(api, &scene, &cvm).vm(version)))
}

/// Accepts an operation.
pub(super) async fn accept(
    api: &Api,
    caller: &Caller,
    cvm: &CvmRow,
    kind: OperationKind,
    force: bool,
) -> ApiResult<CvmRow> {
    let accepted = api.lifecycle.request(cvm.id, LifecycleRequest { kind, force }, caller.user_id).await;
    accepted.map_err(request_error)
}

/// Why nobody pays, in the words of the interface.
pub(in crate::api) fn unfunded(why: Unfunded) -> ApiError {
    match why {
        Unfunded::NoCredit => ApiError::explained(ErrorCode::InsufficientBalance, why.to_string()),
        Unfunded::OverBudget => ApiError::explained(ErrorCode::ResourceLimit, why.to_string())
            .suggest("See what it cost: GET /api/v1/apps/{app_id}/budget"),
    }
}

/// A refusal in the words of the interface.
pub(in crate::api) fn request_error(error: RequestError) -> ApiError {
    let text = error.to_string();
    match error {
        RequestError::NotFound => ApiError::coded(ErrorCode::CvmNotFound),
        // Without a code, so that clients repeat it.
        RequestError::Busy(_) | RequestError::ChangedMeanwhile | RequestError::InRollout(_) => {
            ApiError::plain(StatusCode::CONFLICT, text).retry_after(RETRY_AFTER_S)
        }
        RequestError::Maintenance => {
            ApiError::plain(StatusCode::SERVICE_UNAVAILABLE, text).retry_after(RETRY_AFTER_S)
        }
        // Not 409: repeating it does not help.
        RequestError::IllegalStatus { .. } => ApiError::plain(StatusCode::BAD_REQUEST, text),
        RequestError::DiskShrinks { to, .. } => {
            ApiError::explained(ErrorCode::InvalidParameter, text).about("disk_size", to)
        }
        // The CVM is on this node and no other: all that helps is to come again.
        RequestError::Placement(PlacementError::Refused {
            reason: reason @ (Refusal::Maintenance | Refusal::Offline),
            ..
        }) => {
            let text = match reason {
                Refusal::Offline => "the CVM's node does not report; try again when it is back".to_owned(),
                _ => RequestError::Maintenance.to_string(),
            };
            ApiError::plain(StatusCode::SERVICE_UNAVAILABLE, text).retry_after(RETRY_AFTER_S)
        }
        RequestError::Placement(error) => placement_error(&error),
        RequestError::Unfunded(why) => unfunded(why),
        RequestError::Store(error) => error.into(),
        RequestError::Random(error) => error.into(),
    }
}
