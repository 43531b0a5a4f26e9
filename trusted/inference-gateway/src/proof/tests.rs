//! Identities, keysets and evidence, from a guest agent of a development machine.

mod endpoints;
mod gpus;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use cloister_aci::custody::Custody;
use cloister_aci::receipt::{Event, Receipt};
use cloister_aci::report::{Nonce, bound};
use cloister_aci::verify::{Check, Finding, Known};
use cloister_aci::{TlsKey, parse, sha256, verify};
use cloister_evidence::Quote;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::error::Kind;
use crate::lab::agent::{self, TestAgent};

const NONCE: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const START: i64 = 1_750_000_000;

/// A clock that a test sets.
#[derive(Clone)]
struct Hands(Arc<AtomicI64>);

impl Hands {
    fn new() -> (Self, Clock) {
        let hands = Self(Arc::new(AtomicI64::new(START)));
        let clock = hands.clone();
        (hands, Clock::from_fn(move || Timestamp::from_second(clock.0.load(Ordering::SeqCst)).unwrap()))
    }

    fn set(&self, second: i64) {
        self.0.store(second, Ordering::SeqCst);
    }
}

fn config(dir: &TempDir, more: &Value) -> GatewayConfig {
    let mut config = json!({
        "state_dir": dir.path(),
        "upstreams": [{"name": "one", "base_url": "https://one.example.com", "models": {"m": "m"}}],
    });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    GatewayConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap()
}

fn tls_key(domain: Option<&str>) -> TlsKey {
    TlsKey { domain: domain.map(ToOwned::to_owned), spki_sha256: "c0".repeat(32) }
}

fn receipt(identity: &Identity) -> Receipt {
    Receipt {
        chat_id: None,
        endpoint: "/v1/chat/completions".into(),
        event_log: vec![
            Event::RequestReceived { body_hash: sha256(b"request") },
            Event::ResponseReturned { body_hash: sha256(b"answer"), cleartext_hash: sha256(b"answer") },
        ],
        method: "POST".into(),
        model: Some("m".into()),
        receipt_id: "rcpt-1".into(),
        served_at: 1_750_000_000,
        workload_keyset_digest: identity.digest.clone(),
    }
}

fn is_signed(document: &[u8], keyset: &Keyset) -> bool {
    let digest = keyset.digest();
    let known = Known { keyset: Some(keyset), keyset_digest: Some(&digest), ..Known::default() };
    let findings = verify::receipt(&parse(document).unwrap(), &known);
    [Check::Key, Check::Signature, Check::Keyset]
        .into_iter()
        .all(|check| findings.contains(&(check, Finding::Holds)))
}

#[tokio::test]
async fn without_an_agent_receipts_are_signed_and_nothing_is_proved() {
    let dir = tempfile::tempdir().unwrap();
    let notary =
        Notary::start(&config(&dir, &json!({})), vec![tls_key(None)], Clock::system()).await.unwrap();
    let identity = notary.identity();
    assert_eq!(identity.digest, identity.keyset.digest());
    assert_eq!(identity.keyset.tls_public_keys, [tls_key(None)]);
    assert!(is_signed(&identity.sign(&receipt(&identity)).unwrap(), &identity.keyset));
    assert!(identity.keyset.receipt_signing_keys[0].key_id.starts_with("development-"));
    let error = notary.report(None, None).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.message.contains("agent_socket"));
}

#[tokio::test]
async fn keys_come_from_the_machine_and_the_root_vouches_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let agent = TestAgent::serve(&dir);
    let config = config(&dir, &json!({ "agent_socket": agent.socket }));
    let notary = Notary::start(&config, Vec::new(), Clock::system()).await.unwrap();
    let identity = notary.identity();
    assert_eq!(identity.keyset.subject, Some(format!("app-id:0x{}", agent.app_id)));
    let ids: Vec<_> = identity.keyset.e2ee_public_keys.iter().map(|key| key.key_id.as_str()).collect();
    assert_eq!(ids, ["dstack-kms-e2ee-x25519-v1", "dstack-kms-e2ee-v1"]);
    assert_eq!(identity.keyset.receipt_signing_keys[0].key_id, "dstack-kms-receipt-ed25519-v1");

    let nonce: Nonce = NONCE.parse().unwrap();
    let report = notary.report(Some(&nonce), None).await.unwrap();
    let bound = bound(&report, Some(&nonce)).unwrap();
    assert_eq!((&bound.keyset, &bound.digest), (&identity.keyset, &identity.digest));
    let evidence = &report["attestation"]["evidence"];
    let quote = hex::decode(evidence["quote"].as_str().unwrap()).unwrap();
    let quoted = Quote::parse(&quote).unwrap().td_report().unwrap().reportdata;
    assert_eq!(hex::encode(quoted), format!("{}{}", hex::encode(bound.report_data), "00".repeat(32)));
    assert_eq!(evidence["quote_report_data"], hex::encode(quoted));
    assert_eq!(evidence["app_compose"], agent::APP_COMPOSE);
    assert!(evidence["event_log"].is_string() && evidence["vm_config"].is_string());
    assert_eq!(report["attestation"]["tee_type"], "tdx");
    assert_eq!(report["service_capabilities"]["supported_e2ee_versions"], json!(["2"]));
    assert!(report["attestation"].get("source_provenance").is_none());

    let custody: Custody = serde_json::from_value(evidence["key_custody"].clone()).unwrap();
    assert_eq!(custody.keys.len(), 4);
    for key in &custody.keys {
        agent.assert_vouched(key);
        assert_eq!(key.algo == "ed25519", key.public_key == key.kms_public_key, "{key:?}");
    }
    assert_eq!(custody.keys[0].public_key, identity.keyset.receipt_signing_keys[0].public_key);
    // The same machine, the same keyset: a restart is no reason for another one.
    let again = Notary::start(&config, Vec::new(), Clock::system()).await.unwrap();
    assert_eq!(again.identity().digest, identity.digest);
}

