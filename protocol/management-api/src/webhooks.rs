//! Webhooks of a workspace, what was sent to them, and sending it again.

use cloister_app_compose::members;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::ids::{WebhookCursor, WebhookId};
use crate::requests::{Instant, Parsed};

/// A webhook. Its secret is shown in full only where it is made or revealed; it has no `Debug`, so that no log does.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WebhookResponse)]
pub struct Webhook {
    /// Id.
    pub id: WebhookId,
    /// Where its requests go.
    pub url: String,
    /// What its requests are signed with: masked, such as `whsec_****…xxxx`, except in the answers that make or
    /// reveal it.
    #[schema(required)]
    pub secret: Option<String>,
    /// Kinds of events that it is told of; see `GET /workspace/webhooks/event-types`.
    pub events: Vec<String>,
    /// Name for people.
    #[schema(required)]
    pub name: Option<String>,
    /// Whether it is told anything.
    pub enabled: bool,
    /// Why the service disabled it by itself.
    #[schema(required)]
    pub disabled_reason: Option<String>,
    /// Until when requests are signed with the secret before this one, too.
    #[schema(required)]
    pub previous_secret_until: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was changed last.
    pub updated_at: Timestamp,
}

members! {
    /// Body of `POST /workspace/webhooks`.
    #[derive(Clone, PartialEq, Eq, ToSchema)]
    pub struct CreateWebhookRequest {
        /// Where its requests go: `https://`, a public host, at most 2048 bytes.
        #[schema(max_length = 2048, example = "https://hooks.example.org/cloister")]
        pub url: String,
        /// Kinds of events that it is told of, at least one.
        #[schema(min_items = 1, example = json!(["cvm.created", "cvm.deleted"]))]
        pub events: Vec<String>,
        /// Name for people, at most 100 characters.
        #[schema(max_length = 100)]
        pub name: Option<String>,
        /// A secret of your own: 16 to 200 printable ASCII characters without spaces. Left out: one is made.
        #[schema(min_length = 16, max_length = 200)]
        pub secret: Option<String>,
    }
}

members! {
    /// Body of `PUT /workspace/webhooks/{webhook_id}`. What is left out stays as it is.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct UpdateWebhookRequest {
        /// Where its requests go.
        #[schema(max_length = 2048)]
        pub url: Option<String>,
        /// Kinds of events that it is told of, at least one.
        #[schema(min_items = 1)]
        pub events: Option<Vec<String>>,
        /// Name for people, at most 100 characters; an empty one takes it away.
        #[schema(max_length = 100)]
        pub name: Option<String>,
        /// Whether it is told anything. Disabling it ends deliveries that wait; enabling it clears why the service
        /// disabled it, and begins with what happens from then on.
        pub enabled: Option<bool>,
    }
}

/// What became of one event for one webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WebhookDeliveryResponse)]
pub struct WebhookDelivery {
    /// Id of the delivery; later ones are larger.
    pub snowflake_id: i64,
    /// The event that the receiver sees.
    pub event_id: String,
    /// Its kind.
    pub event_type: String,
    /// `pending`, `success` or `failed`.
    pub status: String,
    /// Attempts so far.
    #[schema(minimum = 0, maximum = 4)]
    pub attempts: i64,
    /// Where the last attempt went.
    pub request_url: String,
    /// Status of the last answer; 0 without an answer.
    pub response_status: i64,
    /// Why the last attempt failed; empty if it did not.
    pub error_message: String,
    /// When the delivery began.
    pub created_at: Timestamp,
    /// How long the last attempt took.
    #[schema(default = 0)]
    pub duration_ms: i64,
    /// When the receiver had it.
    #[schema(required)]
    pub delivered_at: Option<Timestamp>,
    /// Of what was sent again: the event id of the first time. Empty otherwise.
    #[schema(default = "")]
    pub original_event_id: String,
}

/// One request of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookAttempt {
    /// Its number, from 1. One that a crash of this service interrupted has a number, but is repeated.
    pub number: i64,
    /// `pending` while it is under way, then `success`, `failed` or `interrupted`.
    pub outcome: String,
    /// When it began.
    pub began_at: Timestamp,
    /// When it ended.
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
    /// How long it took.
    pub duration_ms: i64,
    /// Status of the answer; 0 without an answer.
    pub response_status: i64,
    /// Why it failed; empty if it did not.
    pub error_message: String,
}

/// Figures about the deliveries of a webhook that are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = WebhookStatsResponse)]
pub struct WebhookFigures {
    /// All deliveries.
    pub total: i64,
    /// Those that the receiver has.
    pub success_count: i64,
    /// Those that were given up.
    pub failed_count: i64,
    /// Share of those that the receiver has among those that ended, 0 to 100; 0 when none ended.
    pub success_rate: f64,
    /// Mean duration of the last attempts.
    pub avg_duration_ms: i64,
    /// The longest of these.
    pub max_duration_ms: i64,
    /// When the receiver last had one.
    #[schema(required)]
    pub last_delivery_at: Option<Timestamp>,
}

/// A kind of event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WebhookEventType {
    /// Its name.
    #[schema(example = "cvm.created")]
    pub event: String,
    /// When it happens.
    pub description: String,
    /// JSON Schema (2020-12) of the body of a request.
    #[schema(value_type = Object)]
    pub schema: Value,
    /// Such a body.
    #[schema(value_type = Object)]
    pub example: Value,
}

members! {
    /// Body of `POST /workspace/webhooks/{webhook_id}/replay`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct ReplayWebhookRequest {
        /// Events from this time on.
        #[schema(value_type = Timestamp, format = "date-time")]
        pub since: Instant,
        /// Events before this time. Left out: now.
        #[schema(value_type = Option<Timestamp>, format = "date-time")]
        pub until: Option<Instant>,
        /// Only those that the webhook should have been told of, and that its receiver never had.
        #[schema(required = false)]
        pub only_failed: bool = false,
        /// Where the answer before said that more follow.
        #[schema(value_type = Option<WebhookCursor>)]
        pub after: Option<Parsed<WebhookCursor>>,
    }
}

/// What is sent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookReplay {
    /// How many events this request put on their way.
    pub count: i64,
    /// Where to go on, when more may follow: send the same request with it as `after`.
    #[schema(required)]
    pub next_after: Option<WebhookCursor>,
}
