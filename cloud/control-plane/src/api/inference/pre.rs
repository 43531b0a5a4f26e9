//! `POST /internal/inference/consult/pre`: whether a key may have a request answered.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use cloister_management_api::{KeyScope, TokenId, WorkspaceId};
use serde::{Deserialize, Serialize};

use super::{inference, read};
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::inference::Refused;

/// Hex digits of the hash of a key.
const HASH_DIGITS: usize = 64;

/// What is looked at of a question. Prices and routes are the gateway's own, so that it does not matter which model is
/// asked, nor what the request is like.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Question {
    /// SHA-256 of the key, lower-case hex.
    api_key_hash: String,
    #[serde(default)]
    model: String,
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
    /// Seconds since the Unix epoch.
    reset_at: i64,
}

impl Answer {
    fn denied(status: u16, message: impl Into<String>) -> Self {
        Self { status: Some(status), message: Some(message.into()), ..Self::default() }
    }

    fn limited(Refused { limit, reset_at_s }: Refused) -> Self {
        Self {
            rate_limit: Some(RateLimit { limit, reset_at: reset_at_s }),
            ..Self::denied(429, "Rate limit exceeded. Please retry after some time.")
        }
    }
}

/// Decides: the key, its scope, the credit of its workspace, its rate, in this order.
pub(super) async fn consult(State(api): State<Arc<Api>>, body: Bytes) -> ApiResult<Json<Answer>> {
    let question: Question = read(&body)?;
    decide(&api, &question).await.map(Json)
}

async fn decide(api: &Arc<Api>, question: &Question) -> ApiResult<Answer> {
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
    if !api.store.has_credit(caller.workspace_id, now_ms).await? {
        return Ok(owner(Answer::denied(402, "Insufficient credits")));
    }
    // Without a model it is only asked whose key it is.
    if !question.model.is_empty()
        && let Some(rate) = &inference(api)?.rate
        && let Err(refused) = rate.take(caller.api_key_id, now_ms)
    {
        return Ok(owner(Answer::limited(refused)));
    }
    Ok(owner(Answer { allow: true, spend_mode: Some("regular"), ..Answer::default() }))
}
