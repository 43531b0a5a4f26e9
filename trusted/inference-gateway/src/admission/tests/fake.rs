//! A control plane that does what a test wants.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::config::ControlConfig;

pub(crate) const TOKEN: &str = "control-token";

/// A control plane on loopback.
pub(crate) struct Fake {
    pub(crate) url: String,
    state: Arc<Inner>,
    _server: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Inner {
    /// What is answered next; after the last one, leave.
    answers: Mutex<VecDeque<Answer>>,
    /// The same of questions alone, before those.
    asked: Mutex<VecDeque<Answer>>,
    /// Requests of rows at which it fails, and with which status.
    bad: Mutex<HashMap<String, u16>>,
    /// Hook, `Authorization` and body of all calls.
    calls: Mutex<Vec<(String, String, Value)>>,
    /// Calls that are under way, and the most that there have been.
    at_once: Mutex<(usize, usize)>,
}

pub(crate) enum Answer {
    Json(Value),
    Status(u16, &'static str),
    Never,
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/base/", listener.local_addr().unwrap());
        let state = Arc::new(Inner::default());
        let router = Router::new()
            .route("/base/consult/{hook}", axum::routing::post(answer))
            .with_state(Arc::clone(&state));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, state, _server: AbortOnDropHandle::new(server) }
    }

    pub(crate) fn then(&self, answer: Answer) {
        self.state.answers.lock().push_back(answer);
    }

    /// The next question is answered with this.
    pub(crate) fn then_asked(&self, answer: Answer) {
        self.state.asked.lock().push_back(answer);
    }

    /// From now on it fails at the rows of a request.
    pub(crate) fn fails_at(&self, request_id: &str, status: u16) {
        self.state.bad.lock().insert(request_id.to_owned(), status);
    }

    pub(crate) fn fails_nowhere(&self) {
        self.state.bad.lock().clear();
    }

    /// Most calls that were under way at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.state.at_once.lock().1
    }

    pub(crate) fn calls(&self) -> Vec<(String, String, Value)> {
        self.state.calls.lock().clone()
    }

    /// Bodies of `consult/post`, when there are so many at least.
    pub(crate) async fn told(&self, count: usize) -> Vec<Value> {
        for _ in 0..2000 {
            let told: Vec<_> = self
                .calls()
                .into_iter()
                .filter(|(hook, ..)| hook == "post")
                .map(|(_, _, body)| body)
                .collect();
            if told.len() >= count {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{count} rows were not told");
    }

    pub(crate) fn config(&self, dir: &std::path::Path) -> ControlConfig {
        let token_file = dir.join("token");
        std::fs::write(&token_file, format!("{TOKEN}\n")).unwrap();
        let url = self.url.parse().unwrap();
        ControlConfig {
            url,
            token_file,
            ca_file: None,
            prefix_hash_secret_file: None,
            send_request_features: true,
            timeout_ms: 5000,
            untold_limit: 1000.into(),
        }
    }
}

async fn answer(
    State(state): State<Arc<Inner>>,
    Path(hook): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let authorization = headers["authorization"].to_str().unwrap().to_owned();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let bad = body["requestId"].as_str().and_then(|id| state.bad.lock().get(id).copied());
    let is_asked = hook == "pre";
    state.calls.lock().push((hook, authorization, body));
    {
        let (now, most) = &mut *state.at_once.lock();
        *now += 1;
        *most = (*most).max(*now);
    }
    // Others that come at once are here, too.
    tokio::time::sleep(Duration::from_millis(1)).await;
    state.at_once.lock().0 -= 1;
    if let Some(status) = bad {
        return StatusCode::from_u16(status).unwrap().into_response();
    }
    let answer = if is_asked { state.asked.lock().pop_front() } else { None };
    let answer = answer.or_else(|| state.answers.lock().pop_front());
    match answer.unwrap_or(Answer::Json(json!({"allow": true}))) {
        Answer::Json(value) => Json(value).into_response(),
        Answer::Status(status, text) => (StatusCode::from_u16(status).unwrap(), text).into_response(),
        Answer::Never => std::future::pending().await,
    }
}
