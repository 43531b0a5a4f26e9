//! `GET /workspace/webhooks/{webhook_id}/deliveries`

use axum::Json;
use axum::extract::State;
use cloister_app_compose::members;
use cloister_management_api::{PlainError, WebhookDelivery, WebhookId};
use utoipa::IntoParams;

use super::OwnWebhook;
use super::wire::delivery;
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::input::Query;
use crate::api::responses::Authenticated;

const DEFAULT_LIMIT: i64 = 50;
const MAX_LIMIT: i64 = 200;

members! {
    /// Query of `GET /workspace/webhooks/{webhook_id}/deliveries`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct DeliveriesQuery {
        /// Most deliveries; less than 1 counts as 1, and more than 200 as 200.
        #[param(required = false, default = 50)]
        pub limit: Option<i64>,
        /// How many of the newest to leave out.
        #[param(required = false, default = 0)]
        pub offset: Option<i64>,
    }
}

/// List the deliveries of a webhook
///
/// Newest first. Deliveries are kept for 30 days.
#[utoipa::path(
    get, path = "/workspace/webhooks/{webhook_id}/deliveries", tag = "Webhooks",
    operation_id = "list_webhook_deliveries",
    params(("webhook_id" = WebhookId, Path, description = "Id of the webhook"), DeliveriesQuery),
    responses(
        (status = 200, description = "The deliveries", body = Vec<WebhookDelivery>),
        (status = 404, description = "The workspace has no such webhook", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn deliveries(
    State(api): State<Api>,
    OwnWebhook(row): OwnWebhook,
    Query(query): Query<DeliveriesQuery>,
) -> ApiResult<Json<Vec<WebhookDelivery>>> {
    // The interface names no bounds, so nothing outside of them is a fault.
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let offset = query.offset.unwrap_or(0).max(0);
    let rows = api.store.webhook_deliveries(row.id, limit, offset).await?;
    Ok(Json(rows.into_iter().map(delivery).collect()))
}
