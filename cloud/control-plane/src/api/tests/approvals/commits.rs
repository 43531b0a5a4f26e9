//! Committing what waits, with nothing but its token.

use super::*;

#[tokio::test]
async fn what_was_prepared_is_carried_out_once_and_exactly() {
    for governed in Governed::both().await {
        let body = json!({"docker_compose_file": YAML, "vcpu": 3, "rollback_on_failure": false});
        let prepared = Prepared::of(&governed.call("PATCH", "", body).await.expect(465));
        let transaction = governed.allow(1, prepared.hash);
        // Days later, and whatever else happened that is no change of the configuration.
        governed.installation.app.clock.advance_ms(13 * DAY_MS);
        governed.installation.report(&super::super::report(65536, false)).await;
        governed.call("POST", "/stop", Value::Null).await.expect(200);
        governed.installation.settle(&governed.vm, CvmStatus::Stopped).await;
        let commit = json!({
            "token": prepared.token, "compose_hash": format!("0x{}", prepared.hash),
            "transaction_hash": transaction,
        });
        let answer = governed.commit("update", commit.clone()).await.expect(202).json();
        assert_eq!(answer["status"], "in_progress");
        let row = governed.row().await;
        assert_eq!(row.operation_id.as_deref(), answer["correlation_id"].as_str());
        assert_eq!(row.rollback_on_failure, 0);
        let coming = governed.coming(&governed.vm).await.configuration;
        assert_eq!((coming.compose_hash, coming.vcpu), (prepared.hash, 3));
        assert_eq!(governed.commit("update", commit).await.summary(), "466 ERR-01-006");

        let path = governed.path(&format!("/commit-update?token={}", prepared.token));
        let told = governed.installation.call_with(&[], "GET", &path, Value::Null).await.expect(200).json();
        assert_eq!(
            (&told["status"], &told["correlation_id"]),
            (&json!("committed"), &answer["correlation_id"])
        );
        assert_eq!((&told["app_compose"], &told["diff"]), (&Value::Null, &Value::Null));
        let history = governed.call("GET", "/operations", Value::Null).await.expect(200).json();
        assert_eq!(history["items"][0]["triggered_by_username"], "tenant");
    }
}

#[tokio::test]
async fn who_has_the_token_is_who_the_audit_log_names() {
    for governed in Governed::both().await {
        let prepared = governed.prepare(YAML).await;
        let transaction = governed.allow(1, prepared.hash);
        let commit = json!({"token": prepared.token, "transaction_hash": transaction});
        governed.commit("update", commit.clone()).await.expect(202);
        governed.commit("update", commit).await.expect(466);
        let uuid = governed.vm["vm_uuid"].as_str().unwrap();
        let log = format!("/workspace/audit?target={uuid}&limit=2");
        let log = governed.installation.call("GET", &log, Value::Null).await.expect(200);
        assert!(!log.text.contains(&prepared.token));
        let log = log.json();
        let [committed, asked] = [&log["items"][0], &log["items"][1]];
        assert_eq!(
            (&committed["operation"], &committed["target"]["kind"]),
            (&json!("commit_cvm_update"), &json!("cvm"))
        );
        let nobody = json!({
            "kind": "commit_token", "name": null, "user_id": null, "key_id": null, "key_prefix": null,
        });
        assert_eq!(committed["actor"], nobody);
        assert!(committed["before"].is_string() && committed["before"] != committed["after"]);
        // What waits is a change of its own, and none of the CVM.
        assert_eq!(
            (&asked["operation"], &asked["target"]["kind"]),
            (&json!("patch_cvm"), &json!("prepared_change"))
        );
        assert_eq!((&asked["actor"]["name"], &asked["before"]), (&json!("tenant"), &Value::Null));
        assert!(asked["after"].is_string());
    }
}

