//! `POST /internal/inference/consult/pre`: whether a key may have a request answered.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use cloister_management_api::{KeyScope, TokenId, WorkspaceId};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::{MAX_COST, MAX_DECIMALS, check_name, decimal, fault, read};
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::rate::Left;
use crate::store::{NewReservation, Reserved};

/// Hex digits of the hash of a key.
const HASH_DIGITS: usize = 64;

/// What is looked at of a question. Prices and routes are the gateway's own, so that it does not matter which model is
/// asked, nor what the request is like beside what it is expected to cost.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Question {
    /// SHA-256 of the key, lower-case hex.
    api_key_hash: String,
    #[serde(default)]
    model: String,
    /// Under which the request is told of when it is over. Absent from gateways that have nothing set aside.
    #[serde(default)]
    request_id: Option<String>,
    /// What the request is expected to cost at most, by the gateway's prices.
    #[serde(default, deserialize_with = "decimal")]
    estimated_cost: Decimal,
}

/// Leave, or the reason against it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    allow: bool,
    /// 401: no key of this installation; 402: no credit; 403: not for such a key; 429: too many requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Who pays: the id of the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    /// The id of the API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    virtual_key_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spend_mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_limit: Option<RateLimit>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RateLimit {
    limit: u32,
    /// In seconds since the Unix epoch: when the key may begin another one, or with leave, when it has all of them again.
    reset_at: i64,
    remaining: u32,
}

impl RateLimit {
    fn new(left: Left, now_ms: i64) -> Self {
        // Full seconds, rounded up: who comes by then is not refused again.
        let reset_at = (now_ms + 999).div_euclid(1000) + i64::from(left.retry_after_s());
        Self { limit: left.limit(), reset_at, remaining: left.remaining() }
    }
}

impl Answer {
    fn denied(status: u16, message: impl Into<String>) -> Self {
        Self { status: Some(status), message: Some(message.into()), ..Self::default() }
    }

    fn limited(left: Left, now_ms: i64) -> Self {
        Self {
            rate_limit: Some(RateLimit::new(left, now_ms)),
            ..Self::denied(429, "Rate limit exceeded. Please retry after some time.")
        }
    }
}

/// Decides: the key, its scope, its rate, the credit of its workspace, in this order, so that who is refused has
/// nothing set aside.
pub(super) async fn consult(State(api): State<Api>, body: Bytes) -> ApiResult<Json<Answer>> {
    let question: Question = read(&body)?;
    check_name("requestId", question.request_id.as_deref())?;
    if question.estimated_cost < Decimal::ZERO {
        return fault("estimatedCost", "Input should not be negative");
    }
    decide(&api, &question).await.map(Json)
}

async fn decide(api: &Api, question: &Question) -> ApiResult<Answer> {
    let now_ms = api.clock.now_ms();
    let caller = match question.api_key_hash.as_str() {
        hash if hash.len() == HASH_DIGITS => api.store.caller(hash, now_ms).await?,
        _ => None,
    };
    let Some(caller) = caller else {
        return Ok(Answer::denied(401, "Invalid, expired or revoked API key"));
    };
    // Also where it is refused: who looks for a use of a key that leaked wants to see it.
    api.key_uses.note(api, caller.api_key_id, now_ms);
    let owner = |answer: Answer| Answer {
        user_id: Some(WorkspaceId(caller.workspace_id).to_string()),
        virtual_key_id: Some(TokenId(caller.api_key_id).to_string()),
        ..answer
    };
    if !caller.scope.includes(KeyScope::Inference) {
        let message = format!(
            "This API key has the scope '{}'; inference needs a key of scope '{}'",
            caller.scope,
            KeyScope::Inference
        );
        return Ok(owner(Answer::denied(403, message)));
    }
    // With neither it is only asked whose key it is: nobody began a request.
    let is_request = !question.model.is_empty() || question.request_id.is_some();
    let left = match is_request.then(|| api.inference_requests.take(&caller.api_key_id)).transpose() {
        Ok(left) => left.flatten(),
        Err(left) => return Ok(owner(Answer::limited(left, now_ms))),
    };
    Ok(owner(match credit(api, caller.workspace_id, question, now_ms).await? {
        Reserved::SetAside => Answer {
            allow: true,
            spend_mode: Some("regular"),
            rate_limit: left.map(|left| RateLimit::new(left, now_ms)),
            ..Answer::default()
        },
        Reserved::NoCredit => Answer::denied(402, "Insufficient credits"),
        Reserved::UnderWay => Answer::denied(
            429,
            "Requests of this workspace that are under way may use up its credit; ask again when they are over",
        ),
    }))
}

/// Sets aside what a request is expected to cost, where the workspace needs credit.
async fn credit(api: &Api, workspace_id: i64, question: &Question, now_ms: i64) -> ApiResult<Reserved> {
    if !api.store.needs_credit(workspace_id).await? {
        return Ok(Reserved::SetAside);
    }
    // A request without a model is refused anyhow.
    let Some(request_id) = question.request_id.as_ref().filter(|_| !question.model.is_empty()) else {
        let left = api.store.funds(workspace_id, now_ms).await?;
        return Ok(if left.suffice() { Reserved::SetAside } else { Reserved::NoCredit });
    };
    let amount = question.estimated_cost.min(MAX_COST).round_dp(MAX_DECIMALS);
    let mut change = api.store.upkeep().await?;
    let reserved = change.set_aside(&NewReservation { workspace_id, request_id, amount }, now_ms).await?;
    change.commit().await?;
    Ok(reserved)
}
