//! What inference gateways ask and tell, and what workspaces see of it.

use std::num::NonZeroU32;
use std::path::Path;

use axum::body::Body;
use axum::http::Request;
use cloister_management_api::{TokenId, WorkspaceId};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Answer, Installation, START};
use crate::api::auth::hash_key;
use crate::clock::Clock;
use crate::inference::{Inference, InferenceConfig};
use crate::operations::CvmStatus;
use crate::store::tests::{embedded, postgres};

const TOKEN: &str = "gateway-token-of-thirty-two-bytes-or-more";
const PER_MINUTE: u32 = 20;
const HOUR: i64 = 60 * 60 * 1000;
const MODEL: &str = "demo/model";

/// How the gateways of test installations are served.
pub(super) fn served(dir: &Path) -> Inference {
    let control_token_file = dir.join("control-token");
    std::fs::write(&control_token_file, format!("{TOKEN}\n")).unwrap();
    Inference::open(&InferenceConfig { control_token_file, requests_per_minute: NonZeroU32::new(PER_MINUTE) })
        .unwrap()
}

async fn on_both<F: Future<Output = ()>>(test: impl Fn(Installation) -> F) {
    let clock = || Clock::manual(START.parse().unwrap());
    let data = tempfile::tempdir().unwrap();
    let store = embedded(data.path()).await;
    test(Installation::on(store, clock(), data).await).await;
    let store = postgres().await;
    test(Installation::on(store.clone(), clock(), tempfile::tempdir().unwrap()).await).await;
    store.close().await;
}

/// A key of the tenant.
struct Key {
    id: String,
    secret: String,
}

impl Installation {
    async fn key(&self, scope: &str) -> Key {
        let body = json!({"name": format!("{scope}-key"), "scope": scope, "expires_in_days": 30});
        let made = self.call("POST", "/tokens", body).await.expect(201).json();
        let text = |member: &str| made[member].as_str().unwrap().to_owned();
        Key { id: text("id"), secret: text("token") }
    }

    async fn consult(&self, hook: &str, token: &str, body: &Value) -> Answer {
        let request = Request::builder()
            .method("POST")
            .uri(format!("/internal/inference/consult/{hook}"))
            .header("authorization", token)
            .body(Body::from(body.to_string()))
            .unwrap();
        self.send(request).await
    }

    async fn ask(&self, secret: &str) -> Value {
        let body = json!({
            "apiKeyHash": hash_key(secret), "model": MODEL, "provider": {"zdr": true},
            "request": {"estimatedPromptTokens": 12, "hasTools": false, "inputModalities": ["text"]},
        });
        self.consult("pre", &format!("Bearer {TOKEN}"), &body).await.expect(200).json()
    }

    /// Tells of an attempt; whether it was recorded.
    async fn tell(&self, row: &Value) -> bool {
        let told = self.consult("post", &format!("Bearer {TOKEN}"), row).await.expect(200).json();
        told["recorded"].as_bool().unwrap()
    }

    async fn credit(&self, amount: &str) {
        let admin = [("x-api-key", self.admin.as_str())];
        let body = json!({"amount": amount, "reason": "paid", "idempotency_key": amount});
        let path = "/admin/workspaces/tenant/credits";
        self.call_with(&admin, "POST", path, body).await.expect(201);
    }

    async fn prepaid(&self) {
        let admin = [("x-api-key", self.admin.as_str())];
        let path = "/admin/workspaces/tenant/billing";
        self.call_with(&admin, "PUT", path, json!({"prepaid": true})).await.expect(200);
    }

    async fn shown(&self, path: &str) -> Value {
        self.call("GET", path, Value::Null).await.expect(200).json()
    }
}

fn row(key: &Key, request: &str, cost: &str) -> Value {
    json!({
        "requestId": request, "endpoint": "/v1/chat/completions", "status": 200, "durationMs": 120, "ttftMs": 30,
        "isStreaming": true, "attemptIndex": 0, "selectedRouteId": "a:demo/model", "requestModel": MODEL,
        "usage": {"prompt_tokens": 100, "completion_tokens": 20}, "promptTokens": 100, "completionTokens": 20,
        "cost": cost, "pricing": null, "virtualKeyId": key.id, "userId": "x", "endedAt": 1_768_989_600,
    })
}

