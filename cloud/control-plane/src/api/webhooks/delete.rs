//! `DELETE /workspace/webhooks/{webhook_id}`

use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_management_api::{PlainError, WebhookId};

use super::{missing, named};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::responses::Authenticated;
use crate::store::Subject;

/// Delete a webhook
///
/// Its deliveries end, and its secret is forgotten.
#[utoipa::path(
    delete, path = "/workspace/webhooks/{webhook_id}", tag = "Webhooks", operation_id = "delete_webhook",
    params(("webhook_id" = WebhookId, Path, description = "Id of the webhook")),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "The workspace has no such webhook", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn delete(
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    let id = named(&id)?;
    let mut change = api.store.change().await?;
    change.about(Subject::Webhook(id)).await?;
    if !change.delete_webhook(caller.workspace_id, id, api.clock.now_ms()).await? {
        return Err(missing());
    }
    change.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
