//! Provision and create.

use cloister_app_compose::{AppId, ComposeHash, MAX_COMBINED_BYTES};
use cloister_node_api::NodeReport;
use serde_json::{Value, json};

use super::{Installation, provision_body, report};

fn with(member: &str, value: Value) -> Value {
    let mut body = provision_body("my-app-01");
    body[member] = value;
    body
}

fn with_compose(member: &str, value: Value) -> Value {
    let mut body = provision_body("my-app-01");
    body["compose_file"][member] = value;
    body
}

#[tokio::test]
async fn a_provision_becomes_a_cvm_and_both_can_be_repeated() {
    let installation = Installation::new().await;
    let provision = installation.provision("my-app-01").await;
    assert_eq!(provision, installation.provision("my-app-01").await, "the same document, the same app");
    insta::assert_json_snapshot!(provision);
    let create = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"], "more": 1});
    let vm = installation.call("POST", "/cvms", create.clone()).await.expect(200).json();
    insta::assert_json_snapshot!(super::stable(vm.clone()));
    let again = installation.call("POST", "/cvms", create).await.expect(200).json();
    assert_eq!(vm, again);

    let row = installation.row(&vm).await;
    assert_eq!(row.compose_hash, ComposeHash::of(row.app_compose.as_bytes()), "hashed as it is stored");
    assert_eq!(row.vm_uuid.get_version_num(), 4);
}

#[tokio::test]
async fn a_workspace_caches_only_so_many_provisions() {
    let installation = Installation::new().await;
    let provision = installation.provision("my-app-01").await;
    let hash = provision["compose_hash"].as_str().unwrap().parse().unwrap();
    let mut change = installation.app.store.change().await.unwrap();
    let mut row = change
        .provision(installation.tenant_workspace, hash, installation.app.clock.now_ms())
        .await
        .unwrap()
        .unwrap();
    for index in 1..1000_u16 {
        row.compose_hash = ComposeHash::of(&index.to_be_bytes());
        change.put_provision(&row).await.unwrap();
    }
    change.commit().await.unwrap();
    let refused = installation.call("POST", "/cvms/provision", provision_body("my-app-02")).await;
    assert_eq!(refused.summary(), "400 ERR-02-015");
    installation.provision("my-app-01").await;
}

#[tokio::test]
async fn ids_are_texts_in_versions_that_want_them() {
    let installation = Installation::new().await;
    let provision = installation.provision("my-app-01").await;
    let body = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
    let headers = [("x-api-key", installation.tenant.as_str()), ("x-phala-version", "2026-05-22")];
    let vm = installation.call_with(&headers, "POST", "/cvms", body).await.expect(200).json();
    assert!(vm["id"].as_str().unwrap().starts_with("cvm_"));
}

#[tokio::test]
async fn refused_provisions() {
    let installation = Installation::new().await;
    let mut table = Vec::new();
    for (what, body) in [
        ("no body members", json!({})),
        ("bad name", with("name", json!("ab_cde"))),
        ("compose of a wrong type", with("compose_file", json!("services: {}"))),
        ("no compose file", with_compose("docker_compose_file", Value::Null)),
        ("no services", with_compose("docker_compose_file", json!("services: {}"))),
        ("broken YAML", with_compose("docker_compose_file", json!("services: ["))),
        ("unknown runner", with_compose("runner", json!("perl"))),
        ("one byte too many", with_compose("pre_launch_script", json!("#".repeat(MAX_COMBINED_BYTES)))),
        ("unknown size", with("instance_type", json!("none.small"))),
        ("no vCPU", with("vcpu", json!(0))),
        ("half a vCPU", with("vcpu", json!(0.5))),
        ("too little disk", with("disk_size", json!(19))),
        ("unknown node", with("teepod_id", json!(99))),
        ("more vCPU than there is", with("vcpu", json!(17))),
        ("more memory than there is", with("memory", json!(65537))),
        ("more disk than there is", with("disk_size", json!(501))),
        ("unknown region", with("region", json!("moon"))),
        ("unknown image", with("image", json!("dstack-9"))),
        ("no image of the kind", with("prefer_dev", json!(false))),
        ("a KMS that is not there", with("kms", json!("ETHEREUM"))),
        ("unknown kind of KMS", with("kms", json!("mine"))),
        ("a GPU", with("gpus", json!({"gpus": [{"slot": "1"}]}))),
        ("a host port", with("ports", json!([{"protocol": "tcp", "host_port": 1, "vm_port": 2}]))),
        ("an app id alone", with("app_id", json!("00".repeat(20)))),
        ("user_config that is no JSON", with("user_config", json!("{"))),
    ] {
        let answer = installation.call("POST", "/cvms/provision", body).await;
        let body = answer.json();
        let text = body["message"].as_str().or(body["detail"][0]["msg"].as_str()).unwrap().to_owned();
        table.push(format!("{what}: {}: {text}", answer.summary()));
    }
    insta::assert_snapshot!(table.join("\n"));
}

