//! Replicas and instances of an application under a contract.

use super::*;

const FAR: [u8; 32] = [0xd2; 32];

impl Governed {
    /// A second node, which is a device that nobody allowed.
    async fn far(&self) -> i64 {
        let report = serde_json::to_string(&super::super::report(65536, false)).unwrap();
        let (store, now_ms) = (&self.installation.app.store, self.installation.app.clock.now_ms());
        let mut change = store.change().await.unwrap();
        let node = change.insert_node("far", now_ms).await.unwrap();
        change.put_node_report(node, &report, now_ms).await.unwrap();
        change.commit().await.unwrap();
        self.prove_device(node, FAR).await;
        node
    }

    async fn count(&self) -> usize {
        self.installation.call("GET", "/cvms", Value::Null).await.json().as_array().unwrap().len()
    }
}

#[tokio::test]
async fn a_replica_on_a_device_that_is_not_allowed_waits() {
    for governed in Governed::both().await {
        let far = governed.far().await;
        let body = json!({"node_id": far, "encrypted_env": "ab".repeat(61)});
        let prepared = Prepared::of(&governed.call("POST", "/replicas", body.clone()).await);
        assert_eq!(prepared.details["device_id"], json!(hex::encode(FAR)));
        assert_eq!(prepared.hash, governed.row().await.compose_hash);
        let status = json!({"compose_hash_allowed": true, "device_id_allowed": false, "is_allowed": false});
        assert_eq!(prepared.details["onchain_status"], status);
        let url = prepared.details["api_commit_url"].as_str().unwrap();
        assert!(url.contains("/commit-replica?token="), "{url}");
        assert_eq!(governed.events().await[0].0, "cvm.replica.pending_approval");
        assert_eq!(governed.events().await[0].1["onchain_action"]["method"], "addDevice");
        assert_eq!(Prepared::of(&governed.call("POST", "/replicas", body).await).token, prepared.token);
        // One that is allowed needs nobody, and leaves what waits alone.
        governed.call("POST", "/replicas", Value::Null).await.expect(200);
        assert_eq!(governed.count().await, 2);

        let app = *governed.app_id.as_bytes();
        let transaction = governed.mined(1, app, vec![device_added(app, FAR)], true);
        let commit = json!({"token": prepared.token, "transaction_hash": transaction});
        assert_eq!(governed.commit("replica", commit.clone()).await.summary(), "468 ERR-01-008");
        governed.contracts.add_device(governed.app_id, FAR);
        assert_eq!(governed.commit("update", commit.clone()).await.summary(), "466 ERR-01-006");
        let replica = governed.commit("replica", commit.clone()).await.expect(200).json();
        assert_eq!(
            (&replica["teepod_id"], &replica["app_id"]),
            (&json!(far), &json!(governed.app_id.to_string()))
        );
        let row = governed.installation.row(&replica).await;
        assert_eq!((row.compose_hash, row.encrypted_env), (prepared.hash, Some("ab".repeat(61))));
        assert_eq!(row.status, CvmStatus::Creating);
        assert_eq!(governed.commit("replica", commit).await.summary(), "466 ERR-01-006");
        assert_eq!(governed.count().await, 3);
    }
}

#[tokio::test]
async fn an_instance_with_another_program_is_committed_by_its_application() {
    for governed in Governed::both().await {
        let path = format!("/apps/{}/instances", governed.app_id);
        let call = async |body: Value| governed.installation.call("POST", &path, body).await;
        let body = json!({
            "node_id": governed.installation.node, "docker_compose_file": YAML, "pre_launch_script": "echo 1\n",
            "name": "second-app",
        });
        let prepared = Prepared::of(&call(body).await);
        assert_eq!(governed.count().await, 1);
        let look = governed.path(&format!("/commit-replica?token={}", prepared.token));
        let told = governed.installation.call_with(&[], "GET", &look, Value::Null).await.expect(200).json();
        let document = told["app_compose"].as_str().unwrap();
        assert_eq!(ComposeHash::of(document.as_bytes()), prepared.hash);

        let commit = |hash: &str, transaction: &str| json!({"token": prepared.token, "compose_hash": hash, "transaction_hash": transaction});
        let hash = prepared.hash.to_string();
        assert_eq!(call(commit(&"11".repeat(32), "")).await.summary(), "466 ERR-01-006");
        assert_eq!(call(commit(&hash, &"7".repeat(64))).await.summary(), "467 ERR-01-007");
        assert_eq!(call(commit(&hash, "already-registered")).await.summary(), "468 ERR-01-008");
        assert_eq!(call(json!({"token": "unknown"})).await.summary(), "466 ERR-01-006");
        let transaction = governed.allow(1, prepared.hash);
        let instance = call(commit(&hash, &transaction)).await.expect(200).json();
        assert_eq!(instance["name"], "second-app");
        let row = governed.installation.row(&instance).await;
        assert_eq!((row.compose_hash, row.app_compose.as_str()), (prepared.hash, document));
        assert_eq!(call(commit(&hash, &transaction)).await.summary(), "466 ERR-01-006");
        assert_eq!(governed.count().await, 2);
    }
}

