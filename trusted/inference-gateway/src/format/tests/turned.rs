//! Requests and answers of one format turned into the other.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::messages::{anthropic, ask, documents, events, recorded, whole};
use super::*;

pub(super) fn json_sent(surface: Surface, body: &Value, model: &Model) -> Value {
    serde_json::from_str(&sent(surface, &body.to_string(), model).unwrap()).unwrap()
}

#[test]
fn a_messages_request_becomes_a_chat_request() {
    let body = json!({
        "model": "m", "max_tokens": 50, "stream": true, "temperature": 0.5, "top_k": 5, "stop_sequences": ["x"],
        "system": [{"type": "text", "text": "be", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "good"}],
        "metadata": {"user_id": "u"},
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"}, "title": "t.pdf"},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I "}, {"type": "text", "text": "call"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1.50}},
            ]},
            {"role": "user", "content": [
                {"type": "text", "text": "and"},
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r1"}, {"type": "text", "text": "r2"}]},
            ]},
        ],
    });
    assert_eq!(
        json_sent(Surface::Messages, &body, &openai()),
        json!({
            "model": "own-model",
            "messages": [
                {"role": "system", "content": "be\ngood"},
                {"role": "user", "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                    {"type": "file", "file": {"filename": "t.pdf", "file_data": "data:application/pdf;base64,BBBB"}},
                ]},
                {"role": "assistant", "content": "I call", "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1.5}"}}]},
                {"role": "tool", "tool_call_id": "t1", "content": "r1\nr2"},
                {"role": "user", "content": [{"type": "text", "text": "and"}]},
            ],
            "max_tokens": 50, "temperature": 0.5, "top_k": 5, "stop": ["x"],
            "stream": true, "stream_options": {"include_usage": true}, "user": "u",
            "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
            "tool_choice": "required", "parallel_tool_calls": false, "reasoning_effort": "minimal",
        })
    );
    let known = model("", r#","supported_parameters":["max_completion_tokens"]"#);
    let sent = json_sent(Surface::Messages, &json!({"model": "m", "max_tokens": 5, "messages": []}), &known);
    assert_eq!(sent["max_completion_tokens"], 5);
}

#[test]
fn what_cannot_be_turned_is_refused_by_member() {
    let refused = |surface, body: Value, model: &Model| {
        sent(surface, &body.to_string(), model).unwrap_err().param.unwrap()
    };
    let messages = |member: Value| {
        let mut body = json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]});
        body.as_object_mut().unwrap().extend(member.as_object().unwrap().clone());
        refused(Surface::Messages, body, &openai())
    };
    assert_eq!(messages(json!({"mcp_servers": []})), "mcp_servers");
    assert_eq!(messages(json!({"tools": [{"type": "web_search_20250305", "name": "w"}]})), "tools[0]");
    assert_eq!(
        messages(json!({"messages": [{"role": "user", "content": [{"type": "server_tool_use"}]}]})),
        "messages[0].content[0]"
    );
    for schema in [json!({"type": "array"}), json!({})] {
        let tools = json!({"tools": [{"name": "f", "input_schema": schema}]});
        assert_eq!(messages(tools), "tools[0].input_schema.type");
    }
    assert_eq!(messages(json!({"messages": [{"role": "robot", "content": "x"}]})), "messages[0].role");
    let chat = |member: Value| {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
        body.as_object_mut().unwrap().extend(member.as_object().unwrap().clone());
        refused(Surface::Chat, body, &anthropic())
    };
    assert_eq!(chat(json!({"n": 2})), "n");
    assert_eq!(chat(json!({"logit_bias": {"1": 2}})), "logit_bias");
    assert_eq!(chat(json!({"verbosity": "low"})), "verbosity");
    // Of a long name the beginning is told.
    assert_eq!(chat(json!({("x".repeat(1 << 20)): 1})), "x".repeat(64));
    assert_eq!(chat(json!({"seed": 7})), "seed");
    assert_eq!(chat(json!({"response_format": {"type": "json_object"}})), "response_format");
    assert_eq!(
        chat(json!({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]})),
        "messages[0].content[0]"
    );
    assert_eq!(
        chat(
            json!({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "["}}]}]})
        ),
        "messages[0].tool_calls[0].function.arguments"
    );
    for surface in [Surface::Completions, Surface::Embeddings, Surface::Responses] {
        let body = r#"{"model":"m","prompt":"x","input":"x"}"#;
        assert_eq!(sent(surface, body, &anthropic()).unwrap_err().status().as_u16(), 404);
        let shaped = shaped(surface, body, &anthropic()).unwrap();
        assert!(translator(&shaped, &anthropic().routes[0], "x", &Pricing::default()).is_none());
    }
}

