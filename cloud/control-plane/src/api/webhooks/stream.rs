//! `GET /workspace/webhooks/events/stream`

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use cloister_app_compose::members;
use cloister_management_api::{Parsed, PlainError, WebhookCursor};
use cloister_webhooks::{Envelope, EventKind, WorkspaceRef};
use futures_util::{Stream, stream};
use serde_json::json;
use tokio::time::Instant;
use utoipa::IntoParams;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::input::Query;
use crate::api::responses::Authenticated;
use crate::api::slots::Slot;
use crate::api::view::time;
use crate::governance::with_token;
use crate::store::{Caller, StoreError, WebhookEventRow};

/// Streams that a workspace may have open at a time.
pub(crate) const MAX_STREAMS: usize = 5;
/// Events that are read at a time.
const BATCH: i64 = 100;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const LAST_EVENT_ID: &str = "last-event-id";

/// How fast a stream goes, and how long it lasts: a key that is revoked sees no more than the rest of a stream.
const PACE: Pace = Pace { look_every: Duration::from_secs(1), lifetime: Duration::from_mins(5) };

members! {
    /// Query of `GET /workspace/webhooks/events/stream`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct StreamQuery {
        /// Only what happened after this place; the header `Last-Event-ID` wins. Left out: from now on.
        #[param(required = false, value_type = Option<WebhookCursor>)]
        pub after: Option<Parsed<WebhookCursor>>,
        /// Kinds of events; all when left out.
        #[param(required = false, example = json!(["cvm.created"]))]
        pub events: Vec<String> = Vec::new(),
    }
}

/// Follow the events of the workspace
///
/// Server-sent events. First `ready`; then one for each event, named by its kind, with the body that webhooks get as its
/// data. `id` is the place to go on from. A stream ends after five minutes with `end`: open another one with the last `id`
/// as `after`. Events are kept for 14 days.
#[utoipa::path(
    get, path = "/workspace/webhooks/events/stream", tag = "Webhooks", operation_id = "follow_webhook_events",
    params(StreamQuery),
    responses(
        (status = 200, description = "The events", body = String, content_type = "text/event-stream"),
        (status = 429, description = "The workspace has five streams open", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn follow(
    State(api): State<Api>,
    Auth(caller): Auth,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let kinds = kinds(&query.events)?;
    let last = match headers.get(LAST_EVENT_ID) {
        Some(value) => Some(place(value.to_str().unwrap_or_default())?),
        None => query.after.map(|after| after.0),
    };
    let events = Follower::open(api, &caller, last, kinds, PACE).await?.into_stream();
    let events = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive"));
    Ok(([(CACHE_CONTROL, "no-store")], events).into_response())
}

fn kinds(names: &[String]) -> ApiResult<Vec<EventKind>> {
    let kind = |name: &String| {
        name.parse()
            .map_err(|_| ApiError::fault(&["query", "events"], "enum", "Input should be kinds of events"))
    };
    names.iter().map(kind).collect()
}

fn place(text: &str) -> ApiResult<WebhookCursor> {
    let invalid =
        |_| ApiError::fault(&["header", LAST_EVENT_ID], "value_error", "Input should be the id of an event");
    text.parse().map_err(invalid)
}

/// How fast a stream goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) look_every: Duration,
    pub(crate) lifetime: Duration,
}

/// One stream.
pub(crate) struct Follower {
    api: Api,
    workspace_id: i64,
    workspace: WorkspaceRef,
    /// Empty for all.
    kinds: Vec<EventKind>,
    after: i64,
    pace: Pace,
    ends_at: Instant,
    /// Whether the last look found as many as it may.
    is_behind: bool,
    queue: VecDeque<Event>,
    is_done: bool,
    _slot: Slot,
}

impl Follower {
    /// Takes one of the workspace's streams.
    pub(crate) async fn open(
        api: Api,
        caller: &Caller,
        last: Option<WebhookCursor>,
        kinds: Vec<EventKind>,
        pace: Pace,
    ) -> ApiResult<Self> {
        let workspace_id = caller.workspace_id;
        let slot = api.webhook_streams.take(workspace_id).ok_or_else(|| {
            let text = format!("{MAX_STREAMS} streams of events are open already; close one");
            ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text).retry_after(RETRY_AFTER_S)
        })?;
        let name = api.store.workspace(workspace_id).await?.map(|row| row.name).unwrap_or_default();
        let workspace = WorkspaceRef { id: caller.workspace_slug.clone(), name };
        let after = match last {
            Some(cursor) => cursor.0,
            None => api.store.last_webhook_event(workspace_id).await?,
        };
        let ready = Event::default().id(WebhookCursor(after).to_string()).event("ready").data("{}");
        Ok(Self {
            api,
            workspace_id,
            workspace,
            kinds,
            after,
            pace,
            ends_at: Instant::now() + pace.lifetime,
            is_behind: true,
            queue: VecDeque::from([ready]),
            is_done: false,
            _slot: slot,
        })
    }

    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut follower| async {
            while follower.queue.is_empty() && !follower.is_done {
                follower.look().await;
            }
            follower.queue.pop_front().map(|event| (Ok(event), follower))
        })
    }

    /// Looks once, after waiting unless there is more to be told already.
    async fn look(&mut self) {
        if Instant::now() >= self.ends_at {
            return self.end("end", "{}");
        }
        if !self.is_behind {
            tokio::select! {
                () = tokio::time::sleep(self.pace.look_every) => {}
                () = self.api.stop.cancelled() => {
                    self.is_done = true;
                    return;
                }
            }
        }
        match self.api.store.events_after(self.workspace_id, self.after, BATCH).await {
            Ok(rows) => {
                self.is_behind = i64::try_from(rows.len()).is_ok_and(|count| count == BATCH);
                for row in &rows {
                    self.tell(row);
                }
            }
            Err(error) => self.fail(&error),
        }
    }

    fn tell(&mut self, row: &WebhookEventRow) {
        self.after = row.id;
        // What a later version wrote is not for this one to tell.
        let Some(envelope) = self.envelope(row) else { return };
        if self.kinds.is_empty() || self.kinds.contains(&envelope.event) {
            // Compact JSON has no line breaks, so it is one line of data.
            let body = String::from_utf8(envelope.to_bytes()).unwrap_or_default();
            let event = Event::default().id(WebhookCursor(row.id).to_string());
            self.queue.push_back(event.event(envelope.event.as_str()).data(body));
        }
    }

    fn envelope(&self, row: &WebhookEventRow) -> Option<Envelope> {
        let data = serde_json::from_str(&row.data).ok()?;
        let data = with_token(data, &self.api.log_url_key, &self.api.public_url, &row.event_type);
        let (id, kind) = (row.event_id.parse().ok()?, row.event_type.parse().ok()?);
        Some(Envelope::new(id, kind, time(row.created_at_ms), self.workspace.clone(), data))
    }

    fn end(&mut self, name: &'static str, data: &str) {
        let id = WebhookCursor(self.after).to_string();
        self.queue.push_back(Event::default().id(id).event(name).data(data));
        self.is_done = true;
    }

    fn fail(&mut self, error: &StoreError) {
        tracing::error!(error = error as &dyn std::error::Error, "events cannot be read");
        self.end("end", &json!({"error": "internal error"}).to_string());
    }
}