#[tokio::test]
async fn a_token_that_stands_for_nothing_tells_nothing() {
    for governed in Governed::both().await {
        let prepared = governed.prepare(YAML).await;
        governed.allow(1, prepared.hash);
        let unknown = uuid::Uuid::from_bytes([7; 16]).to_string();
        let own = governed.vm["vm_uuid"].as_str().unwrap();
        let mut bodies = Vec::new();
        for (cvm, token) in [
            (own, unknown.as_str()),
            ("none-such", unknown.as_str()),
            (unknown.as_str(), prepared.token.as_str()),
            ("none-such", prepared.token.as_str()),
            (own, "not a token"),
            (own, ""),
        ] {
            for kind in ["update", "replica"] {
                let path = format!("/cvms/{cvm}/commit-{kind}");
                let body = json!({"token": token});
                let refused = governed.installation.call_with(&[], "POST", &path, body).await;
                assert_eq!(refused.summary(), "466 ERR-01-006", "{cvm} {token}");
                let look = format!("{path}?token={}", token.replace(' ', "+"));
                let refused_look = governed.installation.call_with(&[], "GET", &look, Value::Null).await;
                for answer in [refused, refused_look] {
                    let mut body = answer.json();
                    body.as_object_mut().unwrap().remove("request_id");
                    bodies.push(body);
                }
            }
        }
        // Of the other kind of change.
        let refused = governed.commit("replica", json!({"token": prepared.token})).await.expect(466);
        let mut body = refused.json();
        body.as_object_mut().unwrap().remove("request_id");
        bodies.push(body);
        bodies.dedup();
        assert_eq!(bodies.len(), 1, "{bodies:?}");
        // Whoever names the CVM in any of its forms is right; a token in the query is as good.
        for form in ["id", "app_id", "name"] {
            let cvm = governed.vm[form].to_string().replace('"', "");
            let path = format!("/cvms/{cvm}/commit-update?token={}", prepared.token);
            governed.installation.call_with(&[], "GET", &path, Value::Null).await.expect(200);
        }
        let path = governed.path(&format!("/commit-update?token={}", prepared.token.to_uppercase()));
        governed.installation.call_with(&[], "POST", &path, Value::Null).await.expect(202);
    }
}

#[tokio::test]
async fn a_transaction_has_to_have_allowed_it_and_the_contract_has_to_allow_it_still() {
    for governed in Governed::both().await {
        let prepared = governed.prepare(YAML).await;
        let (app, wallet, hash) = (*governed.app_id.as_bytes(), [0xbb; 20], prepared.hash);
        let other = ComposeHash::from_bytes([3; 32]);
        let refused = [
            ("0xab", governed.mined(1, app, vec![], false)),
            ("other hash", governed.mined(2, app, vec![hash_added(app, other)], true)),
            ("other contract", governed.mined(3, wallet, vec![hash_added(wallet, hash)], true)),
            ("unrelated", governed.mined(4, wallet, vec![], true)),
            ("other device", governed.mined(5, app, vec![device_added(app, [9; 32])], true)),
            ("missing", format!("0x{}", "77".repeat(32))),
            ("no hash", "0xab".to_owned()),
        ];
        let commit = async |transaction: &str| {
            let body = json!({"token": prepared.token, "transaction_hash": transaction});
            governed.commit("update", body).await
        };
        for (what, transaction) in &refused {
            assert_eq!(commit(transaction).await.summary(), "467 ERR-01-007", "{what}");
        }
        // A good transaction of a wallet of several people, before the contract has it in force.
        let multisig = governed.mined(6, wallet, vec![hash_added(app, hash)], true);
        for transaction in [multisig.as_str(), "", "already-registered"] {
            let denied = commit(transaction).await;
            assert_eq!(denied.summary(), "468 ERR-01-008", "{transaction}");
            assert!(denied.json()["suggestions"].to_string().contains("addComposeHash"));
        }
        let wrong = json!({"token": prepared.token, "compose_hash": other.to_string()});
        assert_eq!(governed.commit("update", wrong).await.summary(), "466 ERR-01-006");
        governed.contracts.add_hash(governed.app_id, hash);
        governed.contracts.remove_hash(governed.app_id, hash);
        assert_eq!(commit(&multisig).await.summary(), "468 ERR-01-008");
        governed.contracts.add_hash(governed.app_id, hash);
        // None of that used the token up.
        commit(&multisig).await.expect(202);
        assert_eq!(commit(&multisig).await.summary(), "466 ERR-01-006");
    }
}