#[test]
fn a_chat_answer_becomes_a_message() {
    let mut ask = ask();
    ask["thinking"] = json!({"type": "enabled", "budget_tokens": 2000});
    let answer = json!({"id": "c", "model": "own-model", "choices": [{"index": 0, "finish_reason": "tool_calls", "message":
        {"role": "assistant", "content": "hello", "reasoning_content": "hm",
         "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 10}}});
    assert_eq!(
        whole(Surface::Messages, &ask, &answer, &openai()),
        json!({"id": "msg_0123", "type": "message", "role": "assistant", "model": "m",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "hello"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}],
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {"input_tokens": 90, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 10, "output_tokens": 20, "cost": 0.000_135}})
    );
    for (finish, engine, stop, sequence) in [
        ("stop", Value::Null, "end_turn", Value::Null),
        ("length", Value::Null, "max_tokens", Value::Null),
        ("content_filter", Value::Null, "refusal", Value::Null),
        ("stop", json!("END"), "stop_sequence", json!("END")),
        ("stop", json!(7), "end_turn", Value::Null),
        // What nobody knows is not made up.
        ("abort", Value::Null, "abort", Value::Null),
    ] {
        let answer = json!({"choices": [{"index": 0, "finish_reason": finish, "stop_reason": engine, "message": {"content": "x"}}]});
        let message = whole(Surface::Messages, &ask, &answer, &openai());
        assert_eq!((&message["stop_reason"], &message["stop_sequence"]), (&json!(stop), &sequence));
    }
    // Nor is half an answer a whole one.
    for finish in [Value::Null, json!(""), json!(1)] {
        let answer = json!({"choices": [{"index": 0, "finish_reason": finish, "message": {"content": "x"}}]});
        let mut translator = follow(Surface::Messages, &ask.to_string(), &openai());
        assert!(translator.whole(answer.to_string().as_bytes()).is_err(), "{answer}");
    }
}

#[test]
fn a_chat_stream_becomes_a_stream_of_messages() {
    let chunk = |delta: Value, finish: Value| {
        json!({"id": "c", "model": "own-model", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).to_string()
    };
    let wire = stream(&[
        &chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        &chunk(json!({"reasoning_content": "hm"}), Value::Null),
        &chunk(json!({"content": "hel"}), Value::Null),
        &chunk(json!({"content": "lo"}), Value::Null),
        &chunk(
            json!({"tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": {"name": "f", "arguments": ""}}]}),
            Value::Null,
        ),
        &chunk(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}), Value::Null),
        &chunk(
            json!({"tool_calls": [{"index": 1, "id": "t2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]}),
            Value::Null,
        ),
        &chunk(json!({}), json!("tool_calls")),
        r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#,
        "[DONE]",
    ]);
    let mut translate = follow(Surface::Messages, &ask().to_string(), &openai());
    let got = relay(translate.as_mut(), &[wire.as_bytes()]);
    let start = |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: u32, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u32| json!({"type": "content_block_stop", "index": index});
    assert_eq!(
        documents(&got.text),
        [
            json!({"type": "message_start", "message": {"id": "msg_0123", "type": "message", "role": "assistant", "model": "m",
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 0, "output_tokens": 0}}}),
            start(0, json!({"type": "text", "text": ""})),
            delta(0, json!({"type": "text_delta", "text": "hel"})),
            delta(0, json!({"type": "text_delta", "text": "lo"})),
            stop(0),
            start(1, json!({"type": "tool_use", "id": "t1", "name": "f", "input": {}})),
            delta(1, json!({"type": "input_json_delta", "partial_json": "{}"})),
            stop(1),
            start(2, json!({"type": "tool_use", "id": "t2", "name": "g", "input": {}})),
            delta(2, json!({"type": "input_json_delta", "partial_json": "{}"})),
            stop(2),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null},
            "usage": {"input_tokens": 3, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 4, "cost": 0.000_011}}),
            json!({"type": "message_stop"}),
        ]
    );
    assert_eq!(got.steps[1], "content", "thinking that nobody sees commits, too");
    let back = chunk(json!({"tool_calls": [{"index": 0, "function": {"arguments": "x"}}]}), Value::Null);
    let wire = wire.replace("data: {\"choices\":[],", &format!("data: {back}\n\ndata: {{\"choices\":[],"));
    assert!(
        relay(follow(Surface::Messages, &ask().to_string(), &openai()).as_mut(), &[wire.as_bytes()])
            .steps
            .contains(&"broken")
    );
}

