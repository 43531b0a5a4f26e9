//! The Responses surface.

use serde_json::{Value, json};

use super::*;
use crate::body::MAX_DEPTH;

const ASK: &str = r#"{"model":"m","input":"hi","stream":true}"#;

fn recorded() -> Vec<Value> {
    let response = |status: &str, rest: Value| {
        let mut response = json!({"id": "resp_up", "object": "response", "created_at": 5, "status": status, "model": "own-model", "output": [], "billing": {"payer": "x"}});
        response.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        response
    };
    vec![
        json!({"type": "response.created", "sequence_number": 0, "response": response("in_progress", json!({}))}),
        json!({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": {"id": "msg_1", "type": "message"}}),
        json!({"type": "response.output_text.delta", "sequence_number": 2, "item_id": "msg_1", "delta": "hello", "logprobs": []}),
        json!({"type": "response.output_item.done", "sequence_number": 3, "item": {"id": "msg_1"}}),
        json!({"type": "response.completed", "sequence_number": 4, "response": response("completed", json!({"usage":
            {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 120}}))}),
    ]
}

fn events(list: &[Value]) -> String {
    list.iter().fold(String::new(), |text, event| {
        format!("{text}event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
    })
}

#[test]
fn nothing_is_kept_that_could_be_asked_for_again() {
    let model = openai();
    for store in ["", r#","store":false"#] {
        assert_eq!(
            sent(Surface::Responses, &format!(r#"{{"model":"m","input":"hi"{store}}}"#), &model).unwrap(),
            r#"{"model":"own-model","input":"hi","store":false}"#
        );
    }
    for (member, value) in [
        ("previous_response_id", "\"resp_1\""),
        ("conversation", "{}"),
        ("background", "true"),
        ("store", "true"),
    ] {
        let body = format!(r#"{{"model":"m","input":"hi","{member}":{value}}}"#);
        assert_eq!(sent(Surface::Responses, &body, &model).unwrap_err().param.as_deref(), Some(member));
    }
    let shaped = shaped(Surface::Responses, ASK, &model).unwrap();
    assert_eq!(outgoing(&shaped, &model.routes[0]).unwrap().path, "/v1/responses");
}

#[test]
fn a_stream_of_a_response() {
    let mut translate = follow(Surface::Responses, ASK, &openai());
    let got = relay(translate.as_mut(), &[events(&recorded()).as_bytes()]);
    assert_eq!(got.steps, ["frame", "frame", "content", "content", "done"]);
    let mut expected = recorded();
    for index in [0, 4] {
        let response = expected[index]["response"].as_object_mut().unwrap();
        response.insert("id".to_owned(), json!("resp_0123"));
        response.insert("model".to_owned(), json!("m"));
        response.remove("billing");
    }
    expected[4]["response"]["usage"]["cost"] = json!(0.000_135);
    let documents: Vec<Value> = got
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(documents, expected);
    assert_eq!(translate.tokens().cache_read, 10);
    assert_eq!(translate.finish_reasons(), ["stop"]);
}

/// Whatever the event calls itself.
#[test]
fn a_response_with_an_error_has_failed() {
    for index in [0, 4] {
        let mut events_with_error = recorded();
        events_with_error[index]["response"]["error"] =
            json!({"code": "server_error", "message": "at 10.1.2.3"});
        let translate = &mut follow(Surface::Responses, ASK, &openai());
        let got = relay(translate.as_mut(), &[events(&events_with_error).as_bytes()]);
        assert_eq!(got.steps.last(), Some(&"failed"), "{:?}", got.steps);
        assert!(!got.text.contains("10.1.2.3"));
    }
}

/// What a client sends as deep as it may comes back within something larger.
#[test]
fn a_response_may_be_deeper_than_its_request() {
    let mut first = recorded().swap_remove(0);
    let deep = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    first["response"]["tools"] = serde_json::from_str(&deep).unwrap();
    let got = relay(follow(Surface::Responses, ASK, &openai()).as_mut(), &[events(&[first]).as_bytes()]);
    assert_eq!(got.steps, ["frame"]);
    assert!(got.text.contains(&deep));
}

#[test]
fn a_broken_response_goes_on_counting() {
    let mut translate = follow(Surface::Responses, ASK, &openai());
    let got = relay(translate.as_mut(), &[events(&recorded()[..3]).as_bytes()]);
    assert_eq!(got.ending, Ending::Truncated);
    assert_eq!(
        translate.broken_tail("words"),
        "\n\nevent: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"words\",\"param\":null,\"sequence_number\":3}\n\n"
    );
    for event in [
        json!({"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": null, "sequence_number": 1}),
        json!({"type": "response.failed", "response": {"id": "r", "status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow down"}}}),
    ] {
        let wire = format!("data: {event}\n\n");
        let mut events = Events::default();
        events.push(wire.as_bytes());
        let event = events.next().unwrap().unwrap();
        let Step::Failed(fault) = follow(Surface::Responses, ASK, &openai()).event(&event) else {
            panic!("{wire}")
        };
        assert_eq!(fault.message, "slow down");
        assert!(fault.kind.is_some());
    }
}

#[test]
fn a_whole_response() {
    let answer = recorded()[4]["response"].to_string();
    let whole = follow(Surface::Responses, ASK, &openai()).whole(answer.as_bytes()).unwrap();
    let document: Value = serde_json::from_slice(&whole.body).unwrap();
    assert_eq!(
        (&document["id"], &document["model"], &document["usage"]["cost"]),
        (&json!("resp_0123"), &json!("m"), &json!(0.000_135))
    );
    for bad in [
        "{}",
        r#"{"status":"failed","output":[],"error":{"code":"x","message":"y"}}"#,
        r#"{"status":"completed"}"#,
    ] {
        assert!(follow(Surface::Responses, ASK, &openai()).whole(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn cut_anywhere_or_split_anywhere() {
    let wire = events(&recorded());
    let model = openai();
    let got = |pieces: &[&[u8]]| relay(follow(Surface::Responses, ASK, &model).as_mut(), pieces);
    let whole = got(&[wire.as_bytes()]);
    for cut in 0..wire.len() - 1 {
        let (head, tail) = wire.as_bytes().split_at(cut);
        assert_eq!(got(&[head, tail]), whole, "{cut}");
        assert_eq!(got(&[head]).ending, Ending::Truncated, "{cut}");
    }
}
