//! Keys of people, and of CVMs.

use serde_json::{Value, json};

use super::{Installation, account, provision_body};
use crate::operations::CvmStatus;

const FIRST: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti me@example.org";
const SECOND: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

async fn add(installation: &Installation, name: &str, key: &str) -> super::Answer {
    let body = json!({"name": name, "public_key": key});
    installation.call("POST", "/user/ssh-keys", body).await
}

#[tokio::test]
async fn keys_of_a_user() {
    let installation = Installation::new().await;
    let added = add(&installation, "laptop", FIRST).await.expect(201).json();
    insta::assert_json_snapshot!(added);
    add(&installation, "phone", SECOND).await.expect(201);
    let list = async || installation.call("GET", "/user/ssh-keys", Value::Null).await.expect(200).json();
    assert_eq!(list().await[0], added);
    assert_eq!(list().await.as_array().unwrap().len(), 2);

    let long = "x".repeat(101);
    for (name, key, refusal) in [
        ("again", FIRST, "400 plain"),
        ("bad", "ssh-ed25519 AAAA", "400 plain"),
        ("two", &format!("{FIRST}\n{SECOND}"), "400 plain"),
        ("", SECOND, "422 validation"),
        (&long, SECOND, "422 validation"),
        ("a\u{7}b", SECOND, "422 validation"),
    ] {
        assert_eq!(add(&installation, name, key).await.summary(), refusal, "{name}");
    }
    let delete =
        async |id: &str| installation.call("DELETE", &format!("/user/ssh-keys/{id}"), Value::Null).await;
    assert_eq!(delete("7").await.summary(), "400 plain");
    let id = added["id"].as_str().unwrap();
    let path = format!("/user/ssh-keys/{id}");
    let stranger = [("x-api-key", installation.admin.as_str())];
    assert_eq!(installation.call_with(&stranger, "DELETE", &path, Value::Null).await.summary(), "404 plain");
    let deleted = delete(id).await.expect(204);
    assert!(deleted.text.is_empty());
    assert_eq!(delete(id).await.summary(), "404 plain");
    assert_eq!(list().await.as_array().unwrap().len(), 1);
    add(&installation, "again", FIRST).await.expect(201);
}

#[tokio::test]
async fn nothing_is_fetched_from_elsewhere() {
    let installation = Installation::new().await;
    let call = async |path: &str, body: Value| installation.call("POST", path, body).await.summary();
    assert_eq!(
        call("/user/ssh-keys/github-profile", json!({"github_username": "octocat"})).await,
        "400 plain"
    );
    assert_eq!(call("/user/ssh-keys/github-profile", json!({"github_username": ""})).await, "422 validation");
    assert_eq!(call("/user/ssh-keys/github-sync", Value::Null).await, "400 plain");
}

#[tokio::test]
async fn keys_of_a_cvm() {
    let installation = Installation::new().await;
    let first = add(&installation, "laptop", FIRST).await.expect(201).json()["id"].clone();
    let second = add(&installation, "phone", SECOND).await.expect(201).json()["id"].clone();
    let vm = installation.create("my-app-01").await;
    let path = format!("/cvms/{}/ssh-keys", vm["id"]);
    let put = async |body: Value| installation.call("PUT", &path, body).await;
    assert_eq!(put(json!({"ssh_key_ids": [first]})).await.summary(), "409 plain", "it is being created");
    installation.settle(&vm, CvmStatus::Running).await;
    up_since(&installation, &vm, installation.app.clock.now_ms() + 1).await;
    let before = installation.row(&vm).await.revision_id;

    let set = put(json!({"ssh_key_ids": [first], "more": 1})).await.expect(200).json();
    insta::assert_json_snapshot!(set);
    let row = installation.row(&vm).await;
    assert_eq!((row.status, row.operation_id.is_some()), (CvmStatus::Running, false));
    assert_ne!(row.revision_id, before, "the history shows it");
    let config: Value = serde_json::from_str(row.user_config.as_deref().unwrap()).unwrap();
    assert_eq!(config["ssh_authorized_keys"], json!([FIRST]));

    let revision = row.revision_id;
    up_since(&installation, &vm, 0).await;
    assert_eq!(put(json!({"ssh_key_ids": [first]})).await.expect(200).json()["restart_required"], true);
    assert_eq!(installation.row(&vm).await.revision_id, revision, "the same keys change nothing");
    let applied = put(json!({"usernames": ["tenant"], "ssh_key_ids": [second], "apply_now": true})).await;
    let applied = applied.expect(200).json();
    assert_eq!((&applied["restart_required"], &applied["keys"][0]["id"]), (&json!(false), &second));
    assert_eq!(applied["keys"].as_array().unwrap().len(), 2, "each once");
    assert_eq!(installation.row(&vm).await.status, CvmStatus::Updating);

    for bad in [json!({"ssh_key_ids": ["sshkey_x"]}), json!({"usernames": ["operator"]})] {
        assert_eq!(put(bad.clone()).await.summary(), "404 plain", "{bad}");
    }
    for many in [json!({"ssh_key_ids": vec![&first; 101]}), json!({"usernames": vec!["tenant"; 101]})] {
        assert_eq!(put(many).await.summary(), "422 validation", "lists are short");
    }
}

