//! The Messages surface, at upstreams of both formats, and chat at those of Anthropic's.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

pub(super) fn anthropic() -> std::sync::Arc<Model> {
    model(r#","provider":"anthropic","path":"/v1/messages""#, "")
}

pub(super) fn whole(surface: Surface, ask: &Value, answer: &Value, model: &Model) -> Value {
    let whole = follow(surface, &ask.to_string(), model).whole(answer.to_string().as_bytes()).unwrap();
    serde_json::from_slice(&whole.body).unwrap()
}

pub(super) fn ask() -> Value {
    json!({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}], "stream": true})
}

pub(super) fn events(list: &[Value]) -> String {
    list.iter().fold(String::new(), |text, event| {
        format!("{text}event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
    })
}

/// The documents of a stream, without their frames.
pub(super) fn documents(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

pub(super) fn recorded() -> Vec<Value> {
    vec![
        json!({"type": "message_start", "message": {"id": "msg_up", "type": "message", "role": "assistant",
            "model": "own-model", "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "hel\nlo"}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"a\":"}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": " 1}"}}),
        json!({"type": "content_block_stop", "index": 2}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 20}}),
        json!({"type": "message_stop"}),
    ]
}

#[test]
fn messages_at_their_own_kind_of_upstream() {
    let model = anthropic();
    let sent: Value =
        serde_json::from_str(&sent(Surface::Messages, &ask().to_string(), &model).unwrap()).unwrap();
    assert_eq!(
        sent,
        json!({"model": "own-model", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}], "stream": true})
    );
    assert_eq!(
        outgoing(&shaped(Surface::Messages, &ask().to_string(), &model).unwrap(), &model.routes[0])
            .unwrap()
            .path,
        "/v1/messages"
    );
    let mut translate = follow(Surface::Messages, &ask().to_string(), &model);
    let got = relay(translate.as_mut(), &[events(&recorded()).as_bytes()]);
    let mut expected = recorded();
    expected.remove(6);
    expected[0]["message"]["id"] = json!("msg_0123");
    expected[0]["message"]["model"] = json!("m");
    expected[12]["usage"] = json!({"input_tokens": 10, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0, "output_tokens": 20, "cost": 0.000_052});
    assert_eq!(documents(&got.text), expected);
    assert!(
        got.text.starts_with("event: message_start\ndata: ")
            && got.text.ends_with("data: {\"type\":\"message_stop\"}\n\n")
    );
    assert_eq!(
        (translate.tokens().prompt, translate.tokens().completion, translate.tokens().cache_read),
        (14, 20, 4)
    );
    assert_eq!(
        (translate.upstream_model(), translate.finish_reasons()),
        (Some("own-model"), vec!["tool_use".to_owned()])
    );
    let tail = translate.broken_tail("words");
    assert_eq!(
        tail,
        "\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"words\"},\"request_id\":\"req_0123\"}\n\n"
    );
}

#[test]
fn a_whole_message_at_its_own_kind_of_upstream() {
    let answer = json!({"id": "msg_up", "type": "message", "role": "assistant", "model": "own-model", "container": {"id": "c"},
        "content": [{"type": "text", "text": "hello", "citations": null}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 10, "output_tokens": 5}});
    assert_eq!(
        whole(Surface::Messages, &ask(), &answer, &anthropic()),
        json!({"id": "msg_0123", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "hello", "citations": null}], "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 10, "output_tokens": 5, "cost": 0.00002}})
    );
    for bad in [
        "{}",
        "[]",
        r#"{"type":"error","error":{}}"#,
        r#"{"type":"message","content":[],"stop_reason":null}"#,
    ] {
        assert!(
            follow(Surface::Messages, &ask().to_string(), &anthropic()).whole(bad.as_bytes()).is_err(),
            "{bad}"
        );
    }
}

