//! Streams of Anthropic's format turned into chat: what clients join of their pieces.

use serde_json::{Value, json};

use super::messages::{anthropic, documents, events, recorded, whole};
use super::turned::json_sent;
use super::*;

/// Joined as clients join them, the pieces of a stream are the blocks of an answer at once, and go back as they came.
#[test]
fn thoughts_keep_their_signatures_in_streams() {
    let mut all = recorded();
    let redacted = json!({"type": "redacted_thinking", "data": "b3BhcXVl"});
    all.splice(
        5..5,
        [
            json!({"type": "content_block_start", "index": 1, "content_block": redacted}),
            json!({"type": "content_block_stop", "index": 1}),
        ],
    );
    for event in &mut all[7..] {
        if let Some(index) = event["index"].as_u64() {
            event["index"] = json!(index + 1);
        }
    }
    let body = r#"{"model":"m","messages":[],"stream":true}"#;
    let got = relay(follow(Surface::Chat, body, &anthropic()).as_mut(), &[events(&all).as_bytes()]);
    let mut blocks: Vec<serde_json::Map<String, Value>> = Vec::new();
    for chunk in documents(&got.text) {
        for piece in chunk["choices"][0]["delta"]["thinking_blocks"].as_array().into_iter().flatten() {
            let index = usize::try_from(piece["index"].as_u64().unwrap()).unwrap();
            blocks.resize_with(blocks.len().max(index + 1), serde_json::Map::new);
            blocks[index].extend(piece.as_object().unwrap().clone());
        }
    }
    let thought = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
    let message = json!({"role": "assistant", "content": null, "thinking_blocks": blocks,
        "tool_calls": [{"id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let back = json!({"model": "m", "max_tokens": 5000, "reasoning_effort": "low", "messages": [message]});
    let sent = json_sent(Surface::Chat, &back, &anthropic());
    assert_eq!(sent["messages"][0]["content"][0], thought);
    assert_eq!(sent["messages"][0]["content"][1], redacted);
    assert_eq!(sent["thinking"]["type"], "enabled");
    let hiding = r#"{"model":"m","messages":[],"stream":true,"reasoning":{"exclude":true}}"#;
    let hidden = relay(follow(Surface::Chat, hiding, &anthropic()).as_mut(), &[events(&all).as_bytes()]);
    assert!(!hidden.text.contains("thinking_blocks") && !hidden.text.contains("b3BhcXVl"));
    // At once they come in the same order, also where nothing of them can be read.
    let whole_answer = |content: Value| {
        let answer =
            json!({"type": "message", "model": "own-model", "content": content, "stop_reason": "end_turn"});
        let ask = json!({"model": "m", "messages": []});
        whole(Surface::Chat, &ask, &answer, &anthropic())["choices"][0]["message"]["thinking_blocks"].clone()
    };
    assert_eq!(whole_answer(json!([redacted, thought])), json!([redacted, thought]));
    assert_eq!(whole_answer(json!([redacted])), json!([redacted]));
}

/// A call without arguments has an empty object of them, however it was told.
#[test]
fn calls_without_arguments_have_an_empty_object_of_them() {
    let call = |index: u32, input: Value, pieces: &[&str]| {
        let block = json!({"type": "tool_use", "id": format!("t{index}"), "name": "f", "input": input});
        let mut list = vec![json!({"type": "content_block_start", "index": index, "content_block": block})];
        list.extend(pieces.iter().map(|piece| {
            json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": piece}})
        }));
        list.push(json!({"type": "content_block_stop", "index": index}));
        list
    };
    let all = recorded();
    let mut list = vec![all[0].clone()];
    list.extend(call(0, json!({}), &[]));
    list.extend(call(1, json!({}), &[""]));
    list.extend(call(2, json!({"a": 1}), &[]));
    list.extend(call(3, json!({}), &["", "{\"b\":", "2}"]));
    list.extend_from_slice(&all[13..]);
    let body = r#"{"model":"m","messages":[],"stream":true}"#;
    let got = relay(follow(Surface::Chat, body, &anthropic()).as_mut(), &[events(&list).as_bytes()]);
    let mut arguments = vec![String::new(); 4];
    for chunk in documents(&got.text) {
        for call in chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
            arguments[index].push_str(call["function"]["arguments"].as_str().unwrap());
        }
    }
    assert_eq!(arguments, ["{}", "{}", "{\"a\":1}", "{\"b\":2}"]);
}
