//! Responses and Messages, at once, as streams, and failing.

use serde_json::{Value, json};

use super::support::*;
use crate::upstream::fake::{Act, Fake, json as json_reply};

const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const REFUSED: &str = r#"{"error":{"message":"The input is too long","type":"invalid_request_error"}}"#;

fn response() -> Value {
    json!({"id": "resp_up", "object": "response", "created_at": 1, "status": "completed", "model": "own-name",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "one two three"}]}],
        "usage": {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}})
}

fn message() -> Value {
    json!({"id": "msg_up", "type": "message", "role": "assistant", "model": "own-name",
        "content": [{"type": "text", "text": "one two three"}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 10, "output_tokens": 3}})
}

fn named(event: &Value) -> Vec<u8> {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()).into_bytes()
}

fn response_events() -> Vec<Vec<u8>> {
    let begun = json!({"id": "resp_up", "object": "response", "status": "in_progress", "model": "own-name", "output": []});
    let delta = |number: u32, text: &str| {
        named(
            &json!({"type": "response.output_text.delta", "sequence_number": number, "item_id": "i", "delta": text}),
        )
    };
    vec![
        named(&json!({"type": "response.created", "sequence_number": 0, "response": begun})),
        delta(1, "one two"),
        delta(2, " three"),
        named(&json!({"type": "response.completed", "sequence_number": 3, "response": response()})),
    ]
}

fn message_events() -> Vec<Vec<u8>> {
    let begun = json!({"id": "msg_up", "type": "message", "role": "assistant", "model": "own-name", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 1}});
    let delta = |text: &str| {
        named(
            &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        )
    };
    vec![
        named(&json!({"type": "message_start", "message": begun})),
        named(
            &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
        delta("one two"),
        delta(" three"),
        named(&json!({"type": "content_block_stop", "index": 0})),
        named(
            &json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
        ),
        named(&json!({"type": "message_stop"})),
    ]
}

/// How an upstream speaks: what it is configured as, and its answer in both forms.
struct Tongue {
    path: &'static str,
    config: Value,
    whole: Value,
    events: Vec<Vec<u8>>,
}

fn tongues() -> Vec<Tongue> {
    let native = json!({"provider": "anthropic", "path": MESSAGES});
    vec![
        Tongue { path: RESPONSES, config: json!({}), whole: response(), events: response_events() },
        Tongue { path: MESSAGES, config: native, whole: message(), events: message_events() },
        Tongue {
            path: MESSAGES,
            config: json!({}),
            whole: serde_json::from_str(WHOLE).unwrap(),
            events: answer(),
        },
    ]
}

fn ask(path: &str, stream: bool) -> Value {
    if path == RESPONSES {
        return json!({"model": MODEL, "input": "a secret prompt", "stream": stream});
    }
    let messages = json!([{"role": "user", "content": "a secret prompt"}]);
    json!({"model": MODEL, "max_tokens": 50, "messages": messages, "stream": stream})
}

async fn bench(config: &Value, acts: Vec<Act>) -> Bench {
    let fake = Fake::start(move |_, _| acts.clone()).await;
    Bench::new(vec![upstream("one", &fake.url(), 0, config)], json!({})).await
}

/// The texts of a stream, and the type of its last event.
fn said(reply: &Reply) -> (String, String) {
    let (mut text, mut last) = (String::new(), String::new());
    for data in reply.text().lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(data).unwrap();
        text.push_str(event["delta"].as_str().or(event["delta"]["text"].as_str()).unwrap_or_default());
        last = event["type"].as_str().unwrap().to_owned();
    }
    (text, last)
}

#[tokio::test]
async fn answers_at_once() {
    for Tongue { path, config, whole, .. } in tongues() {
        let bench = bench(&config, vec![Act::Send(json_reply(200, &whole.to_string()))]).await;
        let reply = bench.ask_at(path, &ask(path, false)).await;
        let body = reply.json();
        assert_eq!((reply.status, &body["model"]), (200, &json!(MODEL)), "{body}");
        assert!(reply.text().contains("one two three") && !reply.text().contains("own-name"), "{body}");
        let receipt = bench.checked_receipt(&reply);
        assert_eq!((&receipt["chat_id"], &receipt["endpoint"]), (&body["id"], &json!(path)));
        let row = bench.rows()[0].row.clone();
        assert_eq!((row.status, row.prompt_tokens, row.completion_tokens), (200, 10, 3));
    }
}

#[tokio::test]
async fn streams() {
    for Tongue { path, config, events, .. } in tongues() {
        let end = if path == RESPONSES { "response.completed" } else { "message_stop" };
        let bench = bench(&config, streamed(&events)).await;
        let reply = bench.ask_at(path, &ask(path, true)).await;
        assert_eq!(said(&reply), ("one two three".to_owned(), end.to_owned()), "{}", reply.text());
        assert!(!reply.text().contains("own-name"), "{}", reply.text());
        let receipt = bench.checked_receipt(&reply);
        assert!(reply.text().contains(receipt["chat_id"].as_str().unwrap()));
        assert_eq!((bench.rows()[0].row.status, bench.rows()[0].row.completion_tokens), (200, 3));
    }
}

#[tokio::test]
async fn streams_that_break_end_with_an_error() {
    for Tongue { path, config, events, .. } in tongues() {
        let content = events.iter().position(|event| event.windows(3).any(|text| text == b"one")).unwrap();
        for acts in [broken(&events[..=content]), streamed(&events[..=content])] {
            let bench = bench(&config, acts).await;
            let reply = bench.ask_at(path, &ask(path, true)).await;
            let (text, last) = said(&reply);
            assert!("one two".starts_with(&text) && last == "error", "{}", reply.text());
            bench.checked_receipt(&reply);
            assert_eq!(bench.rows()[0].row.status, 502);
        }
    }
}

#[tokio::test]
async fn errors_have_the_shape_of_their_surface() {
    for Tongue { path, config, .. } in tongues() {
        for (status, told, kind) in [
            (400, 400, "invalid_request_error"),
            (500, 502, if path == MESSAGES { "api_error" } else { "upstream_error" }),
        ] {
            let bench = bench(&config, vec![Act::Send(json_reply(status, REFUSED))]).await;
            for stream in [false, true] {
                let reply = bench.ask_at(path, &ask(path, stream)).await;
                assert_eq!(reply.error(), (told, kind.to_owned()), "{path}");
                assert_eq!(reply.json()["type"] == "error", path == MESSAGES);
                assert_eq!(reply.text().contains("too long"), status == 400);
                bench.checked_receipt(&reply);
            }
        }
    }
}
