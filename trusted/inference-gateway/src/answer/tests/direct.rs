//! Models that run in the gateway's own machine.

use std::sync::atomic::Ordering;

use cloister_verifier::Clock;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::*;
use crate::lab::agent::TestAgent;
use crate::operator::SettingsError;
use crate::record::Backing;
use crate::run::{StartError, start_on};

const TOKEN: &str = "an-operator's-token";

struct Direct {
    bench: Bench,
    _agent: TestAgent,
    _dir: TempDir,
}

impl Direct {
    async fn new(url: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let agent = TestAgent::serve(&dir);
        let token = dir.path().join("token");
        std::fs::write(&token, TOKEN).unwrap();
        let more = json!({
            "direct_serving": true,
            "agent_socket": agent.socket,
            "admin_token_file": token,
            "metrics_bind": "127.0.0.1:0",
            "tee_hosts": ["127.0.0.1"],
            "models": [{"id": MODEL, "require_verified": true}],
        });
        let bench =
            Bench::new(vec![upstream("engine", url, 0, &json!({"require_verified": true}))], more).await;
        Self { bench, _agent: agent, _dir: dir }
    }

    async fn get(&self, path: &str) -> Value {
        let url = format!("http://{}{path}", self.bench.running.address());
        self.bench.client.get(url).bearer_auth(KEY).send().await.unwrap().json().await.unwrap()
    }
}

/// The gateway's own evidence is about them: nothing else proves anything, and there is no session.
#[tokio::test]
async fn what_runs_in_the_same_machine_needs_no_proof_of_its_own() {
    let fake = good().await;
    let direct = Direct::new(&fake.url()).await;
    let report = direct.get("/v1/aci/attestation").await;
    assert_eq!(report["service_capabilities"]["serving"], "direct");
    assert_eq!(direct.get("/v1/aci/sessions").await["sessions"], json!([]));
    let models = direct.get("/v1/models?tee=true").await;
    assert_eq!((&models["data"][0]["id"], &models["data"][0]["is_tee"]), (&json!(MODEL), &json!(true)));
    for demand in [json!({}), json!({"aci_verified": true})] {
        for stream in [true, false] {
            let mut request = chat(stream);
            request["provider"] = demand.clone();
            let reply = direct.bench.ask(&request).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            let receipt = direct.bench.checked_receipt(&reply);
            assert!(event(&receipt, "request.forwarded").is_some());
            assert!(event(&receipt, "upstream.verified").is_none(), "{receipt}");
        }
    }
    assert!(direct.bench.figures(&["upstream_verifications_total"]).await.is_empty());
    let legacy = direct.get(&format!("/v1/attestation/report?model={MODEL}")).await;
    assert!(legacy["nvidia_payload"].as_str().unwrap().contains(r#""evidence_list":[]"#), "{legacy}");
}

#[tokio::test]
async fn no_session_is_accepted_of_the_own_machine() {
    let fake = good().await;
    let direct = Direct::new(&fake.url()).await;
    let mut request = chat(false);
    request["provider"] = json!({"aci_session_ids": ["ab".repeat(32)]});
    let refused = direct.bench.ask(&request).await;
    assert_eq!(refused.error(), (412, "session_not_accepted".to_owned()));
    assert!(refused.text().contains("it has no sessions"), "{}", refused.text());
    assert_eq!(direct.bench.checked_receipt(&refused)["event_log"].as_array().unwrap().len(), 2);
    assert_eq!(fake.counts.connections.load(Ordering::Relaxed), 0);
}

/// Neither who has the operator's token nor another file makes it answer for something else.
#[tokio::test]
async fn nothing_outside_of_the_machine_can_take_their_place() {
    const RULE: &str = "upstreams[0].base_url: has to be at 127.0.0.1";
    let fake = good().await;
    let direct = Direct::new(&fake.url()).await;
    let bench = &direct.bench;
    let foreign = json!([upstream("engine", "http://engine:8000", 0, &json!({}))]);
    let url = format!("http://{}/v1/admin/upstreams", bench.running.address());
    let put = bench.client.request(Method::PUT, url).bearer_auth(TOKEN).body(foreign.to_string());
    let refused: Value = put.send().await.unwrap().json().await.unwrap();
    assert_eq!(refused["error"]["type"], "invalid_upstream_config");
    assert!(refused["error"]["message"].as_str().unwrap().starts_with(RULE), "{refused}");

    let gateway = bench.running.gateway();
    let reload = async || {
        let settings = gateway.office.settings().unwrap();
        settings.reload(gateway, |_| Ok::<_, SettingsError>(())).await.unwrap_err()
    };
    bench.rewrite(|config| config["upstreams"] = foreign.clone());
    let refused = crate::error::chain(&reload().await);
    assert!(refused.contains(&format!("gateway.json: {RULE}")), "{refused}");
    bench.rewrite(|config| {
        config["direct_serving"] = json!(false);
        config["models"] = json!([]);
    });
    // That it serves directly is not changed by a file: the rest has to go with it.
    let refused = crate::error::chain(&reload().await);
    assert!(refused.contains(RULE), "{refused}");
    assert_eq!(bench.ask(&chat(false)).await.status, 200);
}

/// A list that replaced the file's before the gateway served directly is judged like any other.
#[tokio::test]
async fn a_list_that_was_kept_is_no_way_out() {
    let fake = good().await;
    let direct = Direct::new(&fake.url()).await;
    let own = json!([upstream("engine", &fake.url(), 0, &json!({"require_verified": true}))]);
    let foreign = json!([upstream("engine", "http://engine:8000", 0, &json!({}))]);
    let digest = cloister_aci::sha256(&cloister_aci::canonical(&own).unwrap());
    let (_, dir) = direct.bench.stop(SECOND).await;
    let kept = json!({"replaces": digest, "upstreams": foreign}).to_string();
    std::fs::write(dir.path().join("state/upstreams.json"), kept).unwrap();
    let refused = start_on(&dir.path().join("gateway.json"), Backing::file(), Clock::system()).await;
    let StartError::Settings(SettingsError::Replacement { source, .. }) = refused.unwrap_err() else {
        panic!("it is refused for another reason")
    };
    assert!(source.to_string().starts_with("upstreams[0].base_url: has to be at 127.0.0.1"), "{source}");
}
