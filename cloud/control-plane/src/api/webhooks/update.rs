//! `PUT /workspace/webhooks/{webhook_id}`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{PlainError, UpdateWebhookRequest, Webhook, WebhookId};

use super::wire::{Shown, webhook};
use super::{OwnWebhook, input, missing};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::input::Body;
use crate::api::responses::Authenticated;
use crate::store::WebhookChange;

/// Change a webhook
///
/// What is left out stays as it is. Deliveries that wait go to the address that it has when they are made.
#[utoipa::path(
    put, path = "/workspace/webhooks/{webhook_id}", tag = "Webhooks", operation_id = "update_webhook",
    params(("webhook_id" = WebhookId, Path, description = "Id of the webhook")),
    request_body = UpdateWebhookRequest,
    responses(
        (status = 200, description = "The webhook as it is now, its secret masked", body = Webhook),
        (status = 400, description = "The host of the address is not public", body = PlainError),
        (status = 404, description = "The workspace has no such webhook", body = PlainError),
        (status = 429, description = "Too many addresses are being checked; repeat the request after `Retry-After`", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn update(
    State(api): State<Api>,
    Auth(caller): Auth,
    OwnWebhook(row): OwnWebhook,
    Body(request): Body<UpdateWebhookRequest>,
) -> ApiResult<Json<Webhook>> {
    let name = request.name.as_deref().map(input::name).transpose()?;
    let events = request.events.as_deref().map(input::events).transpose()?;
    let url = match &request.url {
        Some(url) => Some(input::url(&api, &caller, url).await?),
        None => None,
    };
    let to = WebhookChange { url: url.as_deref(), name, events: events.as_deref(), enabled: request.enabled };
    let mut change = api.store.change().await?;
    let row = change.update_webhook(caller.workspace_id, row.id, &to, api.clock.now_ms()).await?;
    let row = row.ok_or_else(missing)?;
    change.commit().await?;
    Ok(Json(webhook(&api, row, &Shown::Masked)))
}
