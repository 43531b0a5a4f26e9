//! Chat, text completions and embeddings at upstreams of OpenAI's format.

use super::*;

const ASK: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
const STREAM: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}"#;

fn refusal(body: &str, model: &Model) -> (Option<String>, u16) {
    let error = shaped(Surface::Chat, body, model).unwrap_err();
    (error.param.clone(), error.status().as_u16())
}

#[test]
fn a_request_goes_out_as_it_came_but_for_the_model() {
    let model = openai();
    let body = r#"{ "messages":[ {"role":"user","content":"hi"} ], "model" : "m", "seed":1e2 }"#;
    assert_eq!(sent(Surface::Chat, body, &model).unwrap(), body.replace("\"m\"", "\"own-model\""));
    let shaped = shaped(Surface::Chat, body, &model).unwrap();
    assert_eq!(shaped.body, body);
    assert_eq!(
        (shaped.model.as_str(), shaped.is_streaming, shaped.parameters),
        ("m", false, vec!["seed".to_owned()])
    );
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let twice = r#"{"model":"m","messages":[{"role":"user","content":"","content":"long"}]}"#;
    let error = shaped(Surface::Chat, twice, &openai()).unwrap_err();
    assert_eq!(error.status().as_u16(), 400);
    assert!(error.message.contains("appears twice"), "{}", error.message);
}

