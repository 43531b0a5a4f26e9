//! The log of receipts, asked over HTTP, and checked as anybody may.

use std::time::{Duration, Instant};

use cloister_transparency_log::leaf_hash;
use cloister_transparency_log::verify::{self, Checkpoint};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::lab::{document, finished};
use crate::admission::KeyHash;
use crate::run::{Running, start};
use crate::upstream::fake::client;

const KEY: &str = "sk-owner";
/// How long the log may take to have a receipt.
const PATIENCE: Duration = Duration::from_mins(2);

/// A gateway with receipts of a key.
struct Lab {
    running: Running,
    client: reqwest::Client,
    _dir: TempDir,
}

impl Lab {
    async fn new(is_logging: bool, receipts: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = json!({
            "bind": "127.0.0.1:0",
            "state_dir": dir.path().join("state"),
            "receipts": {"log": is_logging},
            "upstreams": [{"name": "one", "base_url": "http://127.0.0.1:9", "models": {"m": "m"}}],
        });
        let file = dir.path().join("gateway.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let lab = Self { running: start(&file).await.unwrap(), client: client(), _dir: dir };
        let now = crate::gateway::unix_now();
        for number in 0..receipts {
            let record = finished(KeyHash::of(KEY), &number.to_string(), "1", now);
            lab.running.gateway().store.finish(record).await.unwrap();
        }
        lab
    }

    async fn get(&self, path: &str, key: Option<&str>) -> (u16, String) {
        let request = self.client.get(format!("http://{}{path}", self.running.address()));
        let response =
            key.into_iter().fold(request, reqwest::RequestBuilder::bearer_auth).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn text(&self, path: &str) -> String {
        let (status, text) = self.get(path, None).await;
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    async fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.text(path).await).unwrap()
    }

    /// The proof that a receipt is in the log, once it is there.
    async fn inclusion(&self, id: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let (status, text) = self.get(&format!("/v1/aci/receipts/{id}/inclusion"), Some(KEY)).await;
            if status == 200 {
                return serde_json::from_str(&text).unwrap();
            }
            assert!(status == 404 && text.contains("not in the log") && Instant::now() < end, "{text}");
            tokio::task::yield_now().await;
        }
    }
}

fn hashes(proof: &Value) -> Vec<[u8; 32]> {
    let list = proof["hashes"].as_array().unwrap().iter();
    list.map(|hash| hex::decode(hash.as_str().unwrap()).unwrap().try_into().unwrap()).collect()
}

#[tokio::test]
async fn anybody_can_check_the_log_and_the_owner_a_receipt() {
    const COUNT: u64 = 7;
    let lab = Lab::new(true, COUNT).await;
    let key = lab.text("/v1/aci/log/key").await;
    let mut last = None;
    for number in 0..COUNT {
        let id = format!("rcpt-{number}");
        let proof = lab.inclusion(&id).await;
        let checkpoint = Checkpoint::verified(proof["checkpoint"].as_str().unwrap(), &key).unwrap();
        let record = proof["record"].as_str().unwrap();
        let leaf = leaf_hash(record.as_bytes());
        let index = proof["index"].as_u64().unwrap();
        verify::inclusion(&hashes(&proof), checkpoint.size, checkpoint.root, index, leaf).unwrap();
        assert!(record.contains(&hex::encode(Sha256::digest(document(&id)))), "{record}");
        last = Some((id, record.to_owned(), index));
    }
    let checkpoint = lab.text("/v1/aci/log/checkpoint").await;
    let now = Checkpoint::verified(&checkpoint, &key).unwrap();
    assert_eq!(now.size, COUNT);
    let page = lab.json("/v1/aci/log/entries?start=2&limit=3").await;
    assert_eq!((page["start"].as_u64(), page["records"].as_array().map(Vec::len)), (Some(2), Some(3)));
    let all = lab.json("/v1/aci/log/entries").await;
    let records = all["records"].as_array().unwrap();
    assert_eq!(records.len(), 7);
    for (index, record) in (0..COUNT).zip(records) {
        let proof = lab.json(&format!("/v1/aci/log/inclusion?index={index}&size={COUNT}")).await;
        let leaf = leaf_hash(record.as_str().unwrap().as_bytes());
        verify::inclusion(&hashes(&proof), COUNT, now.root, index, leaf).unwrap();
    }
    assert!(lab.json(&format!("/v1/aci/log/consistency?from=3&to={COUNT}")).await["hashes"].is_array());
    // Of what is in the log nobody learns whose it is, but for its owner.
    let (id, record, index) = last.unwrap();
    assert_eq!(records[usize::try_from(index).unwrap()], json!(record));
    assert!(!all.to_string().contains(&id), "ids are hashed");
    let path = format!("/v1/aci/receipts/{id}/inclusion");
    assert_eq!(lab.get(&path, None).await.0, 401);
    let others = lab.get(&path, Some("sk-other")).await;
    assert_eq!(others, lab.get("/v1/aci/receipts/rcpt-unknown/inclusion", Some(KEY)).await);
    assert_eq!(others.0, 404);
}

#[tokio::test]
async fn large_pages_have_so_much_memory_together() {
    let lab = Lab::new(true, 50).await;
    lab.inclusion("rcpt-49").await;
    let room = &lab.running.gateway().open_log;
    let mut others = room.share(1);
    others.try_cover(room.left()).unwrap();
    let (status, body) = lab.get("/v1/aci/log/entries", None).await;
    assert!(status == 503 && body.contains("service_unavailable"), "{status}");
    assert_eq!(lab.json("/v1/aci/log/entries?limit=5").await["records"].as_array().map(Vec::len), Some(5));
    drop(others);
    assert_eq!(lab.json("/v1/aci/log/entries").await["records"].as_array().map(Vec::len), Some(50));
}

#[tokio::test]
async fn what_is_not_in_the_log_is_refused() {
    let lab = Lab::new(true, 2).await;
    lab.inclusion("rcpt-1").await;
    for query in [
        "inclusion?index=2&size=2",
        "inclusion?index=0&size=3",
        "inclusion?index=0",
        "inclusion?index=-1&size=2",
        "inclusion?index=0&index=1&size=2",
        "consistency?from=2&to=3",
        "consistency?from=2&to=1",
        "entries?start=x",
        "entries?limit=-1",
    ] {
        let (status, body) = lab.get(&format!("/v1/aci/log/{query}"), None).await;
        assert!(status == 400 && body.contains("invalid_request_error"), "{query}: {status} {body}");
    }
}

#[tokio::test]
async fn a_gateway_without_a_log_has_none_of_its_paths() {
    let lab = Lab::new(false, 1).await;
    for path in ["key", "checkpoint", "entries", "inclusion?index=0&size=1", "consistency?from=0&to=1"] {
        assert_eq!(lab.get(&format!("/v1/aci/log/{path}"), None).await.0, 404, "{path}");
    }
    let (status, body) = lab.get("/v1/aci/receipts/rcpt-0/inclusion", Some(KEY)).await;
    assert!(status == 404 && body.contains("not in the log"), "{body}");
}
