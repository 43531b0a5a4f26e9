//! An upstream with moods: the model that it is asked for says how it behaves, `mood` or `mood/anything`.
//!
//! | Mood | Answer |
//! |---|---|
//! | `busy` | 429 with `retry-after: 1` to the first request for the model, then as usual |
//! | `broken` | 503 to the first request for the model, then as usual |
//! | `silent` | none, ever |
//! | `breaks` | half a stream, and the connection ends in the middle |
//! | `trails` | half a stream that ends as if it were whole, without a last word |
//! | `tools` | a call of the tool `weather`, its arguments in pieces |
//! | `structured` | a JSON object, in pieces |
//! | `terse` | `hello`; a stream of it does not say whose the text is |
//! | others | `hello` |

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What is called with which arguments, in the pieces that a stream has.
const ARGUMENTS: [&str; 3] = ["{\"city\": ", "\"Paris\", \"days\"", ": 3}"];
const OBJECT: [&str; 3] = ["{\"city\": \"Par", "is\", \"degrees\"", ": 21}"];
const HELLO: [&str; 2] = ["hel", "lo"];

/// A request that it got.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) model: String,
    pub(crate) body: Value,
    pub(crate) at: Instant,
}

/// One that serves until its runtime ends.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

type Body = BoxBody<Bytes, std::io::Error>;

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let serving = upstream.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serving.clone();
                let service = service_fn(move |request| serving.clone().answer(request));
                // A connection that breaks is part of its moods.
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        upstream
    }

    /// The requests for a model so far.
    pub(crate) fn requests(&self, model: &str) -> Vec<Seen> {
        self.seen.lock().unwrap().iter().filter(|seen| seen.model == model).cloned().collect()
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
        let body = request.into_body().collect().await?.to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let model = body["model"].as_str().unwrap_or_default().to_owned();
        let is_first = self.requests(&model).is_empty();
        let is_stream = body["stream"] == true;
        self.seen.lock().unwrap().push(Seen { model: model.clone(), body, at: Instant::now() });
        let mood = model.split('/').next().unwrap_or_default();
        Ok(match (mood, is_first) {
            ("busy", true) => refused(StatusCode::TOO_MANY_REQUESTS, Some("1")),
            ("broken", true) => refused(StatusCode::SERVICE_UNAVAILABLE, None),
            ("silent", _) => std::future::pending().await,
            ("breaks", _) => events(half(&model), End::Breaks),
            ("trails", _) => events(half(&model), End::Whole),
            ("tools", _) => spoken(&model, &calls(), "tool_calls", is_stream),
            ("structured", _) => spoken(&model, &texts(&OBJECT), "stop", is_stream),
            ("terse", _) if is_stream => streamed(&model, &texts(&HELLO), "stop"),
            _ => spoken(&model, &texts(&HELLO), "stop", is_stream),
        })
    }
}

/// How the body of a stream ends.
#[derive(Clone, Copy)]
enum End {
    Whole,
    Breaks,
}

fn refused(status: StatusCode, retry_after: Option<&'static str>) -> Response<Body> {
    let error = json!({ "error": { "message": "not now", "type": "server_error", "code": null } });
    let mut response = document(&error);
    *response.status_mut() = status;
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(seconds));
    }
    response
}

fn document(value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(value.to_string())).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn events(texts: Vec<String>, end: End) -> Response<Body> {
    let data = stream::iter(texts).map(|text| Ok(Frame::data(Bytes::from(text))));
    let end = stream::iter(matches!(end, End::Breaks).then_some(())).then(|()| async {
        // What was said goes out while the end is not there yet.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("the mood"))
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(data.chain(end))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn texts(pieces: &[&str]) -> Vec<Value> {
    pieces.iter().map(|piece| json!({ "content": piece })).collect()
}

/// A call of a tool: its name first, then its arguments.
fn calls() -> Vec<Value> {
    let named = json!({ "index": 0, "id": "call_1", "type": "function",
        "function": { "name": "weather", "arguments": "" } });
    let pieces = ARGUMENTS.map(|piece| json!({ "index": 0, "function": { "arguments": piece } }));
    std::iter::once(named).chain(pieces).map(|call| json!({ "tool_calls": [call] })).collect()
}

/// These deltas as a stream, or as the message that they make.
fn spoken(model: &str, deltas: &[Value], reason: &str, is_stream: bool) -> Response<Body> {
    if is_stream {
        let role = json!({ "role": "assistant", "content": "" });
        return streamed(model, &[&[role][..], deltas].concat(), reason);
    }
    let content: String = deltas.iter().filter_map(|delta| delta["content"].as_str()).collect();
    let message = if reason == "tool_calls" {
        let function = json!({ "name": "weather", "arguments": ARGUMENTS.concat() });
        let call = json!({ "id": "call_1", "type": "function", "function": function });
        json!({ "role": "assistant", "content": null, "tool_calls": [call] })
    } else {
        json!({ "role": "assistant", "content": content })
    };
    let choice = json!({ "index": 0, "message": message, "finish_reason": reason });
    document(&json!({ "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model,
        "choices": [choice], "usage": usage() }))
}

fn streamed(model: &str, deltas: &[Value], reason: &str) -> Response<Body> {
    let mut texts: Vec<String> = deltas.iter().map(|delta| chunk(model, delta, None)).collect();
    texts.push(chunk(model, &json!({}), Some(reason)));
    let last = json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model,
        "choices": [], "usage": usage() });
    texts.extend([format!("data: {last}\n\n"), "data: [DONE]\n\n".to_owned()]);
    events(texts, End::Whole)
}

fn usage() -> Value {
    json!({ "prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8 })
}

fn chunk(model: &str, delta: &Value, reason: Option<&str>) -> String {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
    let chunk = json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model,
        "choices": [choice] });
    format!("data: {chunk}\n\n")
}

/// The first half of a stream.
fn half(model: &str) -> Vec<String> {
    texts(&HELLO[..1]).iter().map(|delta| chunk(model, delta, None)).collect()
}