#[tokio::test]
async fn only_gateways_are_answered() {
    let installation = Installation::new().await;
    let key = installation.key("inference").await;
    let body = json!({"apiKeyHash": hash_key(&key.secret), "model": MODEL});
    for token in [
        String::new(),
        "Bearer".to_owned(),
        format!("Bearer {}", &TOKEN[1..]),
        format!("Basic {TOKEN}"),
        format!("Bearer {}", installation.admin),
    ] {
        for hook in ["pre", "post", "keep"] {
            let answer = installation.consult(hook, &token, &body).await;
            assert_eq!(answer.summary(), "401 plain", "{hook} {token}");
        }
    }
    installation.consult("pre", &format!("bearer  {TOKEN}"), &body).await.expect(200);
    for body in [json!({}), json!([]), json!({"apiKeyHash": 7}), Value::Null] {
        let answer = installation.consult("pre", &format!("Bearer {TOKEN}"), &body).await;
        assert_eq!(answer.summary(), "422 validation", "{body}");
    }
    let request = Request::get("/internal/inference/consult/pre").body(Body::empty()).unwrap();
    assert_eq!(installation.send(request).await.status.as_u16(), 401);
}

#[tokio::test]
async fn keys_ask_as_their_scope_allows() {
    on_both(|installation| async move {
        for (scope, allowed) in [("inference", true), ("read", false), ("deploy", true), ("admin", true)] {
            let key = installation.key(scope).await;
            let answer = installation.ask(&key.secret).await;
            assert_eq!(
                (&answer["allow"], &answer["virtualKeyId"]),
                (&json!(allowed), &json!(key.id)),
                "{scope}"
            );
            assert_eq!(answer["userId"], WorkspaceId(installation.tenant_workspace).to_string());
            let status = if allowed { Value::Null } else { json!(403) };
            assert_eq!(answer["status"], status, "{scope}");
        }
        let key = installation.key("inference").await;
        let answer = installation.ask(&key.secret).await;
        let workspace = WorkspaceId(installation.tenant_workspace);
        let left = json!({"limit": PER_MINUTE, "resetAt": 1_768_989_603, "remaining": PER_MINUTE - 1});
        assert_eq!(
            answer,
            json!({
                "allow": true, "userId": workspace, "virtualKeyId": key.id, "spendMode": "regular", "rateLimit": left,
            })
        );
        // Such a key does nothing else, but it ends itself.
        let headers = [("x-api-key", key.secret.as_str())];
        for path in ["/cvms", "/auth/me", "/workspace/billing", "/workspace/inference-usage", "/tokens"] {
            installation.call_with(&headers, "GET", path, Value::Null).await.expect(403);
        }
        installation.call_with(&headers, "DELETE", "/tokens/self", Value::Null).await.expect(204);
        let denied = json!({"allow": false, "status": 401, "message": "Invalid, expired or revoked API key"});
        assert_eq!(installation.ask(&key.secret).await, denied);
        let expiring = installation.key("inference").await;
        installation.app.clock.advance_ms(31 * 24 * HOUR);
        assert_eq!(installation.ask(&expiring.secret).await, denied);
        assert_eq!(installation.ask("phak_unknown").await, denied);
        for hash in ["", "x", &"A".repeat(64), &expiring.secret] {
            let body = json!({"apiKeyHash": hash, "model": MODEL});
            let answer = installation.consult("pre", &format!("Bearer {TOKEN}"), &body).await;
            assert_eq!(answer.expect(200).json(), denied, "{hash}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_key_of_inference_is_a_stranger_to_public_operations() {
    let installation = Installation::new().await;
    let mut body = super::provision_body("tenant-app");
    body["compose_file"]["public_tcbinfo"] = json!(false);
    let provision = installation.call("POST", "/cvms/provision", body).await.expect(200).json();
    let create = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
    let vm = installation.call("POST", "/cvms", create).await.expect(200).json();
    installation.settle(&vm, CvmStatus::Running).await;
    let path = format!("/apps/{}/attestations", provision["app_id"].as_str().unwrap());
    for (scope, status) in [("inference", 404), ("read", 200)] {
        let key = installation.key(scope).await;
        let headers = [("x-api-key", key.secret.as_str())];
        installation.call_with(&headers, "GET", &path, Value::Null).await.expect(status);
    }
}

#[tokio::test]
async fn inference_is_paid_from_the_credit_of_the_workspace() {
    on_both(|installation| async move {
        let key = installation.key("inference").await;
        assert!(installation.tell(&row(&key, "req_before", "0.25")).await, "who pays afterwards owes");
        let billing = installation.shown("/workspace/billing").await;
        assert_eq!((&billing["outstanding_amount"], &billing["can_start"]), (&json!("0.25"), &json!(true)));
        assert_eq!(installation.ask(&key.secret).await["allow"], true);

        installation.prepaid().await;
        let denied = installation.ask(&key.secret).await;
        assert_eq!((&denied["status"], &denied["message"]), (&json!(402), &json!("Insufficient credits")));
        assert_eq!(denied["virtualKeyId"], key.id);
        installation.credit("1").await;
        assert_eq!(installation.ask(&key.secret).await["allow"], true);
        assert!(installation.tell(&row(&key, "req_1", "0.000135")).await);
        assert!(installation.tell(&row(&key, "req_2", "0.749864")).await);
        assert_eq!(installation.shown("/workspace/billing").await["balance"], "0.000001");
        assert_eq!(installation.ask(&key.secret).await["allow"], true, "a millionth is more than nothing");
        assert!(installation.tell(&row(&key, "req_3", "0.000001")).await);
        assert_eq!(installation.ask(&key.secret).await["status"], 402);

        let billing = installation.shown("/workspace/billing").await;
        assert_eq!((&billing["balance"], &billing["used"]), (&json!("0"), &json!("1")));
        assert_eq!(billing["month"], json!({"month": "2026-01", "cost": "1", "inference_cost": "1"}));
        assert_eq!(billing["can_start"], false);
        let provision = installation.provision("tenant-new").await;
        let create = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
        let refused = installation.call("POST", "/cvms", create).await;
        assert_eq!(refused.summary(), "400 ERR-04-001", "the credit is one for all");
        // A month later it is still used.
        installation.app.clock.advance_ms(40 * 24 * HOUR);
        let billing = installation.shown("/workspace/billing").await;
        assert_eq!((&billing["used"], &billing["month"]["inference_cost"]), (&json!("1"), &json!("0")));
    })
    .await;
}

#[tokio::test]
async fn an_attempt_is_charged_once_however_often_it_is_told() {
    on_both(|installation| async move {
        let key = installation.key("inference").await;
        let first = row(&key, "req_1", "0.5");
        // Two gateways, or one that got no answer, at the same time.
        let told = join_all((0..8).map(|_| installation.tell(&first))).await;
        assert_eq!(told.iter().filter(|recorded| **recorded).count(), 1, "{told:?}");
        let with = |member: &str, value: Value| {
            let mut row = first.clone();
            row[member] = value;
            row
        };
        assert!(installation.tell(&with("attemptIndex", json!(1))).await, "another attempt");
        assert!(installation.tell(&with("status", json!(502))).await, "another end");
        assert!(!installation.tell(&with("cost", json!("9"))).await, "the same attempt");
        installation.call("DELETE", &format!("/tokens/{}", key.id), Value::Null).await.expect(204);
        assert!(installation.tell(&row(&key, "req_2", "0.5")).await, "its key has ended since");
        assert!(!installation.tell(&first).await);
        assert_eq!(installation.shown("/workspace/billing").await["used"], "2");
        // The window ends now, and an hour that has just begun is not in it.
        installation.app.clock.advance_ms(1);
        let usage = installation.shown("/workspace/inference-usage").await;
        assert_eq!(
            usage,
            json!({
                "usage": [{
                    "hour": "2026-01-21T10:00:00Z", "model": MODEL, "token_id": key.id,
                    "token_name": "inference-key", "requests": 3, "failed_attempts": 1, "prompt_tokens": 400,
                    "completion_tokens": 80, "cost": "2",
                }],
                "total": 1, "total_cost": "2", "currency": "USD",
            })
        );
    })
    .await;
}

#[tokio::test]
async fn what_is_nobodys_or_nothing_is_acknowledged_and_not_charged() {
    let installation = Installation::new().await;
    let key = installation.key("inference").await;
    let with = |member: &str, value: Value| {
        let mut row = row(&key, "req_1", "0.5");
        row[member] = value;
        row
    };
    let unknown = TokenId(999_999).to_string();
    for row in [
        with("selectedRouteId", Value::Null),
        with("virtualKeyId", Value::Null),
        with("virtualKeyId", json!("somebody")),
        with("virtualKeyId", json!(unknown)),
    ] {
        assert!(!installation.tell(&row).await, "{row}");
    }
    for row in [
        Value::Null,
        json!({}),
        with("requestId", json!("")),
        with("requestId", json!("a\u{0}b")),
        with("requestModel", json!("x".repeat(513))),
        with("selectedRouteId", json!("a\nb")),
        with("endpoint", json!("\u{7f}")),
        with("status", json!(-1)),
        with("attemptIndex", json!(-1)),
        with("promptTokens", json!(-1)),
        with("completionTokens", json!(1_000_000_000_001_i64)),
        with("cost", json!("-0.1")),
        with("cost", json!("1000000.1")),
        with("cost", json!("much")),
        with("cost", json!([])),
        // So long ago that it may have been told and forgotten: the gateway sets it aside, and somebody looks at it.
        with("endedAt", json!(1_768_989_600 - 90 * 24 * 3600)),
    ] {
        let answer = installation.consult("post", &format!("Bearer {TOKEN}"), &row).await;
        assert_eq!(answer.summary(), "422 validation", "{row}");
    }
    assert_eq!(installation.shown("/workspace/billing").await["used"], "0");
    assert_eq!(installation.shown("/workspace/inference-usage").await["total"], 0);
    // Numbers, exponents and no cost at all are understood.
    for (request, cost) in [("req_2", json!(0.000_135)), ("req_3", json!(1.5e-7)), ("req_4", Value::Null)] {
        let mut row = with("cost", cost);
        row["requestId"] = json!(request);
        assert!(installation.tell(&row).await, "{row}");
    }
    assert_eq!(installation.shown("/workspace/billing").await["used"], "0.00013515");
}

#[tokio::test]
async fn a_key_begins_only_so_many_requests_in_a_minute() {
    let installation = Installation::new().await;
    let (key, other) = (installation.key("inference").await, installation.key("inference").await);
    for begun in 1..=PER_MINUTE {
        let allowed = installation.ask(&key.secret).await;
        assert_eq!(allowed["allow"], true);
        // Each takes three seconds to come back.
        let left = json!({
            "limit": PER_MINUTE, "resetAt": 1_768_989_600 + 3 * i64::from(begun), "remaining": PER_MINUTE - begun,
        });
        assert_eq!(allowed["rateLimit"], left);
    }
    let denied = installation.ask(&key.secret).await;
    assert_eq!((&denied["allow"], &denied["status"]), (&json!(false), &json!(429)));
    // They come back one by one: the next one three seconds after START.
    let left = json!({"limit": PER_MINUTE, "resetAt": 1_768_989_603, "remaining": 0});
    assert_eq!(denied["rateLimit"], left);
    assert_eq!(installation.ask(&other.secret).await["allow"], true);
    // Whose key it is may be asked at any time.
    let body = json!({"apiKeyHash": hash_key(&key.secret), "model": ""});
    let known = installation.consult("pre", &format!("Bearer {TOKEN}"), &body).await.expect(200).json();
    assert_eq!((&known["allow"], &known["rateLimit"]), (&json!(true), &Value::Null));
    // A request that the gateway refuses is one all the same.
    let body = json!({"apiKeyHash": hash_key(&key.secret), "model": "", "requestId": "req_1"});
    let refused = installation.consult("pre", &format!("Bearer {TOKEN}"), &body).await.expect(200).json();
    assert_eq!((&refused["allow"], &refused["status"]), (&json!(false), &json!(429)));
    installation.app.clock.advance_ms(3_000);
    assert_eq!(installation.ask(&key.secret).await["allow"], true);
    assert_eq!(installation.ask(&key.secret).await["status"], 429);
    // A clock that is set gives nothing back.
    installation.app.clock.set_ms(60_000);
    assert_eq!(installation.ask(&key.secret).await["status"], 429);
}

#[tokio::test]
async fn usage_has_pages_and_windows() {
    on_both(|installation| async move {
        let (one, two) = (installation.key("inference").await, installation.key("deploy").await);
        for hour in 0..3 {
            for (key, model) in [(&one, "demo/a"), (&one, "demo/b"), (&two, "demo/a")] {
                let mut row = row(key, &format!("req_{hour}_{model}_{}", key.id), "0.1");
                row["requestModel"] = json!(model);
                row["endedAt"] = Value::Null;
                assert!(installation.tell(&row).await);
            }
            installation.app.clock.advance_ms(HOUR);
        }
        let whole = installation.shown("/workspace/inference-usage").await;
        assert_eq!((&whole["total"], &whole["total_cost"]), (&json!(9), &json!("0.9")));
        let records = whole["usage"].as_array().unwrap();
        let hours: Vec<_> = records.iter().map(|record| record["hour"].as_str().unwrap()).collect();
        assert!(hours.is_sorted_by(|newer, older| newer >= older), "{hours:?}");
        let mut paged = Vec::new();
        for offset in [0, 4, 8] {
            let path = format!("/workspace/inference-usage?limit=4&offset={offset}");
            let page = installation.shown(&path).await;
            assert_eq!(page["total"], 9);
            paged.extend(page["usage"].as_array().unwrap().clone());
        }
        assert_eq!(&paged, records);
        let path = "/workspace/inference-usage?start_date=2026-01-21T11:30:00Z&end_date=2026-01-21T11:40:00Z";
        let one_hour = installation.shown(path).await;
        assert_eq!((&one_hour["total"], &one_hour["total_cost"]), (&json!(3), &json!("0.3")));
        let admin = [("x-api-key", installation.admin.as_str())];
        let path = "/workspace/inference-usage";
        let foreign = installation.call_with(&admin, "GET", path, Value::Null).await.expect(200).json();
        assert_eq!(foreign["total"], 0, "of the key's own workspace");
        for query in ["limit=0", "limit=5001", "offset=-1", "start_date=yesterday"] {
            let path = format!("/workspace/inference-usage?{query}");
            assert_eq!(
                installation.call("GET", &path, Value::Null).await.summary(),
                "422 validation",
                "{query}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn credit_is_set_aside_for_what_is_under_way() {
    on_both(|installation| async move {
        let key = installation.key("inference").await;
        let ask = async |request: &str, cost: Value| {
            let body = json!({
                "apiKeyHash": hash_key(&key.secret), "model": MODEL, "requestId": request, "estimatedCost": cost,
            });
            installation.consult("pre", &format!("Bearer {TOKEN}"), &body).await
        };
        for (request, cost) in [("", json!("1")), ("a\nb", json!("1")), ("req", json!("-1")), ("req", json!("x"))] {
            assert_eq!(ask(request, cost).await.summary(), "422 validation");
        }
        // Who pays afterwards has nothing set aside.
        for number in 0..3 {
            let answer = ask(&format!("req_after_{number}"), json!("1000")).await.expect(200).json();
            assert_eq!(answer["allow"], true);
        }
        installation.prepaid().await;
        installation.credit("0.01").await;
        let names: Vec<String> = (0..12).map(|number| format!("req_{number}")).collect();
        let asked = join_all(names.iter().map(|name| ask(name, json!("0.004")))).await;
        let answers: Vec<Value> = asked.into_iter().map(|answer| answer.expect(200).json()).collect();
        let admitted: Vec<&String> =
            names.iter().zip(&answers).filter(|(_, answer)| answer["allow"] == true).map(|(name, _)| name).collect();
        assert_eq!(admitted.len(), 2, "{answers:?}");
        let refused = answers.iter().find(|answer| answer["allow"] == false).unwrap();
        assert_eq!((&refused["status"], &refused["virtualKeyId"]), (&json!(429), &json!(key.id)));
        // A row of an attempt that failed says nothing of the request; the last one does, be it with a route or
        // without.
        let mut failed = row(&key, admitted[0], "0");
        failed["status"] = json!(502);
        assert!(installation.tell(&failed).await);
        assert_eq!(ask("req_next", json!("0.004")).await.expect(200).json()["status"], 429);
        let mut last = row(&key, admitted[0], "0");
        (last["isLast"], last["selectedRouteId"], last["attemptIndex"]) = (json!(true), Value::Null, json!(1));
        assert!(!installation.tell(&last).await);
        assert_eq!(ask("req_next", json!("0.004")).await.expect(200).json()["allow"], true);
        // Nor need it be known whose it was; only the last row counts.
        let mut nameless = row(&key, "req_next", "0");
        (nameless["selectedRouteId"], nameless["virtualKeyId"]) = (Value::Null, Value::Null);
        assert!(!installation.tell(&nameless).await);
        assert_eq!(ask("req_after", json!("0.004")).await.expect(200).json()["status"], 429);
        nameless["isLast"] = json!(true);
        assert!(!installation.tell(&nameless).await);
        assert_eq!(ask("req_after", json!("0.004")).await.expect(200).json()["allow"], true);
        let mut last = row(&key, admitted[1], "0.01");
        last["isLast"] = json!(true);
        assert!(installation.tell(&last).await);
        assert_eq!(ask("req_last", json!("0.004")).await.expect(200).json()["status"], 402);
    })
    .await;
}

#[tokio::test]
async fn what_is_under_way_stays_set_aside() {
    on_both(|installation| async move {
        let key = installation.key("inference").await;
        installation.prepaid().await;
        installation.credit("1").await;
        let gateway = format!("Bearer {TOKEN}");
        let ask = async |request: &str| {
            let body = json!({
                "apiKeyHash": hash_key(&key.secret), "model": MODEL, "requestId": request, "estimatedCost": "0.8",
            });
            installation.consult("pre", &gateway, &body).await.expect(200).json()
        };
        let first = ask("req_1").await;
        assert_eq!(first["allow"], true);
        let named = |request: &str, user: &Value| json!({"requestId": request, "userId": user});
        let body = json!({"requests": [
            named("req_1", &first["userId"]), named("req_2", &first["userId"]), named("req_1", &json!("wks_0")),
            named("req_1", &json!("somebody")), {"requestId": "req_1"},
        ]});
        for _ in 0..4 {
            installation.app.clock.advance_ms(HOUR / 2);
            let kept = installation.consult("keep", &gateway, &body).await.expect(200).json();
            assert_eq!(kept, json!({"kept": 1}));
            assert_eq!(ask("req_3").await["status"], 429);
        }
        installation.app.clock.advance_ms(HOUR);
        let kept = installation.consult("keep", &gateway, &body).await.expect(200).json();
        assert_eq!(kept, json!({"kept": 0}), "nobody told of it for an hour");
        assert_eq!(ask("req_3").await["allow"], true);
        let many: Vec<Value> = (0..1001).map(|_| named("req_1", &Value::Null)).collect();
        for body in [json!({}), json!({"requests": [{}]}), json!({"requests": [named("", &Value::Null)]}), json!({"requests": many})] {
            assert_eq!(installation.consult("keep", &gateway, &body).await.summary(), "422 validation");
        }
    })
    .await;
}
