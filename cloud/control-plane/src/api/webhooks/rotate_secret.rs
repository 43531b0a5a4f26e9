//! `POST /workspace/webhooks/{webhook_id}/rotate-secret`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{PlainError, Webhook, WebhookId};
use cloister_webhooks::Secret;

use super::wire::{Shown, webhook};
use super::{OwnWebhook, missing};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::oauth::step_up;
use crate::api::responses::Authenticated;
use crate::store::Subject;

/// How long the secret before signs, too.
const OVERLAP_MS: i64 = 24 * 60 * 60 * 1000;

/// Give a webhook another secret
///
/// For 24 hours requests are signed with the new secret and with the one before; one that is older stops at once.
#[utoipa::path(
    post, path = "/workspace/webhooks/{webhook_id}/rotate-secret", tag = "Webhooks",
    operation_id = "rotate_webhook_secret",
    params(("webhook_id" = WebhookId, Path, description = "Id of the webhook")),
    responses(
        (status = 200, description = "The webhook with its new secret", body = Webhook),
        (status = 403, description = "A person's token, and the account has no second factor", body = PlainError),
        (status = 428, description = "A person's token needs a step-up: `POST /auth/step-up`", body = PlainError),
        (status = 404, description = "The workspace has no such webhook", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn rotate_secret(
    State(api): State<Api>,
    Auth(caller): Auth,
    OwnWebhook(former): OwnWebhook,
) -> ApiResult<Json<Webhook>> {
    let (id, now_ms) = (former.id, api.clock.now_ms());
    step_up::required(&api, &caller).await?;
    let secret = Secret::generate(api.random.bytes()?);
    let sealed =
        api.webhook_secrets.seal(id, &secret, api.random).map_err(|error| ApiError::internal(&error))?;
    let until_ms = now_ms.saturating_add(OVERLAP_MS);
    let mut change = api.store.change().await?;
    change.about(Subject::Webhook(id)).await?;
    if !change.rotate_webhook_secret(caller.workspace_id, id, &sealed, until_ms, now_ms).await? {
        return Err(missing());
    }
    let row = change.lock_webhook(caller.workspace_id, id).await?.ok_or_else(missing)?;
    change.commit().await?;
    Ok(Json(webhook(&api, row, &Shown::Full(&secret))))
}
