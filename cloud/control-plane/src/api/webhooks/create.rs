//! `POST /workspace/webhooks`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{CreateWebhookRequest, PlainError, Webhook};

use super::wire::{Shown, webhook};
use super::{MAX_WEBHOOKS, input, missing, refused};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::Authenticated;
use crate::store::{NewWebhook, Subject};

/// Create a webhook
///
/// It is told of what happens from now on. The answer has its secret.
#[utoipa::path(
    post, path = "/workspace/webhooks", tag = "Webhooks", operation_id = "create_webhook",
    request_body = CreateWebhookRequest,
    responses(
        (status = 201, description = "The webhook with its secret", body = Webhook),
        (status = 400, description = "The host of the address is not public, or the workspace has too many webhooks", body = PlainError),
        (status = 429, description = "Too many addresses are being checked; repeat the request after `Retry-After`", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn create(
    State(api): State<Api>,
    Auth(caller): Auth,
    Body(request): Body<CreateWebhookRequest>,
) -> ApiResult<(StatusCode, Json<Webhook>)> {
    let name = input::name(request.name.as_deref().unwrap_or_default())?;
    let events = input::events(&request.events)?;
    let secret = input::secret(&api, request.secret.as_deref())?;
    let url = input::url(&api, &caller, &request.url).await?;
    let (now_ms, workspace_id) = (api.clock.now_ms(), caller.workspace_id);
    let mut change = api.store.change().await?;
    change.lock_workspace(workspace_id).await?;
    if change.count_webhooks(workspace_id).await? >= MAX_WEBHOOKS {
        return Err(refused(format!("The workspace has {MAX_WEBHOOKS} webhooks; delete one first")));
    }
    let id = change.next_webhook_id().await?;
    change.about(Subject::Webhook(id)).await?;
    let sealed =
        api.webhook_secrets.seal(id, &secret, api.random).map_err(|error| ApiError::internal(&error))?;
    let new = NewWebhook { id, workspace_id, url: &url, name, events: &events, sealed_secret: &sealed };
    change.insert_webhook(&new, now_ms).await?;
    let row = change.lock_webhook(workspace_id, id).await?.ok_or_else(missing)?;
    change.commit().await?;
    Ok((StatusCode::CREATED, Json(webhook(&api, row, &Shown::Full(&secret)))))
}
