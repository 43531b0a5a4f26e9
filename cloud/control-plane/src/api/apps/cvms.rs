//! `GET /apps/{app_id}/cvms`

use axum::Json;
use axum::extract::{Path, State};
use cloister_management_api::PlainError;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::cvms::list::{CvmList, show};
use crate::api::error::ApiResult;
use crate::api::negotiate::Version;
use crate::api::responses::Authenticated;

/// List the CVMs of an app
///
/// Those of the workspace, newest first, at most 100.
#[utoipa::path(
    get, path = "/apps/{app_id}/cvms", tag = "Apps", operation_id = "list_app_cvms",
    params(("app_id" = String, Path, description = "App id, hex")),
    responses(
        (status = 200, description = "The CVMs, in the form of the version", body = CvmList),
        (status = 404, description = "The workspace has no such app", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn cvms(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Path(app_id): Path<String>,
) -> ApiResult<Json<CvmList>> {
    let app_id = super::parse(&app_id)?;
    let cvms = api.store.cvms_of_apps(caller.workspace_id, &[app_id]).await?;
    if cvms.is_empty() {
        return Err(super::missing());
    }
    show(&api, version, &cvms).await.map(Json)
}
