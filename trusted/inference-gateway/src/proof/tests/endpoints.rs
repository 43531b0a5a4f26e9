//! The endpoints of a whole gateway, over loopback, with the published values.

use std::net::SocketAddr;

use cloister_aci::report::bound;
use cloister_aci::{API_VERSION, Keyset, sha256};
use cloister_verifier::Clock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{NONCE, seconds};
use crate::admission::KeyHash;
use crate::lab::agent::TestAgent;
use crate::record::{Finished, KeptReceipt, Settings, Store};
use crate::run::{self, Running};

const KEY: &str = "sk-owner";
const REQUEST: &[u8] = br#"{"messages":[{"content":"hi","role":"user"}],"model":"demo-model"}"#;
const RESPONSE: &[u8] = br#"{"choices":[],"id":"chatcmpl-123"}"#;
/// Over the hashes of the published request and response, with the published key.
const SIGNATURE: &str = "0xaf63e2293eca134a33fb686858639486077e61e4a75ee9d4539780d1f03120751f0a39ca3c6757897419212da46d59a1b4a87abe6eabf3fbc2e20abaf02988881b";

struct Lab {
    running: Running,
    receipt: String,
    _agent: TestAgent,
    _dir: TempDir,
}

impl Lab {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let agent = TestAgent::published(&dir);
        let state = dir.path().join("state");
        let receipt = json!({
            "api_version": API_VERSION,
            "event_log": [
                {"type": "request.received", "body_hash": sha256(REQUEST)},
                {"type": "response.returned", "body_hash": sha256(RESPONSE)},
            ],
            "receipt_id": "rcpt-0001",
        })
        .to_string();
        let kept = KeptReceipt {
            id: "rcpt-0001".to_owned(),
            chat_id: Some("chatcmpl-123".to_owned()),
            session_id: None,
            document: receipt.clone().into_bytes(),
            served_at: seconds(&Clock::system()),
        };
        let store = Store::open(&state, Settings::default(), Clock::system()).unwrap();
        let finished = Finished { key: KeyHash::of(KEY), rows: Vec::new(), receipt: Some(kept) };
        store.finish(finished).await.unwrap();
        drop(store);
        let config = json!({
            "bind": "127.0.0.1:0",
            "state_dir": state,
            "agent_socket": agent.socket,
            "upstreams": [{"name": "one", "base_url": "http://127.0.0.1:9", "models": {"m": "m"}}],
        });
        let file = dir.path().join("gateway.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let running = run::start(&file).await.unwrap();
        Self { running, receipt, _agent: agent, _dir: dir }
    }

    async fn get(&self, path: &str, key: Option<&str>) -> (u16, String) {
        get(self.running.address(), path, key).await
    }

    async fn json(&self, path: &str, key: Option<&str>) -> Value {
        let (status, body) = self.get(path, key).await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }
}

async fn get(address: SocketAddr, path: &str, key: Option<&str>) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let key = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n{key}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn a_receipt_is_told_to_its_owner_only() {
    let lab = Lab::new().await;
    for path in ["/v1/aci/receipts/rcpt-0001", "/v1/aci/receipts/chatcmpl-123", "/v1/receipt/rcpt-0001"] {
        assert_eq!(lab.get(path, Some(KEY)).await, (200, lab.receipt.clone()), "{path}");
        let (status, without) = lab.get(path, None).await;
        assert!(status == 401 && without.contains(r#""type":"unauthorized""#), "{without}");
        let (status, others) = lab.get(path, Some("sk-other")).await;
        let unknown = lab.get("/v1/aci/receipts/rcpt-9999", Some(KEY)).await;
        assert!(status == 404 && others.contains(r#""type":"not_found""#), "{others}");
        assert_eq!((status, others), unknown);
    }
    assert_eq!(lab.get("/v1/signature/rcpt-0001", None).await.0, 401);
    assert_eq!(lab.get("/v1/signature/rcpt-0001", Some("sk-other")).await.0, 404);
}

#[tokio::test]
async fn older_clients_get_the_published_signature() {
    let lab = Lab::new().await;
    let wrapper = lab.json("/v1/signature/chatcmpl-123?signing_algo=ecdsa", Some(KEY)).await;
    assert_eq!(wrapper, lab.json("/v1/signature/chatcmpl-123", Some(KEY)).await);
    assert_eq!(wrapper["signature"], SIGNATURE);
    assert_eq!(wrapper["signing_address"], "0x3325a78425f17a7e487eb5666b2bfd93abb06c70");
    assert_eq!(wrapper["receipt"], serde_json::from_str::<Value>(&lab.receipt).unwrap());
    let (request, response) = (sha256(REQUEST), sha256(RESPONSE));
    assert_eq!(wrapper["text"], format!("{}:{}", &request["sha256:".len()..], &response["sha256:".len()..]));
    let other = lab.json("/v1/signature/chatcmpl-123?signing_algo=ed25519", Some(KEY)).await;
    assert_eq!((&other["text"], other["signing_algo"].as_str()), (&wrapper["text"], Some("ed25519")));
    let (status, body) = lab.get("/v1/signature/chatcmpl-123?signing_algo=rsa", Some(KEY)).await;
    assert!(status == 400 && body.contains(r#""type":"invalid_signing_algo""#), "{body}");
}

#[tokio::test]
async fn reports_and_keysets_are_told_to_anybody() {
    let lab = Lab::new().await;
    let report = lab.json(&format!("/v1/aci/attestation?nonce={NONCE}"), None).await;
    let bound = bound(&report, Some(&NONCE.parse().unwrap())).unwrap();
    assert_eq!(
        bound.keyset.receipt_signing_keys[0].public_key,
        "8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394"
    );
    assert_eq!(
        bound.keyset.e2ee_public_keys[0].public_key,
        "5dfedd3b6bd47f6fa28ee15d969d5bb0ea53774d488bdaf9df1c6e0124b3ef22"
    );
    let keyset = lab.json(&format!("/v1/aci/keysets/{}", bound.digest), None).await;
    assert_eq!(serde_json::from_value::<Keyset>(keyset).unwrap(), bound.keyset);
    assert_eq!(lab.get(&format!("/v1/aci/keysets/sha256:{}", "0".repeat(64)), None).await.0, 404);
    assert!(cloister_aci::report::bound(&lab.json("/v1/aci/attestation", None).await, None).is_ok());
    for query in ["nonce=", "nonce=00", &format!("nonce={}", "A".repeat(64)), "nonce=00&nonce=00"] {
        let (status, body) = lab.get(&format!("/v1/aci/attestation?{query}"), None).await;
        assert!(status == 400 && body.contains("invalid_request_error"), "{query}: {body}");
    }
    let legacy = lab.json(&format!("/v1/attestation/report?nonce={NONCE}&signing_algo=ecdsa"), None).await;
    assert_eq!(legacy["signing_address"], "0x3325a78425f17a7e487eb5666b2bfd93abb06c70");
    assert_eq!(
        legacy["attestation"]["evidence"]["quote_report_data"],
        format!("3325a78425f17a7e487eb5666b2bfd93abb06c70000000000000000000000000{NONCE}")
    );
    for query in ["signing_algo=rsa", "version=3", "version=2"] {
        assert_eq!(lab.get(&format!("/v1/attestation/report?{query}"), None).await.0, 400, "{query}");
    }
}