#[tokio::test]
async fn a_busy_cvm_is_tried_again_and_a_changed_one_is_not() {
    for governed in Governed::both().await {
        let prepared = governed.prepare(YAML).await;
        let transaction = governed.allow(1, prepared.hash);
        let commit = json!({"token": prepared.token, "transaction_hash": transaction});
        governed.call("POST", "/restart", Value::Null).await.expect(200);
        let busy = governed.commit("update", commit.clone()).await;
        assert_eq!((busy.summary().as_str(), busy.header("retry-after")), ("409 plain", "5"));
        governed.installation.settle(&governed.vm, CvmStatus::Running).await;
        governed.commit("update", commit).await.expect(202);
        governed.installation.carry_out(&governed.vm).await;

        // A change that needs nobody's approval comes in between: in the interface, and from elsewhere.
        let next = governed.prepare(OTHER_YAML).await;
        governed.allow(2, next.hash);
        governed.call("PATCH", "", json!({"vcpu": 4})).await.expect(202);
        governed.installation.carry_out(&governed.vm).await;
        let refused = governed.commit("update", json!({"token": next.token})).await;
        assert_eq!(refused.summary(), "466 ERR-01-006");

        governed.contracts.remove_hash(governed.app_id, next.hash);
        let next = governed.prepare(OTHER_YAML).await;
        governed.allow(3, next.hash);
        let row = governed.row().await;
        let update = crate::operations::UpdateRequest {
            kind: crate::operations::OperationKind::Resize,
            configuration: crate::store::Configuration { vcpu: 2, ..row.configuration() },
            base_revision: None,
            shutdown_timeout_s: None,
            allow_force_stop: true,
        };
        governed.installation.app.lifecycle.update(row.id, &update, row.user_id).await.unwrap();
        governed.installation.carry_out(&governed.vm).await;
        let refused = governed.commit("update", json!({"token": next.token})).await;
        assert_eq!(refused.summary(), "466 ERR-01-006");
        assert!(refused.json()["message"].as_str().unwrap().contains("was changed after"));
        // A deleted one is like none.
        let operations = governed.call("DELETE", "", Value::Null).await;
        assert_eq!(operations.status, 204);
        let (store, now_ms) = (&governed.installation.app.store, governed.installation.app.clock.now_ms());
        let mut change = store.change().await.unwrap();
        let row = change.lock_cvm(row.id).await.unwrap().unwrap();
        change.delete_cvm(&row, now_ms).await.unwrap();
        change.commit().await.unwrap();
        let refused = governed.commit("update", json!({"token": next.token})).await;
        assert!(!refused.json()["message"].as_str().unwrap().contains("changed after"), "{}", refused.text);
    }
}

#[tokio::test]
async fn a_token_holds_for_fourteen_days() {
    for governed in Governed::both().await {
        let clock = &governed.installation.app.clock;
        let prepared = governed.prepare(YAML).await;
        governed.allow(1, prepared.hash);
        clock.advance_ms(14 * DAY_MS);
        let refused = governed.commit("update", json!({"token": prepared.token})).await;
        assert_eq!(refused.summary(), "466 ERR-01-006");
        // The same change afterwards is another record. Asked for in time, it waits anew.
        governed.contracts.remove_hash(governed.app_id, prepared.hash);
        governed.installation.report(&super::super::report(65536, false)).await;
        let again = governed.prepare(YAML).await;
        assert_ne!(again.token, prepared.token);
        clock.advance_ms(10 * DAY_MS);
        governed.installation.report(&super::super::report(65536, false)).await;
        assert_eq!(governed.prepare(YAML).await.token, again.token);
        clock.advance_ms(10 * DAY_MS);
        governed.installation.report(&super::super::report(65536, false)).await;
        governed.allow(2, again.hash);
        governed.commit("update", json!({"token": again.token})).await.expect(202);
    }
}

