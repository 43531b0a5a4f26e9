//! `GET /cvms`

use axum::Json;
use axum::extract::State;
use cloister_app_compose::members;
use cloister_management_api::{ApiVersion, PlainError, UserId, v20251028, v20260121};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Query;
use crate::api::negotiate::Version;
use crate::api::responses::Authenticated;
use crate::api::scene::Scene;
use crate::api::view::View;
use crate::store::{Caller, CvmFilter, CvmRow};

/// Most CVMs of an answer without pages.
const MAX_CVMS: i64 = 10_000;

members! {
    /// Query of `GET /cvms`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct ListQuery {
        /// Only CVMs of this user (`usr_…`), of every workspace, or `0` for those of nobody. Administrators only.
        #[param(required = false)]
        pub user_id: Option<String>,
        /// Only CVMs on this node, of every workspace. Administrators only.
        #[param(required = false)]
        pub teepod_id: Option<i64>,
    }
}

/// The CVMs of an answer, in the form of its version.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum CvmList {
    /// Version 2025-10-28.
    Hosted(Vec<v20251028::HostedCvm>),
    /// Version 2026-01-21 and later.
    Info(Vec<v20260121::CvmInfo>),
}

/// List CVMs
///
/// The CVMs of the workspace, newest first.
#[utoipa::path(
    get, path = "/cvms", tag = "CVMs", operation_id = "list_cvms", params(ListQuery),
    responses(
        (status = 200, description = "The CVMs, in the form of the version", body = CvmList),
        (status = 403, description = "A filter for administrators only", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn list(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Query(query): Query<ListQuery>,
) -> ApiResult<Json<CvmList>> {
    let Some(filter) = filter(&caller, query.user_id.as_deref(), query.teepod_id)? else {
        return show(&api, version, &[]).await.map(Json);
    };
    let cvms = api.store.list_cvms(&filter, MAX_CVMS, 0).await?;
    show(&api, version, &cvms).await.map(Json)
}

/// Which CVMs a caller asks for; `None` when there can be none.
pub(super) fn filter(
    caller: &Caller,
    user_id: Option<&str>,
    node_id: Option<i64>,
) -> ApiResult<Option<CvmFilter>> {
    if user_id.is_none() && node_id.is_none() {
        return Ok(Some(CvmFilter { workspace_id: Some(caller.workspace_id), ..CvmFilter::default() }));
    }
    let user = match user_id {
        None => None,
        // Every CVM here has a creator.
        Some("0") => return allowed(caller).map(|()| None),
        Some(text) => Some(text.parse::<UserId>().map_err(|error| {
            ApiError::fault(&["query", "user_id"], "value_error", format!("{error}, or 0"))
        })?),
    };
    allowed(caller)?;
    Ok(Some(CvmFilter { workspace_id: None, user_id: user.map(|user| user.0), node_id }))
}

fn allowed(caller: &Caller) -> ApiResult<()> {
    if caller.is_admin() {
        Ok(())
    } else {
        Err(ApiError::forbidden("Only administrators may filter by user_id or teepod_id"))
    }
}

/// CVMs in the form of a version.
pub(crate) async fn show(api: &Api, version: ApiVersion, cvms: &[CvmRow]) -> ApiResult<CvmList> {
    let scene = Scene::of(api, cvms).await?;
    let views = cvms.iter().map(|cvm| View::new(api, &scene, cvm));
    Ok(if version < ApiVersion::V20260121 {
        CvmList::Hosted(views.map(|view| view.hosted()).collect())
    } else {
        CvmList::Info(views.map(|view| view.info()).collect())
    })
}
