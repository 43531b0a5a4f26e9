//! `/apps/{app_id}/rollouts`: one change over several CVMs of an application

pub(crate) mod create;
pub(crate) mod steer;
mod view;

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use cloister_app_compose::{AppId, members};
use cloister_management_api::{ErrorCode, PlainError, Rollout, RolloutId, RolloutPage};
use utoipa::IntoParams;

use self::view::wire;
use super::own::{OwnApp, RolloutPath, parameter};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::input::Query;
use crate::api::paging::PageSizes;
use crate::api::responses::Authenticated;
use crate::rollouts::{RolloutEvent, RolloutKind, RolloutRequestError, Rollouts};
use crate::store::{Caller, RolloutRow};

pub(super) use create::{How, Source, begin};

const PAGE_SIZES: PageSizes = PageSizes { usual: 20, most: 100 };

members! {
    /// Query of `GET /apps/{app_id}/rollouts`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct RolloutsQuery {
        /// Number of the page.
        #[param(required = false, minimum = 1, default = 1)]
        pub page: Option<i64>,
        /// Most rollouts of the page.
        #[param(required = false, minimum = 1, maximum = 100, default = 20)]
        pub page_size: Option<i64>,
    }
}

/// List an application's rollouts
#[utoipa::path(
    get, path = "/apps/{app_id}/rollouts", tag = "Apps", operation_id = "list_rollouts",
    params(("app_id" = String, Path, description = "App id, hex"), RolloutsQuery),
    responses(
        (status = 200, description = "A page of rollouts, newest first", body = RolloutPage),
        (status = 404, description = "No such app in the workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn list(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
    Query(query): Query<RolloutsQuery>,
) -> ApiResult<Json<RolloutPage>> {
    let paging = PAGE_SIZES.read(query.page, query.page_size)?;
    let (app_id, workspace_id) = (app.app_id, caller.workspace_id);
    let total = api.store.count_rollouts_of_app(app_id, workspace_id).await?;
    let rows = api.store.rollouts_of_app(app_id, workspace_id, paging.limit(), paging.offset()).await?;
    let mut rollouts = Vec::new();
    for row in rows {
        rollouts.push(wire(&api, &caller, row).await?);
    }
    let total_pages = paging.pages(total);
    Ok(Json(RolloutPage { rollouts, total, page: paging.page, page_size: paging.page_size, total_pages }))
}

/// Get a rollout
#[utoipa::path(
    get, path = "/apps/{app_id}/rollouts/{rollout_id}", tag = "Apps", operation_id = "get_rollout",
    params(RolloutPath),
    responses(
        (status = 200, description = "The rollout with its members", body = Rollout),
        (status = 404, description = "No such app or rollout in the workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn detail(rollout: NamedRollout) -> ApiResult<Json<Rollout>> {
    rollout.shown(rollout.row().await?).await
}

/// The rollout that a path names. It is looked up by the operation, which reads its body first.
pub(crate) struct NamedRollout {
    api: Api,
    caller: Arc<Caller>,
    app_id: AppId,
    id: String,
}

impl FromRequestParts<Api> for NamedRollout {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> ApiResult<Self> {
        let Auth(caller) = Auth::from_request_parts(parts, api).await?;
        let OwnApp { app_id, .. } = OwnApp::from_request_parts(parts, api).await?;
        let id = parameter(parts, api, "rollout_id").await;
        Ok(Self { api: api.clone(), caller, app_id, id })
    }
}

impl NamedRollout {
    /// Its row. One of another application is not told from one that does not exist.
    async fn row(&self) -> ApiResult<RolloutRow> {
        let id: RolloutId = self.id.parse().map_err(|_| missing())?;
        let row = self.api.store.rollout(id.0).await?;
        let is_own = |row: &RolloutRow| {
            row.kind == RolloutKind::Update
                && row.workspace_id == Some(self.caller.workspace_id)
                && row.app_id.as_deref() == Some(self.app_id.to_string().as_str())
        };
        row.filter(is_own).ok_or_else(missing)
    }

    /// Moves it, and notes that the caller `did` it, where that explains how it stands.
    async fn steer(&self, event: RolloutEvent, did: Option<&str>) -> ApiResult<Json<Rollout>> {
        let id = self.row().await?.id;
        let reason = did.map(|did| format!("{did} by {}", self.caller.username));
        let moved = rollouts(&self.api).steer(id, event, reason.as_deref()).await.map_err(refusal)?;
        self.shown(moved).await
    }

    async fn shown(&self, row: RolloutRow) -> ApiResult<Json<Rollout>> {
        Ok(Json(wire(&self.api, &self.caller, row).await?))
    }
}

fn rollouts(api: &Api) -> Rollouts {
    Rollouts::new(api.store.clone(), api.clock.clone())
}

fn missing() -> ApiError {
    ApiError::not_found("Rollout")
}

/// A refusal in the words of the interface.
pub(crate) fn refusal(error: RolloutRequestError) -> ApiError {
    let text = error.to_string();
    match error {
        RolloutRequestError::NotFound => missing(),
        // Without a code: it passes.
        RolloutRequestError::UnderWay(_) | RolloutRequestError::ChangedMeanwhile => {
            ApiError::plain(StatusCode::CONFLICT, text).retry_after(RETRY_AFTER_S)
        }
        RolloutRequestError::NothingToChange | RolloutRequestError::IllegalMove { .. } => {
            ApiError::plain(StatusCode::BAD_REQUEST, text)
        }
        RolloutRequestError::MaxUnavailable(limit) => {
            ApiError::explained(ErrorCode::InvalidParameter, text).about("max_unavailable", limit)
        }
        RolloutRequestError::Store(error) => error.into(),
    }
}