#[test]
fn what_is_the_gateways_own_stays_here() {
    let model = openai();
    for (body, expected) in [
        (
            r#"{"model":"m","messages":[{"role":"user"}],"provider":{"zdr":true}}"#,
            r#"{"model":"own-model","messages":[{"role":"user"}]}"#,
        ),
        (
            r#"{"model":"m","messages":[{"role":"assistant","content":"x","tool_calls":[ ]},{"role":"user"}]}"#,
            r#"{"model":"own-model","messages":[{"role":"assistant","content":"x"},{"role":"user"}]}"#,
        ),
        (
            r#"{"model":"m","messages":[],"stream":true}"#,
            r#"{"model":"own-model","messages":[],"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (
            r#"{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":false,"x":1}}"#,
            r#"{"model":"own-model","messages":[],"stream":true,"stream_options":{"include_usage":true,"x":1}}"#,
        ),
        (
            r#"{"model":"m","messages":[],"include_reasoning":false,"reasoning":{"exclude":true}}"#,
            r#"{"model":"own-model","messages":[]}"#,
        ),
    ] {
        assert_eq!(sent(Surface::Chat, body, &model).unwrap(), expected);
    }
    let body = r#"{"model":"m","input":"x","stream":true}"#;
    assert_eq!(sent(Surface::Embeddings, body, &model).unwrap(), r#"{"model":"own-model","input":"x"}"#);
}

#[test]
fn the_limit_has_the_name_that_the_model_knows() {
    let known = |name| super::model("", &format!(r#","supported_parameters":["{name}"]"#));
    let body = |name| format!(r#"{{"model":"m","messages":[],"{name}":5}}"#);
    for (known_name, sent_name) in [
        ("max_tokens", "max_completion_tokens"),
        ("max_completion_tokens", "max_tokens"),
        ("max_tokens", "max_tokens"),
    ] {
        let sent = sent(Surface::Chat, &body(sent_name), &known(known_name)).unwrap();
        assert_eq!(sent, body(known_name).replace("\"m\"", "\"own-model\""));
    }
    let both =
        |other| format!(r#"{{"model":"m","messages":[],"max_tokens":5,"max_completion_tokens":{other}}}"#);
    let expected = (Some("max_completion_tokens".to_owned()), 400);
    assert_eq!(refusal(&both(6), &openai()), expected);
    assert_eq!(
        sent(Surface::Chat, &both(5), &known("max_tokens")).unwrap(),
        body("max_tokens").replace("\"m\"", "\"own-model\"")
    );
}

#[test]
fn a_route_is_told_in_its_own_words() {
    let dialect = super::model(
        r#","reasoning_dialect":"chat_template_enable_thinking","supported_parameters":["max_tokens"]"#,
        "",
    );
    let body = r#"{"model":"m","messages":[],"reasoning_effort":"none","max_completion_tokens":7}"#;
    assert_eq!(
        sent(Surface::Chat, body, &dialect).unwrap(),
        r#"{"model":"own-model","messages":[],"max_tokens":7,"chat_template_kwargs":{"enable_thinking":false}}"#
    );
    assert_eq!(sent(Surface::Chat, body, &openai()).unwrap(), body.replace("\"m\"", "\"own-model\""));
}

#[test]
fn malformed_requests_are_refused_by_member() {
    let model = openai();
    for (body, param) in [
        (r#"{"messages":[]}"#, "model"),
        (r#"{"model":5,"messages":[]}"#, "model"),
        (r#"{"model":"m"}"#, "messages"),
        (r#"{"model":"m","messages":[3]}"#, "messages[0]"),
        (r#"{"model":"m","messages":[{"content":"x"}]}"#, "messages[0].role"),
        (
            r#"{"model":"m","messages":[],"stream_options":{"include_usage":1}}"#,
            "stream_options.include_usage",
        ),
        (r#"{"model":"m","messages":[],"reasoning":{"max_tokens":0}}"#, "reasoning.max_tokens"),
    ] {
        assert_eq!(refusal(body, &model), (Some(param.to_owned()), 400), "{body}");
    }
}

#[test]
fn a_buffered_answer_is_the_gateways_own_document() {
    let model = openai();
    let message = r#"{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"call_1", "type":"function","function":{"name":"f","arguments":"{\"a\": 1.0}"}}]}"#;
    let answer = format!(
        r#"{{"id":"chatcmpl-up","object":"chat.completion","created":5,"model":"own-model","system_fingerprint":"fp",
            "provider":"Hidden","choices":[{{"index":0,"message":{message},"finish_reason":"tool_calls","logprobs":null,"x":1}}],
            "usage":{{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{{"cached_tokens":10}},"cost":9,"cost_details":{{}}}}}}"#
    );
    let whole = follow(Surface::Chat, ASK, &model).whole(answer.as_bytes()).unwrap();
    assert_eq!(
        std::str::from_utf8(&whole.body).unwrap(),
        format!(
            r#"{{"id":"req_0123","object":"chat.completion","created":5,"model":"m","choices":[{{"index":0,"message":{message},"logprobs":null,"finish_reason":"tool_calls"}}],"usage":{{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{{"cached_tokens":10}},"cost":0.000135}}}}"#
        )
    );
    assert_eq!(whole.upstream_model.as_deref(), Some("own-model"));
    assert_eq!((whole.tokens.prompt, whole.tokens.completion, whole.tokens.cache_read), (100, 20, 10));
    assert!(whole.usage.unwrap().get().contains("cost_details"));
}

#[test]
fn what_is_no_answer_is_none() {
    let model = openai();
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{}",
        r#"{"choices":[]}"#,
        r#"{"choices":[{}]}"#,
        r#"{"choices":[{"message":null}]}"#,
        r#"{"choices":[{"message":{"content":"x"}}]}"#,
        r#"{"error":{"message":"x"},"choices":[{"message":{}}]}"#,
        r#"{"choices":[{"message":{},"index":500}]}"#,
        r#"{"choices":[{"message":{}}],"choices":[{"message":{}}]}"#,
    ] {
        assert!(follow(Surface::Chat, ASK, &model).whole(body.as_bytes()).is_err(), "{body}");
    }
    let deep = format!(r#"{{"choices":[{{"message":{{"content":{}{}}}}}]}}"#, "[".repeat(80), "]".repeat(80));
    assert!(follow(Surface::Chat, ASK, &model).whole(deep.as_bytes()).is_err());
}

#[test]
fn usage_that_nobody_tells_is_estimated() {
    let model = openai();
    let mut translate = follow(Surface::Chat, ASK, &model);
    let whole = translate
        .whole(br#"{"choices":[{"message":{"content":"0123456789"},"finish_reason":"stop"}]}"#)
        .unwrap();
    assert!(whole.usage.is_none());
    assert_eq!((whole.tokens.prompt, whole.tokens.completion), (1, 3));
}

const ROLE: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"own-model","system_fingerprint":"f","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
const HELLO: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"own-model","choices":[{"index":0,"delta":{"content":"hel\u006co"},"finish_reason":null}]}"#;
const STOP: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"own-model","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const USAGE: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"own-model","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;

#[test]
fn a_stream_is_the_gateways_own() {
    let model = openai();
    let wire = format!(": OPENROUTER\n\n{}", stream(&[ROLE, HELLO, STOP, USAGE, "[DONE]"]));
    let mut translate = follow(Surface::Chat, STREAM, &model);
    let got = relay(translate.as_mut(), &[wire.as_bytes()]);
    let own = |event: &str| {
        event
            .replace(r#""id":"c""#, r#""id":"req_0123""#)
            .replace("own-model", "m")
            .replace(r#""system_fingerprint":"f","#, "")
    };
    let usage = own(USAGE).replace("tokens\":2}", "tokens\":2,\"cost\":0.000005}");
    assert_eq!(got.text, stream(&[&own(ROLE), &own(HELLO), &own(STOP), &usage, "[DONE]"]));
    assert_eq!(got.steps, ["frame", "frame", "content", "frame", "frame", "done"]);
    assert_eq!(translate.finish_reasons(), ["stop"]);
    assert_eq!((translate.tokens().prompt, translate.tokens().completion), (1, 2));
    assert_eq!(translate.upstream_model(), Some("own-model"));
}

#[test]
fn usage_is_kept_from_those_who_do_not_want_it() {
    let model = openai();
    let body = STREAM.replace("true}", r#"true,"stream_options":{"include_usage":false}}"#);
    let mut translate = follow(Surface::Chat, &body, &model);
    let got = relay(translate.as_mut(), &[stream(&[HELLO, STOP, USAGE, "[DONE]"]).as_bytes()]);
    assert!(!got.text.contains("usage"), "{}", got.text);
    assert!(translate.usage().is_some());
}

#[test]
fn reasoning_that_is_excluded_is_taken_out() {
    let model = openai();
    let thought =
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"hm","reasoning":"hm"}}]}"#;
    let more = r#"{"choices":[{"index":0,"delta":{"reasoning_content":"hm","reasoning_details":[{}]}}]}"#;
    let body = STREAM.replace("true}", r#"true,"reasoning":{"exclude":true}}"#);
    let mut translate = follow(Surface::Chat, &body, &model);
    let got = relay(translate.as_mut(), &[stream(&[thought, more, HELLO, STOP, "[DONE]"]).as_bytes()]);
    assert!(!got.text.contains("hm") && !got.text.contains("reasoning"), "{}", got.text);
    assert_eq!(got.text.matches("data:").count(), 4);
    assert_eq!(got.steps[..2], ["content", "content"], "thinking commits, too");
}

/// Published clients fail at a stream whose first part does not say who speaks.
#[test]
fn the_first_part_of_each_choice_says_who_speaks() {
    let part =
        |index: u32, delta: &str| format!(r#"{{"id":"c","choices":[{{"index":{index},"delta":{delta}}}]}}"#);
    let own = |text: &str| text.replace("\"c\",", "\"req_0123\",\"model\":\"m\",");
    let body = STREAM.replace("true}", r#"true,"n":2,"reasoning":{"exclude":true}}"#);
    for (first, expected) in [
        (r#"{"content":"x"}"#, r#"{"role":"assistant","content":"x"}"#),
        (r#"{"role":null,"content":"x"}"#, r#"{"role":"assistant","content":"x"}"#),
        (r#"{"role":"","content":"x"}"#, r#"{"role":"assistant","content":"x"}"#),
        (r#"{"role":"tool","content":"x"}"#, r#"{"role":"tool","content":"x"}"#),
        ("{}", r#"{"role":"assistant"}"#),
    ] {
        // What does not go out is no first part.
        let hidden = part(0, r#"{"reasoning":"hm"}"#);
        let sent = [hidden, part(0, first), part(1, first), part(0, r#"{"content":"y"}"#), part(1, "{}")];
        let wire = stream(&sent.iter().map(String::as_str).collect::<Vec<_>>());
        let got = relay(follow(Surface::Chat, &body, &openai()).as_mut(), &[wire.as_bytes()]);
        let sent = [part(0, expected), part(1, expected), part(0, r#"{"content":"y"}"#), part(1, "{}")];
        assert_eq!(got.text, own(&stream(&sent.iter().map(String::as_str).collect::<Vec<_>>())), "{first}");
    }
    let text = r#"{"id":"c","choices":[{"index":0,"text":"x","delta":{}}]}"#;
    let ask = r#"{"model":"m","prompt":"x","stream":true}"#;
    let got = relay(follow(Surface::Completions, ask, &openai()).as_mut(), &[stream(&[text]).as_bytes()]);
    assert_eq!(got.text, own(&stream(&[text])), "texts have no speaker");
}

#[test]
fn ends_of_streams() {
    let model = openai();
    let end =
        |events: &[&str]| relay(follow(Surface::Chat, STREAM, &model).as_mut(), &[stream(events).as_bytes()]);
    assert!(end(&[HELLO, STOP]).text.ends_with("data: [DONE]\n\n"));
    assert_eq!(end(&[HELLO]).ending, Ending::Truncated);
    assert_eq!(end(&[HELLO, "[DONE]"]).steps, ["content", "broken"]);
    assert_eq!(end(&[HELLO, "{"]).steps, ["content", "broken"]);
    assert_eq!(end(&[r#"{"error":{"message":"no"}}"#]).steps, ["failed"]);
    let tail = follow(Surface::Chat, STREAM, &model).broken_tail("The upstream provider returned an error");
    assert_eq!(
        tail,
        "\n\ndata: {\"error\":{\"message\":\"The upstream provider returned an error\",\"type\":\"upstream_error\",\"code\":502,\"param\":null}}\n\n"
    );
}

#[test]
fn a_document_over_several_lines_stays_one_event() {
    let model = openai();
    let wire = "data: {\"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":[1,\ndata: 2]}}]}\n\n";
    let got = relay(follow(Surface::Chat, STREAM, &model).as_mut(), &[wire.as_bytes()]);
    assert_eq!(
        got.text,
        "data: {\"id\":\"req_0123\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":[1, 2]}}]}\n\n"
    );
}

#[test]
fn text_completions_and_embeddings() {
    let model = openai();
    let ask = r#"{"model":"m","prompt":"x"}"#;
    let answer = r#"{"id":"c","object":"text_completion","created":1,"model":"own-model","choices":[{"index":0,"text":"y","logprobs":null,"finish_reason":"stop"}]}"#;
    let whole = follow(Surface::Completions, ask, &model).whole(answer.as_bytes()).unwrap();
    assert_eq!(whole.body, answer.replace("\"c\"", "\"req_0123\"").replace("own-model", "m"));
    let answer = r#"{"object":"list","id":"e","data":[{"object":"embedding","index":0,"embedding":[0.10,-1e-5]}],"model":"own-model","usage":{"prompt_tokens":3,"total_tokens":3}}"#;
    let ask = r#"{"model":"m","input":"x"}"#;
    let whole = follow(Surface::Embeddings, ask, &model).whole(answer.as_bytes()).unwrap();
    assert_eq!(
        whole.body,
        answer.replace("\"id\":\"e\",", "").replace("own-model", "m").replace("3}}", "3,\"cost\":0.000003}}")
    );
    assert!(follow(Surface::Embeddings, ask, &model).whole(br#"{"data":[]}"#).is_err());
}

#[test]
fn cut_anywhere_or_split_anywhere() {
    let model = openai();
    let wire = stream(&[ROLE, HELLO, STOP, USAGE, "[DONE]"]);
    let got = |pieces: &[&[u8]]| relay(follow(Surface::Chat, STREAM, &model).as_mut(), pieces);
    let whole = got(&[wire.as_bytes()]);
    let finished = stream(&[ROLE, HELLO, STOP]).len() - 1;
    for cut in 0..wire.len() {
        let (head, tail) = wire.as_bytes().split_at(cut);
        assert_eq!(got(&[head, tail]), whole, "{cut}");
        let cut_off = got(&[head]);
        let is_whole = cut_off.ending != Ending::Truncated;
        assert!(!is_whole || cut >= finished, "{cut}");
        assert_eq!(is_whole, cut_off.text.ends_with("data: [DONE]\n\n"), "{cut}");
    }
}

#[test]
fn as_many_choices_have_to_come_as_were_asked_for() {
    let one = r#"{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}"#;
    let other = r#"{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"stop"}]}"#;
    let text = r#"{"choices":[{"index":0,"text":"x","finish_reason":"stop"},{"index":1,"text":"x","finish_reason":"stop"}]}"#;
    let chat = |more: &str| format!(r#"{{"model":"m","messages":[],"stream":true{more}}}"#);
    let prompt = |more: &str| format!(r#"{{"model":"m","stream":true,"prompt":{more}}}"#);
    for (surface, body, events, is_whole) in [
        (Surface::Chat, chat(""), vec![one], true),
        (Surface::Chat, chat(r#","n":2"#), vec![one], false),
        (Surface::Chat, chat(r#","n":2.0"#), vec![one], false),
        (Surface::Chat, chat(r#","n":2"#), vec![other, one], true),
        (Surface::Chat, chat(r#","n":null"#), vec![one], true),
        (Surface::Completions, prompt(r#"["a","b"]"#), vec![text], true),
        (Surface::Completions, prompt(r#"["a","b"],"n":2"#), vec![text], false),
        (Surface::Completions, prompt("[1,2,3]"), vec![text], true),
        (Surface::Completions, prompt("[[1,2],[3],[4]]"), vec![text], false),
    ] {
        for terminator in [true, false] {
            let mut events = events.clone();
            events.extend(terminator.then_some("[DONE]"));
            let got = relay(follow(surface, &body, &openai()).as_mut(), &[stream(&events).as_bytes()]);
            assert_eq!(got.text.ends_with("[DONE]\n\n"), is_whole, "{body}: {got:?}");
        }
    }
}
