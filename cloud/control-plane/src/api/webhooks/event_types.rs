//! `GET /workspace/webhooks/event-types`

use axum::Json;
use cloister_management_api::WebhookEventType;
use cloister_webhooks::{EventKind, sample, schema};
use serde_json::json;

use crate::api::auth::Auth;
use crate::api::responses::Authenticated;

/// List kinds of events
///
/// Each with a JSON Schema of the body that webhooks get, and an example.
#[utoipa::path(
    get, path = "/workspace/webhooks/event-types", tag = "Webhooks", operation_id = "list_webhook_event_types",
    responses((status = 200, description = "The kinds", body = Vec<WebhookEventType>), Authenticated),
)]
pub(crate) async fn event_types(_: Auth) -> Json<Vec<WebhookEventType>> {
    let kind = |kind: &EventKind| WebhookEventType {
        event: kind.as_str().to_owned(),
        description: kind.description().to_owned(),
        schema: schema(*kind),
        example: json!(sample(*kind)),
    };
    Json(EventKind::ALL.iter().map(kind).collect())
}
