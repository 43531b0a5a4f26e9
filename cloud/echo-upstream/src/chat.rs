//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::sse::{self, Event};
use crate::words::{Answer, count_of, name_of, text_of};
use crate::{Manner, refused};

pub(crate) async fn answer(State(manner): State<Arc<Manner>>, Json(request): Json<Value>) -> Response {
    let Some(messages) = request["messages"].as_array().filter(|messages| !messages.is_empty()) else {
        return refused("'messages' must be a list of messages");
    };
    let limit = request["max_completion_tokens"].as_u64().or_else(|| request["max_tokens"].as_u64());
    let text = messages.last().map(|message| text_of(&message["content"])).unwrap_or_default();
    let answer = Answer::to(&text, limit);
    let reason = if answer.is_whole { "stop" } else { "length" };
    let sent = count_of(messages);
    let usage = json!({
        "prompt_tokens": sent,
        "completion_tokens": answer.count(),
        "total_tokens": sent + answer.count(),
    });
    let id = name_of("chatcmpl-", &request);
    if request["stream"] != true {
        let message = json!({ "role": "assistant", "content": answer.text() });
        return Json(json!({
            "id": id,
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [{ "index": 0, "message": message, "finish_reason": reason }],
            "usage": usage,
        }))
        .into_response();
    }
    let chunk = |choices: Value| {
        json!({
            "id": id,
            "object": "chat.completion.chunk",
            "created": 0,
            "model": request["model"],
            "choices": choices,
        })
    };
    let delta = |delta: Value, reason: Value| {
        Event::data(&chunk(json!([{ "index": 0, "delta": delta, "finish_reason": reason }])))
    };
    let mut events = vec![delta(json!({ "role": "assistant", "content": "" }), Value::Null)];
    events.extend(answer.tokens.iter().map(|token| delta(json!({ "content": token }), Value::Null).token()));
    events.push(delta(json!({}), json!(reason)));
    if request["stream_options"]["include_usage"] == true {
        let mut last = chunk(json!([]));
        if let Some(last) = last.as_object_mut() {
            last.insert("usage".to_owned(), usage);
        }
        events.push(Event::data(&last));
    }
    events.push(Event::done());
    sse::response(events, manner.pause)
}
