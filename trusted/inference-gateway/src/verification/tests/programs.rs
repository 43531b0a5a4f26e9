//! Programs that verify: what they are told, and that nothing but a clear yes is one.

use std::sync::Arc;
use std::time::Duration;

use cloister_aci::session::{ClaimSource, ClaimStatus, Fact};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{World, eventually};
use crate::config::GatewayConfig;
use crate::routing::{Catalogue, Route};
use crate::verification::finding::Finding;
use crate::verification::program;
use crate::verification::target::{Method, Target};

fn route(script: &str, more: &Value) -> Arc<Route> {
    let mut upstream = json!({
        "name": "third",
        "base_url": "https://third.example.com/api/",
        "models": {"public": "own"},
        "verifier_command": ["/bin/sh", "-c", script],
    });
    upstream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let config = json!({"state_dir": "/tmp/x", "upstreams": [upstream]});
    let config = GatewayConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap();
    Arc::clone(&Catalogue::new(&config).model("public").unwrap().routes[0])
}

async fn verify_within(route: &Route, patience: Duration) -> Result<Finding, String> {
    let target = Target::of(route).unwrap();
    let Method::Program(program) = &target.method else { panic!("no program") };
    program::verify(&target, program, patience).await.map_err(|reason| reason.to_string())
}

async fn verify(route: &Route) -> Result<Finding, String> {
    verify_within(route, Duration::from_secs(30)).await
}

fn saying(answer: &Value) -> String {
    format!("cat > /dev/null; cat <<'END'\n{answer}\nEND")
}

fn yes() -> Value {
    json!({
        "result": "verified",
        "verifier_id": "third/v1",
        "attested_scope": "router",
        "evidence": {"quote": "00"},
        "channel_bindings": [
            {"type": "tls_spki_sha256", "origin": "https://third.example.com", "spki_sha256": "ab".repeat(32)},
            {"type": "e2ee_public_key_sha256", "provider": "third", "algorithm": "x", "public_key_sha256": "00"},
        ],
        "provider_claims": {
            "tee_attested": {"status": "asserted", "source": "hardware_proven", "reason": "a quote"},
            "load": 0.5,
            "gpus": 8,
            "arch": "HOPPER",
            "nested": {"a": [1]},
            "extra": {"more": true, "none": null},
        },
    })
}

