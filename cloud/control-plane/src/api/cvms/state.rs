//! `GET /cvms/{cvm_id}/state`

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::{ACCEPT, CACHE_CONTROL};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use cloister_app_compose::members;
use cloister_management_api::{CvmState, PlainError};
use futures_util::{Stream, stream};
use serde_json::json;
use tokio::time::Instant;
use utoipa::IntoParams;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::input::{Query, within};
use crate::api::responses::OnCvm;
use crate::api::scene::Scene;
use crate::api::slots::Slot;
use crate::api::target::Target;
use crate::api::view::View;
use crate::store::{CvmRow, StoreError};

/// Streams that a user may have open at a time.
pub(crate) const MAX_STREAMS: usize = 5;
/// How often the store is looked at for a change; what did not change is told only once an interval.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

members! {
    /// Query of `GET /cvms/{cvm_id}/state`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct StateQuery {
        /// Status to wait for; makes the answer a stream.
        #[param(required = false, example = "running")]
        pub target: Option<String>,
        /// Seconds between events of a stream, changes aside.
        #[param(required = false, minimum = 5, maximum = 30, default = 5)]
        pub interval: Option<i64>,
        /// Seconds until a stream gives up.
        #[param(required = false, minimum = 10, maximum = 600, default = 300)]
        pub timeout: Option<i64>,
    }
}

/// Get or watch the state of a CVM
///
/// Without `target`, the state now. With `target`, a stream of events: `state` at once and at every
/// change, `complete` when the CVM has the target status, `timeout` when it has not in time, `error` when
/// it is gone. The answer does not depend on the version.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/state", tag = "CVMs", operation_id = "get_cvm_state",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"), StateQuery),
    responses(
        (status = 200, description = "The state, or a stream of it", content(
            (CvmState = "application/json"), (String = "text/event-stream"),
        )),
        (status = 429, description = "The user has five streams open", body = PlainError),
        OnCvm,
    ),
)]
pub(crate) async fn state(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    Query(query): Query<StateQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let interval = within("interval", query.interval, 5, 5..=30)?;
    let timeout = within("timeout", query.timeout, 300, 10..=600)?;
    let target = query.target.filter(|target| !target.is_empty());
    let wants_stream = headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/event-stream"));
    if target.is_none() && !wants_stream {
        return Ok(Json(View::new(&api, &Scene::default(), &cvm).state()).into_response());
    }
    let pace = Pace {
        look_every: LOOK_EVERY,
        interval: Duration::from_secs(interval.into()),
        timeout: Duration::from_secs(timeout.into()),
    };
    let events = Watch::open(api, caller.user_id, cvm.id, target, pace)?.into_stream();
    let events = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive"));
    Ok(([(CACHE_CONTROL, "no-cache")], events).into_response())
}

/// How fast a stream goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) look_every: Duration,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
}

/// One stream.
pub(crate) struct Watch {
    api: Api,
    cvm_id: i64,
    target: Option<String>,
    pace: Pace,
    began: Instant,
    told: Option<(Instant, CvmState)>,
    /// Events to be sent next, the first one last.
    queue: Vec<Event>,
    done: bool,
    _slot: Slot,
}

impl Watch {
    /// Takes one of the user's streams.
    pub(crate) fn open(
        api: Api,
        user: i64,
        cvm_id: i64,
        target: Option<String>,
        pace: Pace,
    ) -> ApiResult<Self> {
        let slot = api.streams.take(user).ok_or_else(|| {
            let text = format!("{MAX_STREAMS} streams are open already; close one");
            ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text).retry_after(RETRY_AFTER_S)
        })?;
        let (began, queue) = (Instant::now(), Vec::new());
        Ok(Self { api, cvm_id, target, pace, began, told: None, queue, done: false, _slot: slot })
    }

    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut watch| async {
            while watch.queue.is_empty() && !watch.done {
                watch.look().await;
            }
            watch.queue.pop().map(|event| (Ok(event), watch))
        })
    }

    /// Looks once, after waiting for the right moment.
    async fn look(&mut self) {
        if self.told.is_some() {
            let stop = self.api.stop.clone();
            tokio::select! {
                () = tokio::time::sleep(self.pace.look_every) => {}
                () = stop.cancelled() => {
                    self.done = true;
                    return;
                }
            }
        }
        match self.api.store.cvm(self.cvm_id).await {
            Ok(Some(cvm)) => self.tell(&cvm),
            Ok(None) => self.end("error", &json!({"error": "the CVM does not exist any more"})),
            Err(error) => self.fail(&error),
        }
    }

    fn tell(&mut self, cvm: &CvmRow) {
        let state = View::new(&self.api, &Scene::default(), cvm).state();
        let now = Instant::now();
        let at_target = self.target.as_ref() == Some(&state.status);
        // The uptime alone is no news.
        let news = |state: &CvmState| CvmState { uptime: None, ..state.clone() };
        let is_due = self.told.as_ref().is_none_or(|(at, told)| {
            now.duration_since(*at) >= self.pace.interval || news(told) != news(&state)
        });
        if at_target {
            // The state comes before the end, because one public client returns the last state.
            self.end("complete", &state);
            self.queue.push(event("state", &state));
        } else if now.duration_since(self.began) >= self.pace.timeout {
            self.end("timeout", &state);
        } else if is_due {
            self.queue.push(event("state", &state));
        }
        if !self.queue.is_empty() {
            self.told = Some((now, state));
        }
    }

    fn end(&mut self, name: &'static str, data: &impl serde::Serialize) {
        self.queue.push(event(name, data));
        self.done = true;
    }

    fn fail(&mut self, error: &StoreError) {
        tracing::error!(error = error as &dyn std::error::Error, "a watched CVM cannot be read");
        self.end("error", &json!({"error": "internal error"}));
    }
}

fn event(name: &'static str, data: &impl serde::Serialize) -> Event {
    // Compact JSON has no line breaks, so it is one line of data.
    Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default())
}
