//! `GET /apps/{app_id}`

use axum::Json;
use axum::extract::{Path, State};
use cloister_management_api::{AppMinimal, AppRecord, PlainError};

use super::records;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::negotiate::Version;
use crate::api::responses::Authenticated;

/// Get an app
///
/// In full for members of its workspace. Others see only that there is an app with this id, and only when it is
/// listed.
#[utoipa::path(
    get, path = "/apps/{app_id}", tag = "Apps", operation_id = "get_app",
    params(("app_id" = String, Path, description = "App id, hex")),
    responses(
        (status = 200, description = "The app, in the form of the version", body = AppRecord),
        (status = 404, description = "No such app, or it may not be seen", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn detail(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Path(app_id): Path<String>,
) -> ApiResult<Json<AppRecord>> {
    let app_id = super::parse(&app_id)?;
    if let Some(row) = api.store.app(caller.workspace_id, app_id).await? {
        let mut records = records(&api, caller.workspace_id, version, vec![row]).await?;
        return records.pop().map(Json).ok_or_else(super::missing);
    }
    let cvms = api.store.cvms_of_app(app_id).await?;
    if cvms.iter().any(|cvm| cvm.listed != 0) {
        return Ok(Json(AppRecord::Minimal(AppMinimal::of(app_id))));
    }
    Err(super::missing())
}
