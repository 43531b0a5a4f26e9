//! `/v1/messages`, Anthropic's format.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};

use crate::Manner;
use crate::sse::{self, Event};
use crate::words::{Answer, count_of, name_of, text_of};

pub(crate) async fn answer(State(manner): State<Arc<Manner>>, Json(request): Json<Value>) -> Response {
    let messages = request["messages"].as_array().filter(|messages| !messages.is_empty());
    let (Some(messages), Some(limit)) = (messages, request["max_tokens"].as_u64()) else {
        let error = json!({
            "type": "invalid_request_error",
            "message": "'messages' must be a list of messages, and 'max_tokens' a number",
        });
        return (StatusCode::BAD_REQUEST, Json(json!({ "type": "error", "error": error }))).into_response();
    };
    let text = messages.last().map(|message| text_of(&message["content"])).unwrap_or_default();
    let answer = Answer::to(&text, Some(limit));
    let reason = if answer.is_whole { "end_turn" } else { "max_tokens" };
    let message = |content: Value, reason: Value, back: usize| {
        json!({
            "id": name_of("msg_", &request),
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": content,
            "stop_reason": reason,
            "stop_sequence": null,
            "usage": { "input_tokens": count_of(messages), "output_tokens": back },
        })
    };
    if request["stream"] != true {
        let content = json!([{ "type": "text", "text": answer.text() }]);
        return Json(message(content, json!(reason), answer.count())).into_response();
    }
    let block = json!({ "type": "text", "text": "" });
    let mut events = vec![
        Event::named(&json!({ "type": "message_start", "message": message(json!([]), Value::Null, 0) })),
        Event::named(&json!({ "type": "content_block_start", "index": 0, "content_block": block })),
    ];
    events.extend(answer.tokens.iter().map(|token| {
        let delta = json!({ "type": "text_delta", "text": token });
        Event::named(&json!({ "type": "content_block_delta", "index": 0, "delta": delta })).token()
    }));
    events.extend([
        Event::named(&json!({ "type": "content_block_stop", "index": 0 })),
        Event::named(&json!({
            "type": "message_delta",
            "delta": { "stop_reason": reason, "stop_sequence": null },
            "usage": { "output_tokens": answer.count() },
        })),
        Event::named(&json!({ "type": "message_stop" })),
    ]);
    sse::response(events, manner.pause)
}
