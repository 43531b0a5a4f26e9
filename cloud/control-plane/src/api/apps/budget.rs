//! `/apps/{app_id}/budget`: what an application may cost in a month

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{AppBudget, AppBudgetRequest, PlainError, amount_text};
use rust_decimal::Decimal;

use super::own::OwnApp;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::Authenticated;
use crate::api::view::time;
use crate::billing;
use crate::store::{BudgetRow, NewBudget};

/// Get an application's budget
#[utoipa::path(
    get, path = "/apps/{app_id}/budget", tag = "Billing", operation_id = "get_app_budget",
    params(("app_id" = String, Path, description = "App id, hex")),
    responses(
        (status = 200, description = "The budget, and what the month cost so far", body = AppBudget),
        (status = 404, description = "The workspace has no such app, or it has no budget", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn get(
    State(api): State<Api>,
    Auth(caller): Auth,
    own: OwnApp,
) -> ApiResult<Json<AppBudget>> {
    let budget = api.store.budget(caller.workspace_id, own.app_id).await?;
    shown(&api, &budget.ok_or_else(|| ApiError::not_found("Budget"))?).await
}

/// Set an application's budget
///
/// When the application's costs of a month reach the share `alert_percent` of the limit, and when they reach all of
/// it, an event is told to webhooks, once in a month each. With `stop` the application's CVMs are stopped then, and
/// not started again before the next month or another budget.
#[utoipa::path(
    put, path = "/apps/{app_id}/budget", tag = "Billing", operation_id = "set_app_budget",
    params(("app_id" = String, Path, description = "App id, hex")),
    request_body(content = AppBudgetRequest, example = json!({"monthly_limit": "100", "alert_percent": 80, "stop": false})),
    responses(
        (status = 200, description = "The budget, and what the month cost so far", body = AppBudget),
        (status = 404, description = "The workspace has no such app", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn set(
    State(api): State<Api>,
    Auth(caller): Auth,
    own: OwnApp,
    Body(request): Body<AppBudgetRequest>,
) -> ApiResult<Json<AppBudget>> {
    if request.monthly_limit.0 <= Decimal::ZERO {
        let text = "Input should be above zero; to stop the application, stop its CVMs";
        return Err(ApiError::fault(&["body", "monthly_limit"], "greater_than", text));
    }
    if !(1..=99).contains(&request.alert_percent) {
        return Err(ApiError::fault(
            &["body", "alert_percent"],
            "out_of_range",
            "Input should be from 1 to 99",
        ));
    }
    let new = NewBudget {
        workspace_id: caller.workspace_id,
        app_id: own.app_id,
        monthly_limit: request.monthly_limit.0,
        alert_percent: request.alert_percent,
        stop: request.stop,
        set_by: caller.user_id,
    };
    let mut change = api.store.change().await?;
    change.put_budget(&new, api.clock.now_ms()).await?;
    change.commit().await?;
    let budget = api.store.budget(caller.workspace_id, own.app_id).await?;
    shown(&api, &budget.ok_or_else(|| ApiError::not_found("Budget"))?).await
}

/// Remove an application's budget
///
/// CVMs that it stopped stay so until they are started.
#[utoipa::path(
    delete, path = "/apps/{app_id}/budget", tag = "Billing", operation_id = "remove_app_budget",
    params(("app_id" = String, Path, description = "App id, hex")),
    responses(
        (status = 204, description = "Removed"),
        (status = 404, description = "The workspace has no such app, or it has no budget", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn remove(State(api): State<Api>, Auth(caller): Auth, own: OwnApp) -> ApiResult<StatusCode> {
    let mut change = api.store.change().await?;
    let removed = change.delete_budget(caller.workspace_id, own.app_id).await?;
    change.commit().await?;
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(ApiError::not_found("Budget")) }
}

async fn shown(api: &Api, budget: &BudgetRow) -> ApiResult<Json<AppBudget>> {
    let now = billing::standing(api, budget).await?;
    Ok(Json(AppBudget {
        app_id: budget.app_id,
        currency: api.store.prices().currency().to_owned(),
        monthly_limit: amount_text(budget.monthly_limit),
        alert_percent: budget.alert_percent,
        stop: budget.stop,
        month: now.month.name(),
        spent: amount_text(now.spent),
        state: now.state,
        updated_at: time(budget.updated_at_ms),
    }))
}