#[test]
fn a_message_that_breaks_its_own_order_is_broken() {
    let all = recorded();
    let broken = |list: &[Value]| {
        let mut translate = follow(Surface::Messages, &ask().to_string(), &anthropic());
        relay(translate.as_mut(), &[events(list).as_bytes()]).steps.last() == Some(&"broken")
    };
    assert!(broken(&all[1..]), "no beginning");
    assert!(broken(&[all[0].clone(), all[0].clone()]), "two beginnings");
    assert!(broken(&[all[0].clone(), all[2].clone()]), "a block that never began");
    assert!(broken(&[all[0].clone(), all[14].clone()]), "an end after nothing");
    assert!(
        broken(&[all[0].clone(), all[1].clone(), all[13].clone(), all[14].clone()]),
        "an end within a block"
    );
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let mut translate = follow(Surface::Messages, &ask().to_string(), &anthropic());
    assert_eq!(relay(translate.as_mut(), &[events(&[error]).as_bytes()]).steps, ["failed"]);
}

#[test]
fn output_that_was_not_counted_yet_is_estimated() {
    let mut translate = follow(Surface::Messages, &ask().to_string(), &anthropic());
    let long = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x".repeat(500)}});
    let all = recorded();
    relay(translate.as_mut(), &[events(&[all[0].clone(), all[1].clone(), long]).as_bytes()]);
    assert_eq!((translate.tokens().prompt, translate.tokens().completion), (14, 125));
}

/// The beginning of a message counts a token or two of what is to come: without a count at its end, that is estimated.
#[test]
fn an_end_that_counts_nothing_does_not_make_the_beginning_s_count_the_last() {
    let chat = r#"{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}"#;
    for usage in [Value::Null, json!({}), json!({"output_tokens": null}), json!({"input_tokens": 10})] {
        let mut all = recorded();
        all[7]["delta"]["text"] = json!("x".repeat(500));
        all[13]["usage"] = usage.clone();
        for (surface, body) in [(Surface::Messages, ask().to_string()), (Surface::Chat, chat.to_owned())] {
            let mut translate = follow(surface, &body, &anthropic());
            let got = relay(translate.as_mut(), &[events(&all).as_bytes()]);
            assert_eq!(got.steps.last(), Some(&"done"));
            let tokens = translate.tokens();
            assert_eq!((tokens.prompt, tokens.completion), (14, 128), "{surface:?} {usage}");
            // What the client is told that it costs is what is charged.
            let told: Vec<_> = documents(&got.text)
                .into_iter()
                .filter_map(|document| document["usage"]["cost"].as_f64())
                .collect();
            assert_eq!(told, [0.000_268], "{surface:?} {usage}");
        }
    }
}

#[test]
fn cut_anywhere_or_split_anywhere() {
    let wire = events(&recorded());
    let finished = events(&recorded()[..14]).len() - 1;
    let chat = r#"{"model":"m","messages":[],"stream":true}"#.to_owned();
    for (surface, body) in [(Surface::Messages, ask().to_string()), (Surface::Chat, chat)] {
        let model = anthropic();
        let got = |pieces: &[&[u8]]| relay(follow(surface, &body, &model).as_mut(), pieces);
        let whole = got(&[wire.as_bytes()]);
        for cut in (0..wire.len()).step_by(3) {
            let (head, tail) = wire.as_bytes().split_at(cut);
            assert_eq!(got(&[head, tail]), whole, "{cut}");
            assert!(got(&[head]).ending == Ending::Truncated || cut >= finished, "{cut}");
        }
    }
}

proptest! {
    /// No stream makes a translator fail, and what it says is whole was.
    #[test]
    fn any_order_may_come(order in prop::collection::vec(0_usize..15, 0..20)) {
        let all = recorded();
        let list: Vec<Value> = order.iter().map(|index| all[*index].clone()).collect();
        for surface in [Surface::Messages, Surface::Chat] {
            let mut translate = follow(surface, &ask().to_string(), &anthropic());
            let got = relay(translate.as_mut(), &[events(&list).as_bytes()]);
            if got.steps.last() == Some(&"done") {
                prop_assert!(order.contains(&0) && order.contains(&13) && order.contains(&14));
            }
        }
    }
}