#[tokio::test]
async fn what_public_clients_send_is_accepted() {
    let installation = Installation::new().await;
    let body = json!({
        "name": "my-app-01", "vcpu": 2.0, "memory": 2048.0, "disk_size": 20.0, "listed": false,
        "kms": "PHALA", "node_id": installation.node, "region": "HOME", "env_keys": ["KEY"], "gpus": null,
        "image": "cloister-0.1.0", "prefer_dev": true, "ports": [], "user_config": "{}",
        "compose_file": {
            "name": "", "docker_compose_file": "services: {web: {image: nginx}}", "allowed_envs": ["OTHER"],
            "features": ["kms", "tproxy-net"], "manifest_version": 2, "runner": "docker-compose",
            "pre_launch_script": "", "something": {"new": true},
        },
    });
    let provision = installation.call("POST", "/cvms/provision", body).await.expect(200).json();
    let hash = provision["compose_hash"].as_str().unwrap().parse().unwrap();
    let row =
        installation.app.store.provision(installation.tenant_workspace, hash, 0).await.unwrap().unwrap();
    assert_eq!(row.env_keys, r#"["OTHER","KEY"]"#);
    assert_eq!((row.vcpu, row.memory_mb, row.disk_gb, row.listed), (2, 2048, 20, 0));
    assert!(row.app_compose.contains(r#""something":{"new":true}"#));
}

#[tokio::test]
async fn a_chosen_app_id_must_come_from_the_wallet() {
    let installation = Installation::new().await;
    let app_id = AppId::from_wallet(&[2; 20], 5).to_string();
    let mut body = with("custom_app_id", json!(format!("0x{app_id}")));
    body["nonce"] = json!(6);
    let answer = installation.call("POST", "/cvms/provision", body.clone()).await;
    assert_eq!(answer.summary(), "400 ERR-02-009");
    body["nonce"] = json!(5);
    let provision = installation.call("POST", "/cvms/provision", body).await.expect(200).json();
    assert_eq!(provision["app_id"], app_id);
}

#[tokio::test]
async fn refused_creations() {
    let installation = Installation::new().await;
    let provision = installation.provision("my-app-01").await;
    let other = "11".repeat(20);
    let body = |member: &str, value: Value| {
        let mut body = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
        body[member] = value;
        body
    };
    let mut table = Vec::new();
    for (what, body) in [
        ("nothing", json!({})),
        ("a hash that is none", body("compose_hash", json!("nonsense"))),
        ("an unknown hash", body("compose_hash", json!("00".repeat(32)))),
        ("another app id", body("app_id", json!(other))),
        ("an environment that is not sealed", body("encrypted_env", json!("zz"))),
        ("a variable that is not allowed", body("env_keys", json!(["SECRET"]))),
    ] {
        let answer = installation.call("POST", "/cvms", body).await;
        table.push(format!("{what}: {}", answer.summary()));
    }
    insta::assert_snapshot!(table.join("\n"));

    installation.app.clock.advance_ms(14 * 24 * 60 * 60 * 1000);
    installation.report(&report(65536, false)).await;
    for path in ["/cvms", "/cvms/agentapp"] {
        let answer = installation.call("POST", path, body("more", json!(1))).await;
        assert_eq!(answer.summary(), "422 plain", "the provision expired");
    }
}

#[tokio::test]
async fn names_are_unique_whatever_their_case() {
    let installation = Installation::new().await;
    let second = installation.provision("My-App-01").await;
    installation.create("my-app-01").await;
    let answer = installation.call("POST", "/cvms/provision", provision_body("MY-APP-01")).await;
    assert_eq!(answer.summary(), "409 ERR-01-004");
    let body = json!({"app_id": second["app_id"], "compose_hash": second["compose_hash"]});
    assert_eq!(installation.call("POST", "/cvms", body).await.summary(), "409 ERR-01-004");
}

#[tokio::test]
async fn the_node_is_looked_at_again_when_the_cvm_is_created() {
    let installation = Installation::new().await;
    let provision = installation.provision("my-app-01").await;
    let body = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
    installation.report(&report(1024, false)).await;
    assert_eq!(installation.call("POST", "/cvms", body.clone()).await.summary(), "400 ERR-02-004");
    installation.report(&report(65536, true)).await;
    assert_eq!(installation.call("POST", "/cvms", body.clone()).await.summary(), "400 ERR-02-012");
    installation.report(&NodeReport { images: vec![], ..report(65536, false) }).await;
    assert_eq!(installation.call("POST", "/cvms", body.clone()).await.summary(), "400 ERR-02-010");
    installation.report(&report(65536, false)).await;
    installation.call("POST", "/cvms", body).await.expect(200);
}

#[tokio::test]
async fn an_agent_is_provisioned_from_its_character() {
    let installation = Installation::new().await;
    let body =
        json!({"name": "my-agent", "characterfile": "{\"name\": \"Ada\"}", "env_keys": ["OPENAI_API_KEY"]});
    let provision = installation.call("POST", "/cvms/provision/agentapp", body).await.expect(200).json();
    let body = json!({
        "app_id": provision["app_id"], "compose_hash": provision["compose_hash"], "env_keys": ["OPENAI_API_KEY"],
    });
    let vm = installation.call("POST", "/cvms/agentapp", body).await.expect(200).json();
    assert!(vm["docker_compose_file"].as_str().unwrap().contains("Ada"));
    for (member, value) in [("characterfile", json!("no JSON")), ("characterfile", json!("[]"))] {
        let mut body = json!({"name": "my-agent-2", "env_keys": []});
        body[member] = value;
        let answer = installation.call("POST", "/cvms/provision/agentapp", body).await;
        assert_eq!(answer.summary(), "400 ERR-02-008");
    }
}