#[test]
fn a_chat_request_becomes_a_messages_request() {
    let body = json!({
        "model": "m", "max_completion_tokens": 5000, "stream": true, "stop": "x", "user": "u", "n": 1, "frequency_penalty": 0,
        "reasoning_effort": "low", "parallel_tool_calls": false, "tool_choice": {"type": "function", "function": {"name": "f"}},
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "messages": [
            {"role": "system", "content": "be good"},
            {"role": "user", "content": "one"},
            {"role": "user", "content": [{"type": "text", "text": "two"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]},
            {"role": "assistant", "content": null, "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
             "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1.50}"}},
                            {"id": "t2", "type": "function", "function": {"name": "f", "arguments": ""}}]},
            {"role": "tool", "tool_call_id": "t1", "content": "r1"},
            {"role": "tool", "tool_call_id": "t2", "content": "r2"},
            {"role": "user", "content": "go on"},
        ],
    });
    let expected = json!({
        "model": "own-model", "max_tokens": 5000, "system": [{"type": "text", "text": "be good"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1.5}},
                {"type": "tool_use", "id": "t2", "name": "f", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r1"}]},
                {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "r2"}]},
                {"type": "text", "text": "go on"}]},
        ],
        "stop_sequences": ["x"], "stream": true, "metadata": {"user_id": "u"},
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    });
    assert_eq!(json_sent(Surface::Chat, &body, &anthropic()), expected);
    let mut unproved = body;
    unproved["messages"][3].as_object_mut().unwrap().remove("thinking_blocks");
    assert_eq!(json_sent(Surface::Chat, &unproved, &anthropic())["thinking"], Value::Null);
    let plain = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
    assert_eq!(json_sent(Surface::Chat, &plain, &anthropic())["max_tokens"], 4096);
}

#[test]
fn a_message_becomes_a_chat_answer() {
    let ask = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    let answer = json!({"id": "msg_up", "type": "message", "role": "assistant", "model": "own-model",
        "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "a\n"}, {"type": "text", "text": "b"},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1.5}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": 10, "cache_read_input_tokens": 4, "output_tokens": 20}});
    assert_eq!(
        whole(Surface::Chat, &ask, &answer, &anthropic()),
        json!({"id": "req_0123", "object": "chat.completion", "created": 1_750_000_000, "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "a\nb",
                "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1.5}"}}],
                "reasoning_content": "hm", "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
                "logprobs": null, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 14, "completion_tokens": 20, "total_tokens": 34, "prompt_tokens_details": {"cached_tokens": 4},
                "cache_creation_input_tokens": 0, "cost": 0.000_052}})
    );
    let mut unknown = answer.clone();
    unknown["stop_reason"] = json!("compaction");
    let told = whole(Surface::Chat, &ask, &unknown, &anthropic());
    assert_eq!(told["choices"][0]["finish_reason"], "compaction", "not made up");
    let mut hiding = ask;
    hiding["reasoning"] = json!({"exclude": true});
    assert!(!whole(Surface::Chat, &hiding, &answer, &anthropic()).to_string().contains("hm"));
}

#[test]
fn a_stream_of_messages_becomes_a_chat_stream() {
    let body = r#"{"model":"m","messages":[],"stream":true}"#;
    let got = relay(follow(Surface::Chat, body, &anthropic()).as_mut(), &[events(&recorded()).as_bytes()]);
    assert!(got.text.ends_with("data: [DONE]\n\n"));
    let documents = documents(&got.text);
    let deltas: Vec<&Value> =
        documents.iter().filter_map(|chunk| chunk["choices"].get(0)).map(|choice| &choice["delta"]).collect();
    assert_eq!(
        deltas,
        [
            &json!({"role": "assistant", "content": ""}),
            &json!({"reasoning_content": "hm", "thinking_blocks": [{"index": 0, "type": "thinking", "thinking": "hm"}]}),
            &json!({"thinking_blocks": [{"index": 0, "type": "thinking", "signature": "c2ln"}]}),
            &json!({"content": "hel\nlo"}),
            &json!({"tool_calls": [{"index": 0, "id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": ""}}]}),
            &json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\":"}}]}),
            &json!({"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]}),
            &json!({}),
        ]
    );
    let last = documents.last().unwrap();
    assert_eq!(documents[documents.len() - 2]["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(
        (&last["usage"]["prompt_tokens"], &last["usage"]["cost"], &last["id"]),
        (&json!(14), &json!(0.000_052), &json!("req_0123"))
    );
}

proptest! {
    /// What a chat client says reaches an upstream of the other format in the same words, and comes back as they are.
    #[test]
    fn texts_survive_both_ways(text in "[ -~\näöü漢\u{1F600}]{1,30}", name in "[a-z_]{1,10}", number in any::<i32>()) {
        let arguments = json!({"t": text, "n": number}).to_string();
        let body = json!({"model": "m", "messages": [
            {"role": "user", "content": text},
            {"role": "assistant", "content": text, "tool_calls": [{"id": "t", "type": "function", "function": {"name": name, "arguments": arguments}}]},
        ]});
        let sent = json_sent(Surface::Chat, &body, &anthropic());
        prop_assert_eq!(&sent["messages"][0]["content"][0]["text"], &json!(text));
        prop_assert_eq!(&sent["messages"][1]["content"][1]["input"], &json!({"t": text, "n": number}));
        let mut back = sent;
        back["model"] = json!("m");
        let back = json_sent(Surface::Messages, &back, &openai());
        prop_assert_eq!(&back["messages"][1], &body["messages"][1]);
        prop_assert_eq!(&back["messages"][0]["content"][0]["text"], &json!(text));
    }
}
