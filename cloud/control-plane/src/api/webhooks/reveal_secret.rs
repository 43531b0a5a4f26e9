//! `POST /workspace/webhooks/{webhook_id}/reveal-secret`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{PlainError, Webhook, WebhookId};
use serde_json::json;

use super::OwnWebhook;
use super::wire::{Shown, opened, webhook};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::oauth::step_up;
use crate::api::responses::Authenticated;

/// Reveal the secret of a webhook
///
/// It leaves a record in the audit log.
#[utoipa::path(
    post, path = "/workspace/webhooks/{webhook_id}/reveal-secret", tag = "Webhooks",
    operation_id = "reveal_webhook_secret",
    params(("webhook_id" = WebhookId, Path, description = "Id of the webhook")),
    responses(
        (status = 200, description = "The webhook with its secret", body = Webhook),
        (status = 403, description = "A person's token, and the account has no second factor", body = PlainError),
        (status = 428, description = "A person's token needs a step-up: `POST /auth/step-up`", body = PlainError),
        (status = 404, description = "The workspace has no such webhook", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn reveal_secret(
    State(api): State<Api>,
    Auth(caller): Auth,
    OwnWebhook(row): OwnWebhook,
) -> ApiResult<Json<Webhook>> {
    step_up::required(&api, &caller).await?;
    let secret = opened(&api, &row)?;
    api.store.record_alone(&json!({ "secret": "revealed" })).await?;
    Ok(Json(webhook(&api, row, &Shown::Full(&secret))))
}
