//! What clients are told of upstreams' errors.

use http::StatusCode;
use proptest::prelude::*;

use super::*;
use crate::format::fault::{
    declares_quota, is_exhausted, is_quota, names_media, public, public_in_stream, read,
};

fn fault(message: &str) -> UpstreamFault {
    UpstreamFault { message: message.to_owned(), ..UpstreamFault::default() }
}

fn told(status: u16, body: &str) -> GatewayError {
    public(StatusCode::from_u16(status).unwrap(), &read(body.as_bytes()), &openai().routes[0])
}

#[test]
fn errors_of_every_shape_are_read() {
    for (body, message, kind, param) in [
        (r#"{"error":{"message":"a","type":"t","code":null,"param":"p"}}"#, "a", Some("t"), Some("p")),
        (
            r#"{"error":{"message":"a","type":"t","code":"insufficient_quota"}}"#,
            "a",
            Some("insufficient_quota"),
            None,
        ),
        (r#"{"error":{"message":"a","code":429}}"#, "a", None, None),
        (r#"{"error":"a"}"#, "a", None, None),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"a"},"request_id":"r"}"#,
            "a",
            Some("overloaded_error"),
            None,
        ),
        (
            r#"{"object":"error","message":"a","type":"BadRequestError","param":null,"code":400}"#,
            "a",
            Some("BadRequestError"),
            None,
        ),
        (r#"{"detail":"a"}"#, "a", None, None),
        ("<html>", "", None, None),
        ("[]", "", None, None),
        ("", "", None, None),
    ] {
        let read = read(body.as_bytes());
        assert_eq!(
            (read.message.as_str(), read.kind.as_deref(), read.param.as_deref()),
            (message, kind, param),
            "{body}"
        );
    }
}

#[test]
fn the_table_of_statuses() {
    let harmless = r#"{"error":{"message":"max_tokens is too large","param":"max_tokens"}}"#;
    for (status, body, told_status, kind, message) in [
        (400, harmless, 400, "invalid_request_error", "max_tokens is too large"),
        (
            400,
            r#"{"error":{"message":"<400> InternalError.Algo.InvalidParameter: too long"}}"#,
            400,
            "invalid_request_error",
            "too long",
        ),
        (
            400,
            r#"{"error":{"message":"see https://docs"}}"#,
            400,
            "invalid_request_error",
            "The request was rejected as invalid",
        ),
        (422, "{}", 422, "invalid_request_error", "The request was rejected as invalid"),
        (413, "", 413, "invalid_request_error", "The request is too large"),
        (404, harmless, 404, "not_found_error", "The requested model or resource was not found"),
        (401, harmless, 502, "upstream_error", "The upstream provider is currently unavailable"),
        (402, harmless, 502, "upstream_error", "The upstream provider is currently unavailable"),
        (403, harmless, 502, "upstream_error", "The upstream provider is currently unavailable"),
        (429, harmless, 429, "rate_limit_error", "Rate limit exceeded. Please retry after some time."),
        (
            429,
            r#"{"error":{"message":"x","code":"insufficient_quota"}}"#,
            502,
            "upstream_error",
            "The upstream provider is currently unavailable",
        ),
        (
            400,
            r#"{"error":{"message":"Your credit balance is too low to access the API"}}"#,
            502,
            "upstream_error",
            "The upstream provider is currently unavailable",
        ),
        (500, harmless, 502, "upstream_error", "The upstream provider returned an error"),
        (503, harmless, 502, "upstream_error", "The model is currently unavailable. Please try again later."),
        (
            503,
            r#"{"error":{"message":"All targets are exhausted"}}"#,
            429,
            "rate_limit_error",
            "Rate limit exceeded. Please retry after some time.",
        ),
        (504, harmless, 502, "upstream_error", "The upstream provider timed out"),
        (408, harmless, 502, "upstream_error", "The upstream provider timed out"),
        (302, harmless, 502, "upstream_error", "The upstream provider returned an error"),
    ] {
        let error = told(status, body);
        let row = error.kind.row();
        assert_eq!(
            (row.status.as_u16(), row.kind, error.message.as_str()),
            (told_status, kind, message),
            "{status} {body}"
        );
    }
    assert_eq!(told(400, harmless).param.as_deref(), Some("max_tokens"));
    assert_eq!(told(500, harmless).param, None);
}

#[test]
fn words_about_money_do_not_count_against_a_route() {
    let prose = fault("You said: exceeded your current quota");
    assert!(is_quota(&prose) && !declares_quota(&prose));
    let declared = UpstreamFault { kind: Some("insufficient_quota".to_owned()), ..UpstreamFault::default() };
    assert!(is_quota(&declared) && declares_quota(&declared));
    assert!(is_exhausted(&fault("ALL TARGETS EXHAUSTED")) && !is_exhausted(&fault("the rope is exhausted")));
}

#[test]
fn a_picture_of_the_client_is_its_own() {
    let request = br#"{"messages":[{"content":[{"image_url":{"url":"https://pics.example.org/a.png"}}]}]}"#;
    assert!(names_media(&fault("cannot fetch https://pics.example.org/a.png"), request));
    assert!(names_media(&fault("host pics.example.org did not answer"), request));
    assert!(!names_media(&fault("the server is busy"), request));
    assert!(!names_media(&fault(""), request));
}

#[test]
fn private_words_are_dropped_with_their_text() {
    let route = std::sync::Arc::clone(&openai().routes[0]);
    for message in [
        "see https://status.vendor.io",
        "node 10.0.3.17 failed",
        "node 10.0.3.17:8080 failed",
        "vllm-7.prod.svc failed",
        "api.vendor.com failed",
        "API.Vendor.COM. failed",
        "request 0f8fad5b-d9cd-469f-a165-70867728950e failed",
        "trace deadbeefdeadbeef",
        "Incorrect API key provided: sk-abc",
        "token-1234 is wrong",
        "the model `own-model` does not exist",
        "Organization org-x is over its limit",
        "upstream UP failed",
        "Your account is not active",
        "All of our accounts are busy",
        "the key (sk-live_1) is disabled",
        "localhost refused the connection",
        "Invalid API-key",
        "inference-b.acme.systems failed",
        "litellm.BadRequestError: UpException - tool call validation failed",
        "your accountId 4711 has no access",
        "account_id: 4711",
        "AccountOverdueError: pay",
        "InsufficientBalance: recharge",
        "no route to vllm-7:8000/v1/chat/completions",
        "no route to vllm-7:8000",
        "connect to [fd12::7]: refused",
        "fe80::1%eth0 is down",
        "fd12::7: refused",
        "AKIAIOSFODNN7EXAMPLE is disabled",
    ] {
        let error = public(StatusCode::BAD_REQUEST, &fault(message), &route);
        assert_eq!(error.message, "The request was rejected as invalid", "{message}");
        assert_eq!(
            public_in_stream(&fault(message), &route),
            "The upstream provider returned an error",
            "{message}"
        );
        let param = UpstreamFault { param: Some(message.to_owned()), ..UpstreamFault::default() };
        assert_eq!(public(StatusCode::BAD_REQUEST, &param, &route).param, None, "{message}");
    }
    for message in [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
        "Invalid 'messages[0].content': expected a string, got null.",
        "temperature must be <= 2.0",
        "messages.2.content.0.tool_use_id: Field required",
        "at 12:30:45, std::fmt failed in line 3:14 of the schema, ratio 16:9",
        "retired since 2025-06-12T10:30:00, see chat_template.jinja:42 and schema.json:12",
        "Llama-3.1-405B-Instruct-FP8 has 8192 tokens",
        "tools.0.custom.input_schema.type: Field required",
        "claude-3-5-sonnet-20241022 takes no pictures",
        "Invalid schema for function 'get_account_balance'",
        "risk-1 and task-runner are no tools; please keep it upright, and update",
    ] {
        assert_eq!(public(StatusCode::BAD_REQUEST, &fault(message), &route).message, message);
    }
    for (message, told) in [
        (
            "`tool_use` ids without `tool_result`: toolu_01A09q90qw90lq917835lq9, toolu_01Bx.",
            "`tool_use` ids without `tool_result`: [removed], toolu_01Bx.",
        ),
        ("token Wghijkl0123zxyzUV456789pqrs is wrong", "token [removed] is wrong"),
        (
            "Wx1y2z3w4v5u6t7s8r9q0pp begins Wx1y2z3w4v5u6t7s8r9q0pp.c2VjcmV0X3BhcnRfMQ",
            "[removed] begins [removed]",
        ),
        ("pod vllm-llama-3-70b-7d9f8b6c5d-x2k4p is restarting", "pod [removed] is restarting"),
        ("pod web-7d9f8b6c5d-x2k4p is restarting", "pod [removed] is restarting"),
        ("Engine on gpu-h100-8x-fra1-node-0042 crashed", "Engine on [removed] crashed"),
        ("inference-node-03.fra1.acme.ch is busy\nsorry", "[removed] is busy sorry"),
    ] {
        assert_eq!(public_in_stream(&fault(message), &route), told);
    }
}

proptest! {
    /// Whatever an upstream says around it, its host, name, model and key, addresses and account do not come through,
    /// and neither does any line end.
    #[test]
    fn nothing_private_comes_through(
        before in "[ -~\n]{0,40}",
        after in "[ -~\n]{0,40}",
        secret in prop::sample::select(vec![
            "secret.example.com", "token-1234", "own-model", "https://10.1.2.3/x", "192.168.17.4",
            "0f8fad5b-d9cd-469f-a165-70867728950e", "0123456789abcdef0123", "quota", "credit balance is too low",
        ]),
        status in 300_u16..600,
        kind in prop::option::of("[a-z_]{0,12}"),
    ) {
        let route = std::sync::Arc::clone(&openai().routes[0]);
        let message = format!("{before} {secret} {after}");
        let fault = UpstreamFault { param: Some(message.clone()), kind, message };
        let error = public(StatusCode::from_u16(status).unwrap(), &fault, &route);
        let stream = public_in_stream(&fault, &route);
        let body = String::from_utf8(error.body()).unwrap();
        prop_assert!(!body.contains(secret) && !stream.contains(secret));
        prop_assert!(!error.message.contains('\n') && !stream.contains('\n'));
        prop_assert!(error.status().is_client_error() || error.status().is_server_error());
    }

    /// No body makes the reader fail.
    #[test]
    fn anything_may_come(body in prop::collection::vec(any::<u8>(), 0..100), text in "[\\[\\]{}\":,a-z0-9 ]{0,60}") {
        let _ = (read(&body), read(text.as_bytes()));
    }
}
