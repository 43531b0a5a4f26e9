//! Any sequence of changes.

use cloister_app_compose::ComposeHash;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::{Site, YAML};
use crate::operations::CvmStatus;

/// One change: where, as what, and its body.
type Change = (&'static str, &'static str, String);

fn change() -> impl Strategy<Value = Change> {
    let json = |below: &'static str, body: Value| (below, "application/json", body.to_string());
    let text = "[a-z\": {}é]{1,12}";
    prop_oneof![
        text.prop_map(|text| ("/docker-compose", "text/yaml", format!("{YAML}# {text}\n"))),
        text.prop_map(|text| ("/docker-compose", "text/yaml", text)),
        text.prop_map(|text| ("/pre-launch-script", "text/plain", text)),
        prop::collection::vec("[A-Z]{1,2}", 0..3)
            .prop_map(move |names| json("", json!({"allowed_envs": names}))),
        any::<(bool, bool, Option<bool>)>().prop_map(move |(sysinfo, logs, tcb)| {
            let body = json!({"public_sysinfo": sysinfo, "public_logs": logs, "public_tcbinfo": tcb});
            json("/visibility", body)
        }),
        (1_u32..6, 0_u32..3).prop_map(move |(vcpu, more)| {
            json("/resources", json!({"vcpu": vcpu, "disk_size": 20 + more}))
        }),
        text.prop_map(move |text| json("", json!({"pre_launch_script": text, "docker_compose_file": YAML}))),
        Just(json("", json!({"pre_launch_script": ""}))),
        Just(json("", json!({"user_config": "{}"}))),
    ]
}

/// Whatever is changed, in whatever order, and whatever of it is refused: the document is always the one
/// whose hash is told, members that nobody asked for stay, and the node's VM has what the row says.
#[test]
fn any_sequence_of_changes_keeps_the_document_whole() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let site = runtime.block_on(async {
        let site = Site::new().await;
        let mut document = site.document().await;
        document["x_own"] = json!({"b": [1.5, null, "ä"], "a": {}});
        document["salt"] = json!("s");
        let bytes = cloister_app_compose::canonical::indented(&document);
        let body = json!({"compose_file": document, "compose_hash": ComposeHash::of(&bytes).to_string()});
        site.call("POST", "/compose_file", body).await.expect(202);
        site.at_rest(CvmStatus::Running).await;
        site.stop().await;
        site
    });
    let mut runner = TestRunner::new(ProptestConfig::with_cases(24));
    let checked = runner.run(&prop::collection::vec(change(), 1..6), |changes| {
        runtime.block_on(async {
            for (below, content_type, body) in changes {
                let before = site.row().await;
                let answer = site.send("PATCH", below, &[("content-type", content_type)], &body).await;
                prop_assert!(matches!(answer.status.as_u16(), 200 | 202 | 400 | 422), "{}", answer.text);
                let row = site.at_rest(CvmStatus::Stopped).await;
                let raw = site.raw().await;
                prop_assert_eq!(ComposeHash::of(raw.as_bytes()), row.compose_hash);
                let document: Value = serde_json::from_str(&raw).unwrap();
                prop_assert_eq!(&document["x_own"], &json!({"b": [1.5, null, "ä"], "a": {}}));
                prop_assert_eq!((&document["salt"], &document["storage_fs"]), (&json!("s"), &json!("zfs")));
                if answer.status.is_client_error() {
                    prop_assert_eq!(&row, &before);
                }
                let spec = site.nodes.spec_of(row.vm_uuid).unwrap();
                prop_assert_eq!(spec.app_compose, raw);
                prop_assert_eq!(i64::from(spec.vcpu), row.vcpu);
            }
            Ok(())
        })
    });
    checked.unwrap();
}