#[tokio::test]
async fn of_two_commits_at_once_one_wins() {
    for governed in Governed::both().await {
        let prepared = governed.prepare(YAML).await;
        governed.allow(1, prepared.hash);
        let second = governed.second_router();
        let send = async |router: Router| {
            let uri = format!("/api/v1{}", governed.path("/commit-update"));
            let body = Body::from(json!({"token": prepared.token}).to_string());
            let request = Request::builder().method("POST").uri(uri).body(body).unwrap();
            Answer::read(tower::ServiceExt::oneshot(router, request).await.unwrap()).await.summary()
        };
        let first = governed.installation.router.clone();
        let (one, other) = tokio::join!(send(first), send(second));
        let mut answers = [one, other];
        answers.sort();
        assert_eq!(answers, ["202", "466 ERR-01-006"]);
        let operations = governed.call("GET", "/operations", Value::Null).await.expect(200).json();
        assert_eq!(operations["items"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn what_waits_is_shown_to_whoever_has_the_token() {
    for governed in Governed::both().await {
        let prepared = governed.prepare(YAML).await;
        let path = governed.path(&format!("/commit-update?token={}", prepared.token));
        let told = governed.installation.call_with(&[], "GET", &path, Value::Null).await.expect(200).json();
        assert_eq!((&told["status"], &told["kind"]), (&json!("pending"), &json!("update")));
        assert_eq!((&told["vm_uuid"], &told["name"]), (&governed.vm["vm_uuid"], &json!("my-app")));
        assert_eq!(told["onchain_status"], prepared.details["onchain_status"]);
        assert_eq!((&told["kms_info"], &told["chain_id"]), (&prepared.details["kms_info"], &json!(CHAIN)));
        assert_eq!(told["onchain_actions"][0]["calldata"], json!(format!("0xdfc77223{}", prepared.hash)));
        assert!(told["summary"].as_str().unwrap().contains("+    image: nginx:2"), "{told}");
        // What is to be allowed can be computed from what is shown.
        let document = told["app_compose"].as_str().unwrap();
        assert_eq!(ComposeHash::of(document.as_bytes()), prepared.hash);
        governed.contracts.set_down(Some("away"));
        let told = governed.installation.call_with(&[], "GET", &path, Value::Null).await.expect(200).json();
        assert_eq!(told["onchain_status"], Value::Null);
    }
}

#[tokio::test]
async fn a_workspace_has_a_bound_on_what_waits() {
    let governed = Governed::on(Installation::new().await).await;
    let (row, store) = (governed.row().await, &governed.installation.app.store);
    crate::store::tests::prepared_changes::fill(store, &row, 200).await;
    let refused = governed.call("PATCH", "", json!({"docker_compose_file": YAML})).await;
    assert_eq!(refused.summary(), "400 ERR-02-015");
    assert!(governed.events().await.is_empty());
}

#[tokio::test]
async fn nobody_uses_up_what_others_may_ask_of_the_chain() {
    let governed = Governed::on(Installation::new().await).await;
    let prepared = governed.prepare(YAML).await;
    let hash = prepared.hash.to_string();
    let transaction = governed.allow(1, prepared.hash);
    let turns = &governed.installation.api.chain_reads;
    let taken: Vec<_> = std::iter::from_fn(|| turns.take(governed.installation.tenant_workspace)).collect();
    let asked = governed.contracts.round_trips();
    let commit = json!({"token": prepared.token, "transaction_hash": transaction});
    assert_eq!(governed.commit("update", commit.clone()).await.summary(), "429 plain");
    let half = [("x-compose-hash", hash.as_str()), ("x-transaction-hash", transaction.as_str())];
    assert_eq!(governed.call_with(&half, "PATCH", "", json!({})).await.summary(), "429 plain");
    let again = json!({"docker_compose_file": YAML});
    assert_eq!(governed.call("PATCH", "", again.clone()).await.summary(), "429 plain");
    assert_eq!(governed.call_with(&half, "PATCH", "", again.clone()).await.summary(), "429 plain");
    assert_eq!(governed.call("POST", "/replicas", Value::Null).await.summary(), "429 plain");
    for below in ["rollouts", "pending-updates"] {
        let path = format!("/apps/{}/{below}", governed.app_id);
        let (method, body) = if below == "rollouts" { ("POST", again.clone()) } else { ("GET", Value::Null) };
        let refused = governed.installation.call(method, &path, body).await;
        assert_eq!(refused.summary(), "429 plain", "{below}");
    }
    assert_eq!(governed.contracts.round_trips(), asked);
    drop(taken);
    governed.commit("update", commit).await.expect(202);
}