#[tokio::test]
async fn a_replica_can_be_only_prepared_and_follows_no_later_change() {
    for governed in Governed::both().await {
        let only = [("x-prepare-only", "true")];
        let prepared = Prepared::of(&governed.call_with(&only, "POST", "/replicas", Value::Null).await);
        assert_eq!(prepared.details["onchain_status"]["is_allowed"], json!(true));
        assert_eq!(governed.count().await, 1);
        governed.call("PATCH", "", json!({"vcpu": 3})).await.expect(202);
        let busy = governed.commit("replica", json!({"token": prepared.token})).await;
        assert_eq!(busy.summary(), "409 plain");
        governed.installation.carry_out(&governed.vm).await;
        let refused = governed.commit("replica", json!({"token": prepared.token})).await;
        assert_eq!(refused.summary(), "466 ERR-01-006");
        let newer = Prepared::of(&governed.call_with(&only, "POST", "/replicas", Value::Null).await);
        assert_ne!(newer.token, prepared.token);
        governed.commit("replica", json!({"token": newer.token, "transaction_hash": ""})).await.expect(200);
        assert_eq!(governed.count().await, 2);
    }
}

#[tokio::test]
async fn of_two_commits_of_a_replica_one_wins() {
    for governed in Governed::both().await {
        let only = [("x-prepare-only", "true")];
        let prepared = Prepared::of(&governed.call_with(&only, "POST", "/replicas", Value::Null).await);
        let send = async |router: Router| {
            let uri = format!("/api/v1{}", governed.path("/commit-replica"));
            let body = Body::from(json!({"token": prepared.token}).to_string());
            let request = Request::builder().method("POST").uri(uri).body(body).unwrap();
            Answer::read(tower::ServiceExt::oneshot(router, request).await.unwrap()).await.summary()
        };
        let (first, second) = (governed.installation.router.clone(), governed.second_router());
        let (one, other) = tokio::join!(send(first), send(second));
        let mut answers = [one, other];
        answers.sort();
        assert_eq!(answers, ["200", "466 ERR-01-006"]);
        assert_eq!(governed.count().await, 2);
    }
}

/// The other node has no CVM of the application and would be taken otherwise.
#[tokio::test]
async fn an_instance_goes_to_a_device_that_is_allowed() {
    for governed in Governed::both().await {
        let far = governed.far().await;
        let path = format!("/apps/{}/instances", governed.app_id);
        let add = async || governed.installation.call("POST", &path, Value::Null).await;
        let asked = governed.contracts.round_trips();
        let near = add().await.expect(200).json();
        assert_eq!(near["teepod_id"], json!(governed.installation.node));
        assert_eq!(governed.contracts.round_trips(), asked + 2, "all nodes at once, and the chosen one");
        governed.contracts.add_device(governed.app_id, FAR);
        assert_eq!(add().await.expect(200).json()["teepod_id"], json!(far));
        // Where no device is allowed somebody is asked to allow one.
        governed.contracts.remove_device(governed.app_id, FAR);
        governed.contracts.remove_device(governed.app_id, DEVICE);
        let prepared = Prepared::of(&add().await);
        assert_eq!(prepared.details["onchain_status"]["device_id_allowed"], json!(false));
        governed.contracts.set_down(Some("away"));
        assert_eq!(add().await.summary(), "503 plain");
    }
}

#[tokio::test]
async fn an_application_whose_service_is_gone_is_allowed_nothing() {
    for mut governed in Governed::both().await {
        let contracts = Arc::clone(&governed.contracts);
        super::super::kms::support::know_with(&mut governed.installation, Vec::new(), contracts).await;
        let update = governed.call("PATCH", "", json!({"docker_compose_file": YAML})).await;
        assert_eq!(update.summary(), "500 plain");
        assert!(update.text.contains("not part of this installation any more"), "{}", update.text);
        let replica = governed.call("POST", "/replicas", Value::Null).await;
        assert_eq!(replica.summary(), "500 plain");
        let asked = governed.call("POST", "/is-allowed", Value::Null).await.expect(200).json();
        assert_eq!((&asked["is_allowed"], &asked["compose_hash_allowed"]), (&json!(false), &json!(false)));
        assert!(asked["error"].as_str().unwrap().contains("configure the service again"), "{asked}");
        let path = format!("/apps/{}/cvms/is-allowed", governed.app_id);
        let all = governed.installation.call("POST", &path, Value::Null).await;
        assert_eq!(all.expect(200).json()["error_count"], 1);
        assert_eq!(governed.count().await, 1);
    }
}