#[tokio::test]
async fn a_keyset_is_followed_by_another_before_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (hands, clock) = Hands::new();
    let config = config(&dir, &json!({ "keyset_lifetime_s": 4000 }));
    let notary = Notary::start(&config, Vec::new(), clock.clone()).await.unwrap();
    let first = notary.identity();
    hands.set(START + 2999);
    assert_eq!(notary.identity().digest, first.digest);
    hands.set(START + 3001);
    let second = notary.identity();
    assert_ne!(second.digest, first.digest);
    assert_eq!(second.keyset.not_after, 1_750_007_001);
    assert_eq!(notary.identity().digest, second.digest);
    // What the first one signed can still be checked.
    let document = notary.keyset_document(&first.digest).unwrap().unwrap();
    assert_eq!(sha256(document.as_bytes()), first.digest);
    let keyset: Keyset = serde_json::from_str(&document).unwrap();
    assert!(is_signed(&first.sign(&receipt(&first)).unwrap(), &keyset));
    // Another TLS key is another keyset, at once; the same one is not.
    notary.set_tls_keys(vec![tls_key(None)]);
    let third = notary.identity();
    assert_ne!(third.digest, second.digest);
    notary.set_tls_keys(vec![tls_key(None)]);
    assert_eq!(notary.identity().digest, third.digest);
    for digest in [&first.digest, &second.digest, &third.digest] {
        assert!(notary.keyset_document(digest).unwrap().is_some());
    }
    assert_eq!(notary.keyset_document("sha256:00").unwrap(), None);
}

#[tokio::test]
async fn a_report_is_for_a_host_with_a_tls_key() {
    let dir = tempfile::tempdir().unwrap();
    let agent = TestAgent::serve(&dir);
    let config = config(
        &dir,
        &json!({ "agent_socket": agent.socket, "enable_e2ee": false,
        "source": { "image_digest": format!("sha256:{}", "0".repeat(64)) } }),
    );
    let keys = vec![tls_key(Some("api.example.com"))];
    let notary = Notary::start(&config, keys.clone(), Clock::system()).await.unwrap();
    assert!(notary.identity().decryption().is_none());
    let report = notary.report(None, Some("API.example.com:443")).await.unwrap();
    assert!(bound(&report, None).is_ok());
    assert_eq!(report["attestation"]["evidence"]["downstream_tls_binding"], json!(keys[0]));
    assert_eq!(
        report["attestation"]["source_provenance"],
        json!({ "image_digest": format!("sha256:{}", "0".repeat(64)) })
    );
    assert_eq!(report["service_capabilities"]["supported_e2ee_versions"], json!([]));
    for host in [None, Some("other.example.com"), Some("")] {
        assert_eq!(notary.report(None, host).await.unwrap_err().kind, Kind::NotFound, "{host:?}");
    }
}

#[tokio::test]
async fn older_clients_get_evidence_over_the_key_that_signs_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let agent = TestAgent::serve(&dir);
    let config = config(&dir, &json!({ "agent_socket": agent.socket }));
    let notary = Notary::start(&config, vec![tls_key(None)], Clock::system()).await.unwrap();
    for (algo, binds_tls) in [
        (SigningAlgo::Ecdsa, false),
        (SigningAlgo::Ecdsa, true),
        (SigningAlgo::Ed25519, false),
        (SigningAlgo::Ed25519, true),
    ] {
        let ask = report::LegacyAsk {
            nonce: NONCE.to_owned(),
            algo,
            binds_tls,
            gpus: super::gpus::Gpus::none(NONCE),
        };
        let report = notary.legacy_report(&ask, None).await.unwrap();
        let quote = hex::decode(report["intel_quote"].as_str().unwrap()).unwrap();
        let quoted = Quote::parse(&quote).unwrap().td_report().unwrap().reportdata;
        let spki = binds_tls.then_some([0xc0; 32]);
        let signers = &notary.identity().keys.legacy;
        let expected = signers.report_data(algo, spki.as_ref(), &legacy::challenge(NONCE));
        assert_eq!(hex::encode(quoted), hex::encode(expected));
        assert_eq!(report["signing_algo"], algo.as_str());
        assert_eq!(report["signing_address"], signers.address(algo));
        assert_eq!(report["all_attestations"][0]["intel_quote"], report["intel_quote"]);
        let gpus: Value = serde_json::from_str(report["nvidia_payload"].as_str().unwrap()).unwrap();
        assert_eq!(gpus, json!({ "nonce": NONCE, "evidence_list": [], "arch": "HOPPER" }));
    }
}

#[tokio::test]
async fn an_agent_that_fails_leaves_no_report_and_tells_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let agent = TestAgent::serve(&dir);
    let config = config(&dir, &json!({ "agent_socket": agent.socket }));
    let notary = Notary::start(&config, Vec::new(), Clock::system()).await.unwrap();
    agent.refuse();
    let error = notary.report(None, None).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(!error.message.contains('/'), "{}", error.message);
    assert!(Notary::start(&config, Vec::new(), Clock::system()).await.is_err());
}
