//! `GET /workspace/webhooks/{webhook_id}`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{PlainError, Webhook, WebhookId};

use super::OwnWebhook;
use super::wire::{Shown, webhook};
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::responses::Authenticated;

/// Get a webhook
#[utoipa::path(
    get, path = "/workspace/webhooks/{webhook_id}", tag = "Webhooks", operation_id = "get_webhook",
    params(("webhook_id" = WebhookId, Path, description = "Id of the webhook")),
    responses(
        (status = 200, description = "The webhook, its secret masked", body = Webhook),
        (status = 404, description = "The workspace has no such webhook", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn detail(State(api): State<Api>, OwnWebhook(row): OwnWebhook) -> ApiResult<Json<Webhook>> {
    Ok(Json(webhook(&api, row, &Shown::Masked)))
}
