//! `GET /workspace/webhooks/{webhook_id}/stats`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{PlainError, WebhookFigures, WebhookId};

use super::OwnWebhook;
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::responses::Authenticated;
use crate::api::view::time;
use crate::store::WebhookStats;

/// Get figures about a webhook
///
/// Over the deliveries of the last 30 days.
#[utoipa::path(
    get, path = "/workspace/webhooks/{webhook_id}/stats", tag = "Webhooks", operation_id = "get_webhook_stats",
    params(("webhook_id" = WebhookId, Path, description = "Id of the webhook")),
    responses(
        (status = 200, description = "The figures", body = WebhookFigures),
        (status = 404, description = "The workspace has no such webhook", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn stats(
    State(api): State<Api>,
    OwnWebhook(row): OwnWebhook,
) -> ApiResult<Json<WebhookFigures>> {
    let stats = api.store.webhook_stats(row.id).await?;
    Ok(Json(WebhookFigures {
        total: stats.total,
        success_count: stats.success_count,
        failed_count: stats.failed_count,
        success_rate: rate(&stats),
        avg_duration_ms: stats.avg_duration_ms,
        max_duration_ms: stats.max_duration_ms,
        last_delivery_at: stats.last_delivery_at_ms.map(time),
    }))
}

/// Percent with two decimals.
fn rate(stats: &WebhookStats) -> f64 {
    let ended = stats.success_count.saturating_add(stats.failed_count);
    if ended == 0 {
        return 0.0;
    }
    // Whole hundredths of a percent, so that the figure has no more digits than it says.
    let hundredths = i128::from(stats.success_count) * 10_000 / i128::from(ended);
    i32::try_from(hundredths).map_or(0.0, f64::from) / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_what_ended() {
        let stats = |success_count, failed_count| WebhookStats {
            total: 100,
            success_count,
            failed_count,
            avg_duration_ms: 0,
            max_duration_ms: 0,
            last_delivery_at_ms: None,
        };
        let of = |success, failed| format!("{}", rate(&stats(success, failed)));
        assert_eq!([of(0, 0), of(3, 0), of(0, 3), of(2, 1), of(1, 3)], ["0", "100", "0", "66.66", "25"]);
    }
}