#[tokio::test]
async fn a_clear_yes_is_a_finding() {
    let found = verify(&route(&saying(&yes()), &json!({}))).await.unwrap();
    assert_eq!(found.verifier_id, "third/v1");
    assert_eq!(found.pins.to_vec(), [[0xAB; 32]]);
    // The program says what hardware proved, which is another thing than hardware that proves it here.
    assert_eq!(found.claims.tee_attested.source, Some(ClaimSource::VerifierDerived));
    assert_eq!(found.claims.gpu_attested.status, ClaimStatus::Unknown);
    let facts = [
        ("arch", Fact::Text("HOPPER".to_owned())),
        ("gpus", Fact::Number(8)),
        ("load", Fact::Text("0.5".to_owned())),
        ("more", Fact::Flag(true)),
        ("nested", Fact::Text(r#"{"a":[1]}"#.to_owned())),
    ];
    assert_eq!(found.claims.extra, facts.map(|(name, fact)| (name.to_owned(), fact)).into());
    assert_eq!(found.evidence.bytes().unwrap(), br#"{"quote":"00"}"#);
}

#[tokio::test]
async fn everything_else_is_a_failure() {
    let changed = |change: fn(&mut Value)| {
        let mut answer = yes();
        change(&mut answer);
        saying(&answer)
    };
    for (what, script, reason) in [
        ("exit", format!("{}; exit 3", saying(&yes()).replace("\nEND", "\nEND\n").trim_end()), "failed"),
        ("silence", "cat > /dev/null".to_owned(), "cannot be read"),
        ("no JSON", "echo yes".to_owned(), "cannot be read"),
        ("two answers", format!("{}\n{}", saying(&yes()), "echo '{}'"), "cannot be read"),
        ("endless", "cat /dev/zero".to_owned(), "too long"),
        ("no", changed(|of| *of = json!({"result": "failed", "reason": "no\u{7}pe"})), "nope"),
        ("unknown result", changed(|of| of["result"] = json!("maybe")), "unknown"),
        ("no binding", changed(|of| of["channel_bindings"] = json!([])), "no TLS key"),
        (
            "not enforceable",
            changed(|of| of["channel_bindings"][0] = of["channel_bindings"][1].clone()),
            "no TLS key",
        ),
        (
            "another origin",
            changed(|of| of["channel_bindings"][0]["origin"] = json!("https://other.example.com")),
            "no TLS key",
        ),
        ("no digest", changed(|of| of["channel_bindings"][0]["spki_sha256"] = json!("ab")), "no TLS key"),
        (
            "unknown binding",
            changed(|of| of["channel_bindings"][0]["type"] = json!("other")),
            "cannot be read",
        ),
        ("wrong scope", changed(|of| of["attested_scope"] = json!("model")), "another scope"),
        (
            "a name of the gateway's",
            changed(|of| of["verifier_id"] = json!("aci-service/v2")),
            "takes the name",
        ),
        ("the same in capitals", changed(|of| of["verifier_id"] = json!("ACI-Service")), "takes the name"),
        (
            "no scope",
            changed(|of| drop(of.as_object_mut().unwrap().remove("attested_scope"))),
            "another scope",
        ),
        ("bad claim", changed(|of| of["provider_claims"]["tee_attested"] = json!("yes")), "cannot be read"),
        (
            "forged evidence",
            changed(|of| {
                of["evidence"] = json!({"digest": "sha256:00", "data": "data:text/plain;base64,AA=="});
            }),
            "cannot be read",
        ),
        (
            "many facts",
            changed(|of| {
                for number in 0..100 {
                    of["provider_claims"][format!("fact{number}")] = json!(number);
                }
            }),
            "cannot be read",
        ),
    ] {
        let script = if what == "exit" { "exit 3".to_owned() } else { script };
        let refused = verify(&route(&script, &json!({}))).await.unwrap_err();
        assert!(refused.contains(reason), "{what}: {refused}");
    }
    let missing = route("", &json!({"verifier_command": ["/nowhere/verify"]}));
    assert!(verify(&missing).await.unwrap_err().contains("cannot be started"));
}

#[tokio::test]
async fn it_is_told_what_to_verify_and_nothing_of_the_gateway() {
    let files = tempfile::tempdir().unwrap();
    let (told, environment) = (files.path().join("told"), files.path().join("env"));
    let script = format!("cat > {}; env > {}; exit 1", told.display(), environment.display());
    let more = json!({"verifier_options": {"strict": true}, "verifier_scope": "model"});
    verify(&route(&script, &more)).await.unwrap_err();
    let told: Value = serde_json::from_slice(&std::fs::read(told).unwrap()).unwrap();
    assert_eq!(
        told,
        json!({
            "api_version": "aci.provider-verifier.request.v1",
            "provider": "openai-compatible",
            "upstream_name": "third",
            "url_origin": "https://third.example.com",
            "model_id": "own",
            "forwarded_body_hash": null,
            "required": true,
            "timeout_seconds": 30,
            "provider_options": {"strict": true},
        })
    );
    let environment = std::fs::read_to_string(environment).unwrap();
    // What the shell itself sets.
    let names = environment.lines().filter_map(|line| line.split('=').next());
    assert!(names.clone().all(|name| ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name)), "{environment}");
}

#[tokio::test]
async fn it_has_as_long_as_the_configuration_says() {
    let (world, files) = (World::new().await, tempfile::tempdir().unwrap());
    let told = files.path().join("told");
    let script = format!("cat > {}; exit 1", told.display());
    world.channel(&route(&script, &json!({"timeouts": {"verification": 17}}))).await.unwrap_err();
    let told: Value = serde_json::from_slice(&std::fs::read(told).unwrap()).unwrap();
    assert_eq!(told["timeout_seconds"], 17);
}

#[tokio::test]
async fn one_that_takes_too_long_is_killed_with_its_children() {
    let files = tempfile::tempdir().unwrap();
    let pid = files.path().join("pid");
    let script = format!("sleep 1000 & echo $! > {}; wait", pid.display());
    let route = route(&script, &json!({}));
    let verifying = verify_within(&route, Duration::from_secs(3));
    assert!(verifying.await.unwrap_err().contains("too long"));
    let pid: u32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    eventually("the child is gone", || {
        // Nobody may have reaped it yet.
        std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
    })
    .await;
}

#[tokio::test]
async fn a_program_has_a_session_and_each_model_its_own() {
    let world = World::new().await;
    let mut answer = yes();
    answer["attested_scope"] = json!("model");
    let script = saying(&answer);
    let models = json!({"public": "one", "other": "two"});
    let config = json!({
        "state_dir": "/tmp/x",
        "upstreams": [{
            "name": "third",
            "base_url": "https://third.example.com",
            "models": models,
            "verifier_command": ["/bin/sh", "-c", script],
            "verifier_scope": "model",
        }],
    });
    let config = GatewayConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap();
    let catalogue = Catalogue::new(&config);
    for model in ["public", "other", "public"] {
        let verified = world.channel(&catalogue.model(model).unwrap().routes[0]).await.unwrap();
        assert_eq!(verified.pins, [[0xAB; 32]]);
    }
    assert_eq!(world.records.kept.lock().len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever a program says, a finding has pins, claims in bounds, and evidence that has its digest.
    #[test]
    fn answers_are_read_or_refused(
        member in prop::sample::select(vec!["result", "verifier_id", "evidence", "channel_bindings",
            "provider_claims", "attested_scope", "reason", "other"]),
        value in prop_oneof![
            Just(Value::Null), any::<bool>().prop_map(Value::from), any::<i64>().prop_map(Value::from),
            ".{0,40}".prop_map(Value::from), prop::collection::vec(".{0,8}", 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z_]{0,80}", any::<f64>(), 0..90).prop_map(|map| json!(map)),
        ],
    ) {
        let route = route("", &json!({}));
        let target = Target::of(&route).unwrap();
        let Method::Program(program) = &target.method else { panic!("no program") };
        let mut answer = yes();
        answer[member] = value;
        if let Ok(found) = program::read(&target, program, answer.to_string().as_bytes()) {
            prop_assert!(!found.pins.to_vec().is_empty());
            prop_assert!(found.claims.extra.len() <= 64);
            prop_assert!(found.evidence.bytes().is_some());
        }
    }
}
