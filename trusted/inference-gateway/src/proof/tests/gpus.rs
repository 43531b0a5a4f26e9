//! Evidence of GPUs, which upstreams have and a gateway passes on.

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::super::gpus::{PER_MINUTE, QUEUE};
use super::NONCE;
use crate::lab::agent::TestAgent;
use crate::run::{Running, start};
use crate::upstream::fake::{Act, Fake, client, json as json_reply, until};

/// A gateway with a verified upstream for the model `m`, and one that proves nothing for `plain`.
struct Lab {
    running: Running,
    _agent: TestAgent,
    _dir: TempDir,
}

impl Lab {
    async fn new(fake: &Fake) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let agent = TestAgent::published(&dir);
        let (_, pin) = fake.certificate.clone().unwrap();
        let found = json!({
            "result": "verified",
            "verifier_id": "third/v1",
            "attested_scope": "router",
            "evidence": {"quote": "00"},
            "channel_bindings": [
                {"type": "tls_spki_sha256", "origin": fake.url(), "spki_sha256": hex::encode(pin)},
            ],
            "provider_claims": {},
        });
        let script = format!("cat > /dev/null; cat <<'END'\n{found}\nEND");
        let config = json!({
            "bind": "127.0.0.1:0",
            "state_dir": dir.path().join("state"),
            "agent_socket": agent.socket,
            "upstreams": [{
                "name": "third",
                "base_url": format!("{}/base", fake.url()),
                "models": {"m": "own-name"},
                "bearer_token": "s3cret",
                "verifier_command": ["/bin/sh", "-c", script],
            }, {"name": "plain", "base_url": fake.url(), "models": {"plain": "own-name"}}],
        });
        let file = dir.path().join("gateway.json");
        std::fs::write(&file, config.to_string()).unwrap();
        Self { running: start(&file).await.unwrap(), _agent: agent, _dir: dir }
    }

    async fn report(&self, query: &str, depth: Option<&str>) -> (u16, Value) {
        let url = format!("http://{}/v1/attestation/report?nonce={NONCE}{query}", self.running.address());
        let request = client().get(url);
        let request =
            depth.into_iter().fold(request, |request, depth| request.header("x-aci-forward-depth", depth));
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// What GPUs attest, by a report.
    async fn gpus(&self, query: &str, depth: Option<&str>) -> Value {
        let (status, report) = self.report(query, depth).await;
        assert_eq!(status, 200, "{report}");
        serde_json::from_str(report["nvidia_payload"].as_str().unwrap()).unwrap()
    }
}

fn none() -> Value {
    json!({"nonce": NONCE, "evidence_list": [], "arch": "HOPPER"})
}

fn some(nonce: &str) -> Value {
    json!({"nonce": nonce, "evidence_list": [{"certificate": "c", "evidence": "e"}], "arch": "BLACKWELL"})
}

async fn telling(answer: Vec<u8>) -> Fake {
    Fake::start_tls(move |_, _| vec![Act::Send(answer.clone())]).await
}

fn report(payload: &Value) -> Vec<u8> {
    json_reply(200, &json!({"nvidia_payload": payload.to_string()}).to_string())
}

#[tokio::test]
async fn those_of_a_verified_upstream_are_passed_on() {
    let fake = telling(report(&some(NONCE))).await;
    let lab = Lab::new(&fake).await;
    assert_eq!(lab.gpus("&model=m", None).await, some(NONCE));
    let head = fake.seen.lock()[0].head.clone();
    assert!(
        head.starts_with(&format!("get /v1/attestation/report?nonce={NONCE}&model=own-name http/1.1")),
        "{head}"
    );
    assert!(head.contains("x-aci-forward-depth: 7") && !head.contains("s3cret"), "{head}");
    assert_eq!(lab.gpus("&model=m", Some("3")).await, some(NONCE));
    assert!(fake.seen.lock()[1].head.contains("x-aci-forward-depth: 2"));
    // Without a model, without proof, and where it was passed on often enough, nobody is asked.
    for (query, depth) in
        [("", None), ("&model=plain", None), ("&model=m", Some("0")), ("&model=m", Some("x"))]
    {
        assert_eq!(lab.gpus(query, depth).await, none(), "{query} {depth:?}");
    }
    assert_eq!(fake.seen.lock().len(), 2);
    let (status, error) = lab.report("&model=unknown", None).await;
    assert_eq!((status, &error["error"]["type"]), (400, &json!("model_not_found")));
}

#[tokio::test]
async fn what_is_not_about_the_nonce_is_not_passed_on() {
    for answer in [
        report(&some(&"00".repeat(32))),
        report(&none()),
        report(&json!([])),
        json_reply(200, "{}"),
        json_reply(200, "nonsense"),
        json_reply(500, &json!({"nvidia_payload": some(NONCE).to_string()}).to_string()),
    ] {
        let fake = telling(answer).await;
        assert_eq!(Lab::new(&fake).await.gpus("&model=m", None).await, none());
        assert_eq!(fake.seen.lock().len(), 1);
    }
}

/// Anybody may ask: of those that wait there are only so many, and no upstream is kept from proving what it is to others.
#[tokio::test]
async fn only_so_many_wait_and_only_so_often_is_it_asked() {
    let fake = Fake::start_tls(|_, _| vec![Act::Hang]).await;
    let lab = Lab::new(&fake).await;
    let waiting: Vec<_> = (0..QUEUE)
        .map(|_| {
            let url = format!("http://{}/v1/attestation/report?model=m", lab.running.address());
            tokio::spawn(client().get(url).send())
        })
        .collect();
    let asking = lab.running.gateway().notary.asking();
    until(|| asking.waiting() == QUEUE).await;
    let (status, error) = lab.report("&model=m", None).await;
    assert_eq!((status, &error["error"]["type"]), (429, &json!("rate_limit_error")));
    // Without a model nobody has to be asked.
    assert_eq!(lab.report("", None).await.0, 200);
    waiting.iter().for_each(JoinHandle::abort);
    until(|| asking.waiting() == 0).await;

    let fake = telling(report(&some(NONCE))).await;
    let lab = Lab::new(&fake).await;
    for _ in 0..PER_MINUTE {
        assert_eq!(lab.report("&model=m", None).await.0, 200);
    }
    assert_eq!(lab.report("&model=m", None).await.0, 429);
    assert_eq!(fake.seen.lock().len() as u64, PER_MINUTE);
}
