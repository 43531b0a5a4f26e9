//! `GET /workspace/inference-usage`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_app_compose::members;
use cloister_management_api::{
    InferenceUsage, InferenceUsageRecord, Instant, PlainError, TokenId, amount_text,
};
use utoipa::IntoParams;

use crate::api::Api;
use crate::api::apps::usage::window;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::{Query, within};
use crate::api::responses::Authenticated;
use crate::api::view::time;
use crate::store::InferenceHour;

const DEFAULT_LIMIT: u32 = 500;
const MAX_LIMIT: u32 = 5000;

members! {
    /// Query of `GET /workspace/inference-usage`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct InferenceUsageQuery {
        /// Beginning of the window: RFC 3339, or a date or time of day in UTC. Seven days before its end if left out.
        #[param(required = false, value_type = Option<String>, format = DateTime)]
        pub start_date: Option<Instant>,
        /// End of the window; now, or seven days after its beginning, if left out.
        #[param(required = false, value_type = Option<String>, format = DateTime)]
        pub end_date: Option<Instant>,
        /// Most records of the answer.
        #[param(required = false, minimum = 1, maximum = 5000, default = 500)]
        pub limit: Option<i64>,
        /// Records that are left out first.
        #[param(required = false, minimum = 0, default = 0)]
        pub offset: Option<i64>,
    }
}

/// Get what the workspace used of inference
///
/// One record for each API key, model and hour, newest hour first. An attempt counts in the hour in which its gateway
/// told of it, mostly at once; records of hours that are over do not change. `total` and `total_cost` are about the
/// whole window, of which the page shows a part.
#[utoipa::path(
    get, path = "/workspace/inference-usage", tag = "Billing", operation_id = "get_inference_usage",
    params(InferenceUsageQuery),
    responses(
        (status = 200, description = "The records", body = InferenceUsage),
        (status = 400, description = "The window ends before it begins", body = PlainError),
        (status = 429, description = "The workspace reads too many tables at the same time", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn get(
    State(api): State<Api>,
    Auth(caller): Auth,
    Query(query): Query<InferenceUsageQuery>,
) -> ApiResult<Json<InferenceUsage>> {
    let limit = within("limit", query.limit, DEFAULT_LIMIT, 1..=MAX_LIMIT)?;
    let offset = within("offset", query.offset, 0, 0..=u32::MAX)?;
    let window = window(query.start_date, query.end_date, api.clock.now_ms())?;
    let _slot = api.usage_tables.take(caller.workspace_id).ok_or_else(|| {
        let text = "The workspace reads other tables of usage at the moment; try again when they are read";
        ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text).retry_after(1)
    })?;
    let page = offset.into()..u64::from(offset) + u64::from(limit);
    let hours = api.store.inference_hours(caller.workspace_id, window, page).await?;
    Ok(Json(InferenceUsage {
        usage: hours.page.into_iter().map(wire).collect(),
        total: hours.total.cast_signed(),
        total_cost: amount_text(hours.cost),
        currency: api.store.prices().currency().to_owned(),
    }))
}

fn wire(hour: InferenceHour) -> InferenceUsageRecord {
    InferenceUsageRecord {
        hour: time(hour.hour_ms),
        model: hour.model,
        token_id: TokenId(hour.api_key_id),
        token_name: hour.api_key_name,
        requests: hour.answered,
        failed_attempts: hour.failed,
        prompt_tokens: hour.prompt_tokens,
        completion_tokens: hour.completion_tokens,
        cost: hour.cost,
    }
}
