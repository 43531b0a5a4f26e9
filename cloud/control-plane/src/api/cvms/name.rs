//! `PATCH /cvms/{cvm_id}/name`

use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{PlainError, RenameRequest};

use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::OnCvm;
use crate::api::target::Target;

/// Rename a CVM
///
/// Nothing is restarted: inside of the CVM the host name changes with its next start.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/name", tag = "CVMs", operation_id = "rename_cvm",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = RenameRequest,
    responses(
        (status = 204, description = "Renamed"),
        (status = 400, description = "Another CVM of the workspace has the name", body = PlainError),
        OnCvm,
    ),
)]
pub(crate) async fn name(
    State(api): State<Api>,
    Target(cvm): Target,
    Body(request): Body<RenameRequest>,
) -> ApiResult<StatusCode> {
    let name = request.name.as_str();
    let mut change = api.store.change().await?;
    change.rename_cvm(cvm.id, name, api.clock.now_ms()).await.map_err(|error| {
        if error.is_duplicate() {
            // Clients know this failure by its status and that it has no code.
            let text = format!("CVM name \"{name}\" is already in use in this workspace");
            return ApiError::plain(StatusCode::BAD_REQUEST, text);
        }
        error.into()
    })?;
    change.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