/// The VM was started at a time.
async fn up_since(installation: &Installation, vm: &Value, started_at_ms: i64) {
    let mut change = installation.app.store.change().await.unwrap();
    let seen = crate::store::ObservedVm { started_at_ms: Some(started_at_ms), ..Default::default() };
    change.observe_cvm(vm["id"].as_i64().unwrap(), &seen, 0).await.unwrap();
    change.commit().await.unwrap();
}

#[tokio::test]
async fn only_keys_of_members_are_let_in() {
    let installation = Installation::new().await;
    let now_ms = installation.app.clock.now_ms();
    let (_, _, stranger) = account(&installation.app.store, "stranger", "user", 7, now_ms).await;
    let body = json!({"name": "theirs", "public_key": FIRST});
    let theirs = installation
        .call_with(&[("x-api-key", &stranger)], "POST", "/user/ssh-keys", body)
        .await
        .expect(201)
        .json();
    let vm = installation.create("my-app-01").await;
    installation.settle(&vm, CvmStatus::Stopped).await;
    let path = format!("/cvms/{}/ssh-keys", vm["id"]);
    for body in [json!({"ssh_key_ids": [theirs["id"]]}), json!({"usernames": ["stranger"]})] {
        assert_eq!(installation.call("PUT", &path, body).await.summary(), "404 plain");
    }
    assert_eq!(installation.row(&vm).await.user_config, None);
}

#[tokio::test]
async fn keys_of_a_new_cvm_become_part_of_its_configuration() {
    let installation = Installation::new().await;
    let provision = async |more: Value| {
        let mut body = provision_body("my-app-01");
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        installation.call("POST", "/cvms/provision", body).await
    };
    let bad = provision(json!({"ssh_authorized_keys": [FIRST, "ssh-rsa x"]})).await;
    assert_eq!(bad.summary(), "400 ERR-02-008");
    assert!(bad.text.contains("ssh_authorized_keys[1]"), "{}", bad.text);
    let no_object = provision(json!({"ssh_authorized_keys": [FIRST], "user_config": "[]"})).await;
    assert_eq!(no_object.summary(), "400 ERR-02-009");
    let good = json!({"ssh_authorized_keys": [FIRST], "user_config": "{\"hostname\": \"web\"}"});
    let provision = provision(good).await.expect(200).json();
    let body = json!({"app_id": provision["app_id"], "compose_hash": provision["compose_hash"]});
    let vm = installation.call("POST", "/cvms", body).await.expect(200).json();
    let path = format!("/cvms/{}", vm["id"]);
    let config =
        installation.call("GET", &format!("{path}/user_config"), Value::Null).await.expect(200).json();
    assert_eq!((&config["hostname"], &config["ssh_authorized_keys"]), (&json!("web"), &json!([FIRST])));
    // Nobody's key is shown all the same, with the words behind it.
    let keys = installation.call("GET", &format!("{path}/ssh-keys"), Value::Null).await.expect(200).json();
    assert_eq!((&keys["keys"][0]["id"], &keys["keys"][0]["name"]), (&Value::Null, &json!("me@example.org")));
}
