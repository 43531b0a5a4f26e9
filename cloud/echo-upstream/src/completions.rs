//! `/v1/completions`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::sse::{self, Event};
use crate::words::{Answer, name_of, tokens};
use crate::{Manner, refused};

pub(crate) async fn answer(State(manner): State<Arc<Manner>>, Json(request): Json<Value>) -> Response {
    let prompts: Vec<&str> = match &request["prompt"] {
        Value::String(prompt) => vec![prompt],
        Value::Array(prompts) => prompts.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if prompts.is_empty() {
        return refused("'prompt' must be a text or a list of texts");
    }
    let limit = request["max_tokens"].as_u64();
    let answers: Vec<Answer> = prompts.iter().map(|prompt| Answer::to(prompt, limit)).collect();
    let sent: usize = prompts.iter().map(|prompt| tokens(prompt).len()).sum();
    let back: usize = answers.iter().map(Answer::count).sum();
    let usage = json!({ "prompt_tokens": sent, "completion_tokens": back, "total_tokens": sent + back });
    let reason = |answer: &Answer| if answer.is_whole { "stop" } else { "length" };
    let document = |choices: Vec<Value>| {
        json!({
            "id": name_of("cmpl-", &request),
            "object": "text_completion",
            "created": 0,
            "model": request["model"],
            "choices": choices,
        })
    };
    let with_usage = |mut document: Value| {
        if let Some(members) = document.as_object_mut() {
            members.insert("usage".to_owned(), usage.clone());
        }
        document
    };
    let choice = |index: usize, text: &str, reason: Value| json!({ "index": index, "text": text, "logprobs": null, "finish_reason": reason });
    let choices = answers.iter().enumerate();
    if request["stream"] != true {
        let choices =
            choices.map(|(index, answer)| choice(index, &answer.text(), json!(reason(answer)))).collect();
        return Json(with_usage(document(choices))).into_response();
    }
    let mut events: Vec<Event> = Vec::new();
    for (index, answer) in choices {
        let texts = answer.tokens.iter();
        events.extend(
            texts.map(|token| Event::data(&document(vec![choice(index, token, Value::Null)])).token()),
        );
        events.push(Event::data(&document(vec![choice(index, "", json!(reason(answer)))])));
    }
    if request["stream_options"]["include_usage"] == true {
        events.push(Event::data(&with_usage(document(Vec::new()))));
    }
    events.push(Event::done());
    sse::response(events, manner.pause)
}
