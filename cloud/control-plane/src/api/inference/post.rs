//! `POST /internal/inference/consult/post`: what an attempt used and cost.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use cloister_management_api::TokenId;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{MAX_COST, MAX_DECIMALS, check_name, decimal, fault, read};
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::housekeeping::KEPT_ATTEMPTS_MS;
use crate::store::NewAttempt;

/// Most tokens of an attempt.
const MAX_TOKENS: i64 = 1_000_000_000_000;
/// How much earlier than attempts are forgotten they are too old: clocks may differ.
const LEEWAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What is recorded of a row.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    request_id: String,
    status: u16,
    #[serde(default)]
    attempt_index: u32,
    #[serde(default)]
    endpoint: Option<String>,
    /// Absent where no upstream was asked.
    #[serde(default)]
    selected_route_id: Option<String>,
    request_model: String,
    #[serde(default)]
    prompt_tokens: i64,
    #[serde(default)]
    completion_tokens: i64,
    /// As the gateway computed it; nothing where it does not say.
    #[serde(default, deserialize_with = "decimal")]
    cost: Decimal,
    /// As it was admitted.
    #[serde(default)]
    virtual_key_id: Option<String>,
    /// When the attempt ended, in seconds since the Unix epoch.
    #[serde(default)]
    ended_at: Option<i64>,
    /// Whether the request is over with it.
    #[serde(default)]
    is_last: bool,
}

/// What became of a row that is understood. Whatever it is, the row need not be told again.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    /// Whether it was recorded now: not when it had been, and not when it is nobody's or nothing was asked of anybody.
    recorded: bool,
}

/// Records a row once, however often it is told.
pub(super) async fn record(State(api): State<Api>, body: Bytes) -> ApiResult<Json<Told>> {
    let row: Row = read(&body)?;
    check(&row)?;
    let recorded = keep(&api, &row).await?;
    Ok(Json(Told { recorded }))
}

fn check(row: &Row) -> ApiResult<()> {
    check_name("requestId", Some(&row.request_id))?;
    check_name("requestModel", Some(&row.request_model))?;
    check_name("selectedRouteId", row.selected_route_id.as_deref())?;
    check_name("endpoint", row.endpoint.as_deref())?;
    for (member, tokens) in [("promptTokens", row.prompt_tokens), ("completionTokens", row.completion_tokens)]
    {
        if !(0..=MAX_TOKENS).contains(&tokens) {
            return fault(member, "Input should be a number of tokens");
        }
    }
    if !(Decimal::ZERO..=MAX_COST).contains(&row.cost) {
        return fault("cost", "Input should be from 0 to 1000000");
    }
    Ok(())
}

async fn keep(api: &Api, row: &Row) -> ApiResult<bool> {
    let request_id = row.request_id.as_str();
    let Some(key) = &row.virtual_key_id else {
        // A gateway that never learned whose request it is asked all the same, and something may be set aside.
        if row.is_last {
            let mut change = api.store.upkeep().await?;
            change.release_request(request_id).await?;
            change.commit().await?;
        }
        return Ok(false);
    };
    let now_ms = api.clock.now_ms();
    let oldest_ms = now_ms.saturating_sub(KEPT_ATTEMPTS_MS - LEEWAY_MS);
    if row.ended_at.is_some_and(|ended_at| ended_at.saturating_mul(1000) < oldest_ms) {
        // Whether it was told before is not known any more. The gateway keeps what is refused, and says so.
        warn!(request_id, cost = %row.cost, "an attempt is told of so late that it is refused");
        return fault("endedAt", "The attempt ended more than 89 days ago: it cannot be charged any more");
    }
    let owner = match key.parse::<TokenId>() {
        Ok(TokenId(id)) => api.store.workspace_of_api_key(id).await?.map(|workspace_id| (id, workspace_id)),
        Err(_) => None,
    };
    let Some((api_key_id, workspace_id)) = owner else {
        warn!(request_id, cost = %row.cost, "an attempt of a key that this installation never had is not charged");
        return Ok(false);
    };
    let mut change = api.store.upkeep().await?;
    // What no upstream was asked for costs nothing; its model may be any text of a client's.
    let Some(route) = &row.selected_route_id else {
        if row.is_last {
            change.release(workspace_id, request_id).await?;
            change.commit().await?;
        }
        return Ok(false);
    };
    let new = NewAttempt {
        request_id,
        attempt_index: row.attempt_index.into(),
        status: row.status.into(),
        workspace_id,
        api_key_id,
        endpoint: row.endpoint.as_deref().unwrap_or_default(),
        model: &row.request_model,
        route,
        prompt_tokens: row.prompt_tokens,
        completion_tokens: row.completion_tokens,
        cost: row.cost.round_dp(MAX_DECIMALS),
        is_last: row.is_last,
    };
    let recorded = change.record_attempt(&new, now_ms).await?;
    change.commit().await?;
    Ok(recorded)
}
