//! Requests that demand proof of who answers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use cloister_aci::TlsKey;
use serde_json::{Value, json};

use super::support::*;
use crate::gateway::Gateway;
use crate::lab::machine;
use crate::upstream::fake::{Act, Fake};

#[tokio::test]
async fn a_request_that_demands_proof_does_not_go_where_there_is_none() {
    let fake = good().await;
    let bench = Bench::alone(&fake).await;
    let mut request = chat(true);
    request["provider"] = json!({"aci_verified": true});
    let failed = bench.ask(&request).await;
    assert_eq!(failed.error(), (404, "not_found_error".to_owned()));
    assert_eq!(fake.counts.connections.load(Ordering::Relaxed), 0);
}

/// A confidential service that cannot prove anything.
#[tokio::test]
async fn what_proves_nothing_gets_no_prompt() {
    let fake = Fake::start_tls(|_, _| vec![Act::Send(crate::upstream::fake::json(200, "{}"))]).await;
    let bench = Bench::new(
        vec![upstream(
            "tee",
            &fake.url(),
            0,
            &json!({
                "provider": "aci-service",
                "accepted_subjects": [format!("app-id:0x{}", "ab".repeat(20))],
                "accepted_boot_registers": [machine::boot(&machine::image("kernel"))],
                "accepted_key_provider_ids": [machine::KEY_PROVIDER],
                "accepted_kms_root_public_keys": [format!("02{}", "ab".repeat(32))],
            }),
        )],
        json!({}),
    )
    .await;
    for stream in [true, false] {
        let failed = bench.ask(&chat(stream)).await;
        assert_eq!(failed.error(), (503, "upstream_verification_failed".to_owned()));
        assert_eq!(failed.header("x-should-retry"), Some("false"));
        let receipt = bench.checked_receipt(&failed);
        let kinds: Vec<&str> = receipt["event_log"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["request.received", "upstream.verified", "response.returned"]);
        let verified = event(&receipt, "upstream.verified").unwrap();
        assert_eq!((&verified["result"], &verified["required"]), (&json!("failed"), &json!(true)));
        assert!(verified["reason"].is_string());
    }
    let message =
        json!({"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "a secret"}]});
    let failed = bench.ask_at("/v1/messages", &message).await;
    assert_eq!(failed.error(), (503, "upstream_verification_failed".to_owned()));
    for seen in fake.seen.lock().iter() {
        assert!(!String::from_utf8_lossy(&seen.body).contains("secret"), "a prompt went out");
    }
}

/// Also when another one serves before anything of the answer is there.
#[tokio::test]
async fn an_answer_names_the_keyset_that_signs_its_receipt() {
    let gateway = Arc::new(OnceLock::<Arc<Gateway>>::new());
    let renewing = Arc::clone(&gateway);
    let fake = Fake::start(move |number, seen| {
        let key = TlsKey { spki_sha256: format!("{number:064x}"), domain: None };
        renewing.get().unwrap().notary.set_tls_keys(vec![key]);
        if String::from_utf8_lossy(&seen.body).contains("\"stream\":true") {
            streamed(&answer())
        } else {
            vec![Act::Send(crate::upstream::fake::json(200, WHOLE))]
        }
    })
    .await;
    let bench = Bench::alone(&fake).await;
    gateway.set(Arc::clone(bench.running.gateway())).unwrap();
    for stream in [true, false] {
        let digest = || bench.running.gateway().notary.identity().digest.clone();
        let before = digest();
        let reply = bench.ask(&chat(stream)).await;
        assert_ne!(digest(), before);
        assert_eq!(bench.checked_receipt(&reply)["workload_keyset_digest"], before);
        for name in ["x-aci-keyset-digest", "x-aci-identity"] {
            assert_eq!(reply.header(name), Some(&*before), "{name}");
        }
    }
}

/// What a program says of an upstream that is verified to have this TLS key.
pub(super) fn verdict(fake: &Fake, pin: [u8; 32]) -> Value {
    json!({
        "result": "verified",
        "verifier_id": "third/v1",
        "attested_scope": "router",
        "evidence": {"quote": "00"},
        "channel_bindings": [
            {"type": "tls_spki_sha256", "origin": fake.url(), "spki_sha256": hex::encode(pin)},
        ],
        "provider_claims": {},
    })
}

/// An upstream that is verified to have this TLS key.
pub(super) async fn verified(fake: &Fake, pin: [u8; 32]) -> Bench {
    let script = format!("cat > /dev/null; cat <<'END'\n{}\nEND", verdict(fake, pin));
    let more = json!({"verifier_command": ["/bin/sh", "-c", script]});
    Bench::new(vec![upstream("third", &fake.url(), 0, &more)], json!({})).await
}

#[tokio::test]
async fn an_upstream_with_the_verified_key_answers() {
    let fake = Fake::start_tls(|_, seen| {
        if String::from_utf8_lossy(&seen.body).contains("\"stream\":true") {
            streamed(&answer())
        } else {
            vec![Act::Send(crate::upstream::fake::json(200, WHOLE))]
        }
    })
    .await;
    let (_, pin) = fake.certificate.clone().unwrap();
    let bench = verified(&fake, pin).await;
    let mut request = chat(true);
    request["provider"] = json!({"aci_verified": true});
    let streamed = bench.ask(&request).await;
    assert_eq!(seen(&streamed), complete());
    request["stream"] = json!(false);
    for reply in [streamed, bench.ask(&request).await] {
        let receipt = bench.checked_receipt(&reply);
        let verified = event(&receipt, "upstream.verified").unwrap();
        assert_eq!((&verified["result"], &verified["required"]), (&json!("verified"), &json!(true)));
        assert_eq!(verified["channel_bindings"][0]["spki_sha256"], hex::encode(pin));
        assert_eq!(verified["model_id"], "own-name");
    }
}

/// The certificate at the upstream is not the one that was verified: nothing of a prompt goes there.
#[tokio::test]
async fn an_upstream_with_another_key_gets_nothing() {
    let fake = Fake::start_tls(|_, _| vec![Act::Send(crate::upstream::fake::json(200, WHOLE))]).await;
    let bench = verified(&fake, [0xAB; 32]).await;
    let mut pinned = chat(false);
    pinned["provider"] = json!({"aci_session_ids": ["ab".repeat(32)]});
    assert_eq!(bench.ask(&pinned).await.error(), (412, "session_not_accepted".to_owned()));
    let mut request = chat(false);
    request["provider"] = json!({"aci_verified": true});
    let failed = bench.ask(&request).await;
    assert_eq!(failed.error(), (503, "upstream_verification_failed".to_owned()));
    let receipt = bench.checked_receipt(&failed);
    assert!(event(&receipt, "request.forwarded").is_none());
    let verified = event(&receipt, "upstream.verified").unwrap();
    assert_eq!((&verified["result"], &verified["required"]), (&json!("failed"), &json!(true)));
    assert_eq!(fake.counts.bytes.load(Ordering::Relaxed), 0, "not a byte after the handshake");
}
