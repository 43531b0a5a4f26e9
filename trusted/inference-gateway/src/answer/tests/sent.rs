//! What receipts say of where a request went, and when.

use serde_json::{Value, json};

use super::proof::verdict;
use super::support::*;
use crate::upstream::fake::{Act, Fake, gone_after_one, json as json_reply};

/// An upstream at an address that is no fake's.
fn at(name: &str, url: &str, priority: u32) -> Value {
    upstream(name, url, priority, &json!({"timeouts": {"connect": 1, "first_byte": 5, "idle": 5}}))
}

/// The route of the receipt of a refusal, if anything may have been sent there.
async fn sent_to(upstreams: Vec<Value>) -> Option<String> {
    let bench = Bench::new(upstreams, json!({})).await;
    let failed = bench.ask(&chat(false)).await;
    assert_eq!(failed.error(), (502, "upstream_error".to_owned()));
    let receipt = bench.checked_receipt(&failed);
    let forwarded = event(&receipt, "request.forwarded").is_some();
    let route = event(&receipt, "route.selected").map(|event| event["target_route_id"].clone());
    assert_eq!(forwarded, route.is_some());
    route.map(|route| route.as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_connection_that_broke_may_have_taken_the_request() {
    let gone = at("gone", &gone_after_one().await, 0);
    assert_eq!(sent_to(vec![gone]).await.as_deref(), Some("gone:vendor/model"));
}

#[tokio::test]
async fn a_connection_that_never_stood_took_nothing() {
    let fake = Fake::start(|_, _| vec![Act::Hang]).await;
    let silent = at("silent", &fake.url().replace("http:", "https:"), 0);
    assert_eq!(sent_to(vec![silent]).await, None);
}

/// Of several that failed the receipt names one that got the request, whichever was tried last.
#[tokio::test]
async fn a_receipt_names_where_the_request_went() {
    for order in [[0, 1], [1, 0]] {
        let gone = at("gone", &gone_after_one().await, order[0]);
        let absent = at("absent", "http://127.0.0.1:1", order[1]);
        assert_eq!(sent_to(vec![gone, absent]).await.as_deref(), Some("gone:vendor/model"), "{order:?}");
    }
}

/// Who is told that nothing was proved knows that nothing was sent: where an attempt before sent the request, its failure is
/// told, as the receipt has it.
#[tokio::test]
async fn that_nothing_was_proved_is_told_only_where_nothing_was_sent() {
    let fake = Fake::start_tls(|_, _| vec![Act::Close]).await;
    let (_, pin) = fake.certificate.clone().unwrap();
    let proves = format!("cat > /dev/null; cat <<'END'\n{}\nEND", verdict(&fake, pin));
    let route = |name: &str, priority: u32, program: &str| {
        let more = json!({"verifier_command": ["/bin/sh", "-c", program]});
        upstream(name, &fake.url(), priority, &more)
    };
    for (upstreams, told, result, is_sent) in [
        (
            vec![route("breaks", 0, &proves), route("fails", 1, "exit 1")],
            (502, "upstream_error"),
            "verified",
            true,
        ),
        (
            vec![route("fails", 0, "exit 1"), route("breaks", 1, &proves)],
            (502, "upstream_error"),
            "verified",
            true,
        ),
        (vec![route("fails", 0, "exit 1")], (503, "upstream_verification_failed"), "failed", false),
    ] {
        let bench = Bench::new(upstreams, json!({})).await;
        let mut request = chat(false);
        request["provider"] = json!({"aci_verified": true});
        let failed = bench.ask(&request).await;
        assert_eq!(failed.error(), (told.0, told.1.to_owned()));
        let receipt = bench.checked_receipt(&failed);
        assert_eq!(event(&receipt, "upstream.verified").unwrap()["result"], result, "{receipt}");
        assert_eq!(event(&receipt, "request.forwarded").is_some(), is_sent, "{receipt}");
    }
}

/// The connection breaks when the request is out, the next one ends at another key, and that one cannot be verified.
#[tokio::test]
async fn what_went_out_before_another_key_came_went_out() {
    let fake = Fake::start_tls_changing(|_, _| vec![Act::Close]).await;
    let (_, pin) = fake.certificate.clone().unwrap();
    let dir = tempfile::TempDir::new().unwrap();
    let once = format!(
        "cat > /dev/null; mkdir {}/once || exit 1; cat <<'END'\n{}\nEND",
        dir.path().display(),
        verdict(&fake, pin)
    );
    let more = json!({"verifier_command": ["/bin/sh", "-c", once]});
    let bench = Bench::new(vec![upstream("third", &fake.url(), 0, &more)], json!({})).await;
    let mut request = chat(false);
    request["provider"] = json!({"aci_verified": true});
    let failed = bench.ask(&request).await;
    assert_eq!(failed.error(), (502, "upstream_error".to_owned()));
    let receipt = bench.checked_receipt(&failed);
    assert_eq!(event(&receipt, "upstream.verified").unwrap()["result"], "verified");
    assert!(event(&receipt, "request.forwarded").is_some() && fake.seen.lock().len() == 1);
}

/// What is said to have been served was served in a session, also where that had to be waited for.
#[tokio::test]
async fn an_answer_is_served_within_its_session() {
    let fake = Fake::start_tls(|_, _| vec![Act::Send(json_reply(200, WHOLE))]).await;
    let (_, pin) = fake.certificate.clone().unwrap();
    let answer = json!({
        "result": "verified",
        "verifier_id": "third/v1",
        "attested_scope": "router",
        "evidence": {"quote": "00"},
        "channel_bindings": [
            {"type": "tls_spki_sha256", "origin": fake.url(), "spki_sha256": hex::encode(pin)},
        ],
        "provider_claims": {},
    });
    // Longer than a second, which receipts count in.
    let script = format!("cat > /dev/null; sleep 1.5; cat <<'END'\n{answer}\nEND");
    let more = json!({"verifier_command": ["/bin/sh", "-c", script]});
    let bench = Bench::new(vec![upstream("third", &fake.url(), 0, &more)], json!({})).await;
    let reply = bench.ask(&chat(false)).await;
    let receipt = bench.checked_receipt(&reply);
    let id = event(&receipt, "upstream.verified").unwrap()["session_id"].as_str().unwrap().to_owned();
    let session: Value =
        serde_json::from_slice(&bench.running.gateway().store.session(&id).unwrap().unwrap()).unwrap();
    let time = |document: &Value, member: &str| document[member].as_u64().unwrap();
    let held = time(&session, "established_at")..=time(&session, "expires_at");
    assert!(held.contains(&time(&receipt, "served_at")), "{receipt} {session}");
}
