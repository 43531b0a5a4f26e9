//! `/v1/responses`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::sse::{self, Event};
use crate::words::{Answer, count_of, name_of, text_of, tokens};
use crate::{Manner, refused};

pub(crate) async fn answer(State(manner): State<Arc<Manner>>, Json(request): Json<Value>) -> Response {
    let (text, sent) = match &request["input"] {
        Value::String(text) => (text.clone(), tokens(text).len()),
        Value::Array(items) if !items.is_empty() => {
            let last = items.last().map(|item| text_of(&item["content"])).unwrap_or_default();
            (last, count_of(items))
        }
        _ => return refused("'input' must be a text or a list of items"),
    };
    let answer = Answer::to(&text, request["max_output_tokens"].as_u64());
    let status = if answer.is_whole { "completed" } else { "incomplete" };
    let part = |text: &str| json!({ "type": "output_text", "text": text, "annotations": [] });
    let item = |status: &str, content: Value| {
        json!({
            "id": name_of("msg_", &request),
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        })
    };
    let usage = json!({
        "input_tokens": sent,
        "output_tokens": answer.count(),
        "total_tokens": sent + answer.count(),
    });
    let details = if answer.is_whole { Value::Null } else { json!({ "reason": "max_output_tokens" }) };
    let document = |status: &str, output: Value, usage: &Value| {
        json!({
            "id": name_of("resp_", &request),
            "object": "response",
            "created_at": 0,
            "status": status,
            "model": request["model"],
            "output": output,
            "incomplete_details": if status == "incomplete" { details.clone() } else { Value::Null },
            "usage": usage,
        })
    };
    let whole = item(status, json!([part(&answer.text())]));
    let end = document(status, json!([whole]), &usage);
    if request["stream"] != true {
        return Json(end).into_response();
    }
    let begin = document("in_progress", json!([]), &Value::Null);
    let id = name_of("msg_", &request);
    let place = |kind: &str| json!({ "type": kind, "item_id": id, "output_index": 0, "content_index": 0 });
    let mut data = vec![
        (json!({ "type": "response.created", "response": begin }), false),
        (json!({ "type": "response.in_progress", "response": begin }), false),
        (
            json!({
                "type": "response.output_item.added",
                "output_index": 0,
                "item": item("in_progress", json!([])),
            }),
            false,
        ),
        (with(place("response.content_part.added"), "part", part("")), false),
    ];
    let deltas = answer.tokens.iter();
    data.extend(deltas.map(|token| (with(place("response.output_text.delta"), "delta", json!(token)), true)));
    data.extend([
        (with(place("response.output_text.done"), "text", json!(answer.text())), false),
        (with(place("response.content_part.done"), "part", part(&answer.text())), false),
        (json!({ "type": "response.output_item.done", "output_index": 0, "item": whole }), false),
        (json!({ "type": format!("response.{status}"), "response": end }), false),
    ]);
    let events = data.into_iter().enumerate().map(|(number, (data, is_token))| {
        let event = Event::named(&with(data, "sequence_number", json!(number)));
        if is_token { event.token() } else { event }
    });
    sse::response(events.collect(), manner.pause)
}

fn with(mut document: Value, name: &str, value: Value) -> Value {
    if let Some(members) = document.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
    document
}
