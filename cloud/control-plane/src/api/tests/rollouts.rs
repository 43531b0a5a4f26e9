//! Revisions, their redeployment, and rollouts, as their operations end well.

use cloister_app_compose::ComposeHash;
use cloister_management_api::{Revision, RevisionPage};
use serde_json::{Value, json};

use super::{Installation, account};
use crate::operations::{CvmStatus, RevisionState};

const NEXT: &str = "services:\n  web:\n    image: nginx:2\n";

impl Installation {
    /// Lets the change of a CVM end as if a worker had done it.
    pub(super) async fn carry_out(&self, vm: &Value) {
        let cvm = self.row(vm).await;
        let operation = cvm.operation_id.clone().unwrap().parse().unwrap();
        let operation = self.app.store.operation(operation).await.unwrap().unwrap();
        let revision = self.app.store.revision(operation.to_revision.unwrap()).await.unwrap().unwrap();
        let now_ms = self.app.clock.now_ms();
        let mut change = self.app.store.change().await.unwrap();
        change.apply_revision(&revision, now_ms).await.unwrap();
        change.set_revision_state(revision.id, RevisionState::Applied, now_ms).await.unwrap();
        change.commit().await.unwrap();
        self.settle(vm, CvmStatus::Running).await;
    }

    async fn revisions(&self, vm: &Value) -> Vec<Revision> {
        let path = format!("/apps/{}/revisions", vm["app_id"].as_str().unwrap());
        let page = self.call("GET", &path, Value::Null).await.expect(200).json();
        serde_json::from_value::<RevisionPage>(page).unwrap().revisions
    }

    /// A CVM that was changed once.
    async fn changed(&self) -> Value {
        let vm = self.create("my-app-01").await;
        self.settle(&vm, CvmStatus::Running).await;
        let change =
            json!({"docker_compose_file": NEXT, "user_config": "{\"a\":1}", "allow_force_stop": true});
        self.call("PATCH", &format!("/cvms/{}", vm["id"]), change).await.expect(202);
        self.carry_out(&vm).await;
        vm
    }

    /// The same with a replica beside it.
    async fn two(&self) -> (Value, Value) {
        let vm = self.changed().await;
        let path = format!("/cvms/{}/replicas", vm["id"]);
        let replica = self.call("POST", &path, Value::Null).await.expect(200).json();
        self.settle(&replica, CvmStatus::Running).await;
        (vm, replica)
    }
}

fn states(revisions: &[Revision]) -> Vec<Value> {
    revisions.iter().map(|revision| json!([revision.operation_type, revision.state])).collect()
}

#[tokio::test]
async fn a_change_becomes_a_revision_when_it_is_applied() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let first = installation.revisions(&vm).await;
    assert_eq!(states(&first), [json!(["deploy", "current"])]);
    installation.settle(&vm, CvmStatus::Running).await;
    let path = format!("/cvms/{}", vm["id"]);
    let answer = installation.call("PATCH", &path, json!({"docker_compose_file": NEXT})).await.expect(202);
    assert_eq!(installation.revisions(&vm).await, first, "nothing is shown before it is applied");
    installation.carry_out(&vm).await;
    let both = installation.revisions(&vm).await;
    assert_eq!(states(&both), [json!(["update", "current"]), json!(["deploy", "superseded"])]);
    assert_eq!(both[0].trace_id.as_deref(), answer.json()["correlation_id"].as_str());
    let user = both[0].triggered_by.as_ref().unwrap();
    assert_eq!(user.username.as_deref(), Some("tenant"));
    let cvm = both[0].cvm.as_ref().unwrap();
    assert_eq!(
        (cvm.name.as_deref(), cvm.vm_uuid.to_string()),
        (Some("my-app-01"), vm["vm_uuid"].as_str().unwrap().to_owned())
    );
    assert_eq!(both[0].workspace.as_ref().unwrap().slug.as_deref(), Some("tenant"));

    let app = vm["app_id"].as_str().unwrap();
    for (query, total_pages, shown) in
        [("?page_size=1", 2, 1), ("?page_size=1&page=3", 2, 0), ("?page_size=1000", 1, 2)]
    {
        let path = format!("/apps/0x{app}/revisions{query}");
        let page = installation.call("GET", &path, Value::Null).await.expect(200).json();
        assert_eq!((&page["total"], &page["total_pages"]), (&json!(2), &json!(total_pages)));
        assert_eq!(page["revisions"].as_array().unwrap().len(), shown);
    }
    for query in ["?page_size=1001", "?page_size=0", "?page=0", "?page=x"] {
        let path = format!("/apps/{app}/revisions{query}");
        assert_eq!(installation.call("GET", &path, Value::Null).await.summary(), "422 validation");
    }
}

#[tokio::test]
async fn a_revision_in_full_and_raw() {
    let installation = Installation::new().await;
    let vm = installation.changed().await;
    let revisions = installation.revisions(&vm).await;
    let path = format!("/apps/{}/revisions/{}", vm["app_id"].as_str().unwrap(), revisions[0].revision_id);
    let detail = installation.call("GET", &path, Value::Null).await.expect(200).json();
    assert_eq!(detail["compose_file"]["docker_compose_file"], NEXT);
    assert_eq!((&detail["encrypted_env"], &detail["user_config"]), (&json!(""), &json!("{\"a\":1}")));
    let raw = installation.call("GET", &format!("{path}?raw_compose_file=true"), Value::Null).await.json();
    let text = raw["compose_file"].as_str().unwrap();
    assert_eq!(ComposeHash::of(text.as_bytes()).to_string(), detail["compose_hash"].as_str().unwrap());
    let former = format!("/apps/{}/revisions/{}", vm["app_id"].as_str().unwrap(), revisions[1].revision_id);
    let former = installation.call("GET", &former, Value::Null).await.expect(200).json();
    assert_eq!((&former["encrypted_env"], &former["user_config"]), (&json!(""), &json!("")));
    for wrong in ["rev_x", "1", "rev_", "cvm_abc"] {
        let path = format!("/apps/{}/revisions/{wrong}", vm["app_id"].as_str().unwrap());
        assert_eq!(installation.call("GET", &path, Value::Null).await.summary(), "404 plain", "{wrong}");
    }
}

#[tokio::test]
async fn what_differs_is_told_in_words_and_structured() {
    let installation = Installation::new().await;
    let vm = installation.changed().await;
    let revisions = installation.revisions(&vm).await;
    let (new, old) = (revisions[0].revision_id, revisions[1].revision_id);
    let diff = async |of, against: &str| {
        let app = vm["app_id"].as_str().unwrap();
        let path = format!("/apps/{app}/revisions/{of}/diff?against={against}");
        installation.call("GET", &path, Value::Null).await.expect(200).json()
    };
    // Bringing the old one back would undo the change.
    let back = diff(old, "current").await;
    assert_eq!(back["before"], json!(new));
    let words = back["summary"].as_str().unwrap();
    assert!(words.contains("-    image: nginx:2") && words.contains("+    image: nginx:1"), "{words}");
    assert!(words.contains("user_config is removed"), "{words}");
    assert_eq!(back["compose_hash"]["after"], json!(revisions[1].compose_hash));
    let members: Vec<_> =
        back["changes"].as_array().unwrap().iter().map(|change| &change["member"]).collect();
    assert_eq!(members, ["docker_compose_file", "user_config"]);
    assert_eq!(diff(new, &old.to_string()).await["changes"].as_array().unwrap().len(), 2);
    for (of, against) in [(new, "current".to_owned()), (old, old.to_string())] {
        assert_eq!(diff(of, &against).await["changes"], json!([]), "nothing differs from itself");
    }
}

#[tokio::test]
async fn a_revision_is_brought_back_as_a_new_one() {
    let installation = Installation::new().await;
    let vm = installation.changed().await;
    let first = installation.revisions(&vm).await.pop().unwrap();
    let app = vm["app_id"].as_str().unwrap();
    // A disk that grew meanwhile stays.
    installation.call("PATCH", &format!("/cvms/{}", vm["id"]), json!({"disk_size": 60})).await.expect(202);
    installation.carry_out(&vm).await;
    for path in [
        format!("/apps/{app}/revisions/{}/redeploy", first.revision_id),
        format!("/cvms/{}/revisions/{}/redeploy", vm["id"], first.revision_id),
    ] {
        let answer = installation.call("POST", &path, Value::Null).await.expect(202).json();
        assert_eq!(answer["status"], "in_progress");
        let row = installation.row(&vm).await;
        assert_eq!(answer["correlation_id"].as_str(), row.operation_id.as_deref());
        let busy = installation.call("POST", &path, Value::Null).await;
        assert_eq!(busy.summary(), "409 plain");
        installation.carry_out(&vm).await;
        let row = installation.row(&vm).await;
        assert_eq!(
            (row.compose_hash, row.user_config.as_deref(), row.disk_gb),
            (first.compose_hash, None, 60)
        );
        let again = installation.call("POST", &path, json!({})).await.expect(200).json();
        assert_eq!((&again["status"], &again["correlation_id"]), (&json!("no_change"), &json!("")));
        let change = json!({"docker_compose_file": NEXT});
        installation.call("PATCH", &format!("/cvms/{}", vm["id"]), change).await.expect(202);
        installation.carry_out(&vm).await;
    }
    let path = format!("/apps/{app}/revisions/{}/redeploy", first.revision_id);
    let unknown = json!({"vm_uuids": ["00000000-0000-4000-8000-000000000000"]});
    assert_eq!(installation.call("POST", &path, unknown).await.summary(), "404 ERR-03-001");
    let unsealed = json!({"encrypted_env": "ab".repeat(61)});
    assert_eq!(installation.call("POST", &path, unsealed).await.status.as_u16(), 400, "no KMS opens it");
}

#[tokio::test]
async fn what_a_revision_needs_must_be_there() {
    let installation = Installation::new().await;
    let vm = installation.changed().await;
    let first = installation.revisions(&vm).await.pop().unwrap();
    let path = format!("/cvms/{}/revisions/{}/redeploy", vm["id"], first.revision_id);
    // The CVM got another image, and the node dropped the former one.
    let mut change = installation.app.store.change().await.unwrap();
    let mut now = installation
        .app
        .store
        .revision(installation.row(&vm).await.revision_id.unwrap())
        .await
        .unwrap()
        .unwrap();
    now.configuration.os_image_hash = cloister_app_compose::OsImageHash::from_bytes([8; 32]);
    now.configuration.env_pubkey = Some("cd".repeat(32));
    change.apply_revision(&now, installation.app.clock.now_ms()).await.unwrap();
    change.commit().await.unwrap();
    let mut report = super::report(65536, false);
    report.images[0].os_image_hash = cloister_app_compose::OsImageHash::from_bytes([8; 32]);
    installation.report(&report).await;
    let refused = installation.call("POST", &path, Value::Null).await;
    assert_eq!(refused.summary(), "400 ERR-03-006");
    assert!(refused.json()["message"].as_str().unwrap().contains("cloister-0.1.0"));
}

#[tokio::test]
async fn several_cvms_get_a_revision_as_a_rollout() {
    let installation = Installation::new().await;
    let (vm, replica) = installation.two().await;
    let app = vm["app_id"].as_str().unwrap();
    let first = installation.revisions(&vm).await.pop().unwrap();
    let path = format!("/apps/{app}/revisions/{}/redeploy", first.revision_id);
    assert_eq!(installation.call("POST", &path, Value::Null).await.summary(), "400 ERR-03-009");
    let both = json!({"vm_uuids": [vm["vm_uuid"], replica["vm_uuid"].as_str().unwrap().replace('-', "")]});
    let answer = installation.call("POST", &path, both).await.expect(202).json();
    let id = answer["rollout_id"].as_str().unwrap();
    let rollout =
        installation.call("GET", &format!("/apps/{app}/rollouts/{id}"), Value::Null).await.expect(200);
    let rollout = rollout.json();
    assert_eq!((&rollout["state"], &rollout["on_failure"]), (&json!("running"), &json!("roll_back")));
    let members: Vec<_> =
        rollout["members"].as_array().unwrap().iter().map(|member| &member["vm_uuid"]).collect();
    assert_eq!(members, [&vm["vm_uuid"], &replica["vm_uuid"]]);
}

#[tokio::test]
async fn a_rollout_is_accepted_shown_and_steered() {
    let installation = Installation::new().await;
    let (vm, replica) = installation.two().await;
    let app = vm["app_id"].as_str().unwrap();
    let path = format!("/apps/{app}/rollouts");
    for (body, expected) in [
        (json!({}), "400 plain"),
        (json!({"docker_compose_file": NEXT}), "400 plain"),
        (json!({"vcpu": 2, "max_unavailable": 2}), "400 ERR-02-008"),
        (json!({"vcpu": 2, "max_unavailable": 0}), "400 ERR-02-008"),
        (json!({"vcpu": 2, "on_failure": "explode"}), "422 validation"),
        (json!({"vcpu": 2, "health_timeout": 60}), "400 ERR-02-009"),
        (json!({"vcpu": 2, "revision_id": "rev_x"}), "422 validation"),
        (
            json!({"vcpu": 2, "revision_id": installation.revisions(&vm).await[0].revision_id}),
            "400 ERR-02-009",
        ),
        (json!({"vcpu": 2, "vm_uuids": []}), "400 ERR-02-008"),
        (json!({"vcpu": 2, "vm_uuids": ["x"]}), "404 ERR-03-001"),
        (json!({"docker_compose_file": "services: ["}), "422 ERR-01-003"),
        (json!({"disk_size": 1}), "400 ERR-02-008"),
    ] {
        assert_eq!(installation.call("POST", &path, body.clone()).await.summary(), expected, "{body}");
    }
    let change = json!({"memory": 8192, "on_failure": "pause"});
    let rollout = installation.call("POST", &path, change.clone()).await.expect(202).json();
    assert_eq!(rollout["members"].as_array().unwrap().len(), 2);
    assert_eq!(installation.call("POST", &path, change).await.summary(), "409 plain");
    let single = installation.call("PATCH", &format!("/cvms/{}", replica["id"]), json!({"vcpu": 4})).await;
    assert_eq!(single.summary(), "409 plain");
    assert!(single.json()["detail"].as_str().unwrap().starts_with("a rollout of its application"));

    let one = format!("{path}/{}", rollout["rollout_id"].as_str().unwrap());
    for (action, body, state) in [
        ("pause", Value::Null, "paused"),
        ("pause", Value::Null, "paused"),
        ("resume", Value::Null, "running"),
        ("abort", json!({"roll_back": true}), "rolling_back"),
        ("abort", Value::Null, "aborting"),
    ] {
        let answer = installation.call("POST", &format!("{one}/{action}"), body).await.expect(200).json();
        assert_eq!(answer["state"], state, "{action}");
    }
    // One record for each of the moves, none for what was so already.
    let log = format!("/workspace/audit?target={}", rollout["rollout_id"].as_str().unwrap());
    let log = installation.call("GET", &log, Value::Null).await.expect(200).json();
    let told: Vec<_> = log["items"].as_array().unwrap().iter().map(|record| &record["operation"]).collect();
    let expected = ["abort_rollout", "abort_rollout", "resume_rollout", "pause_rollout", "create_rollout"];
    assert_eq!(told, expected);
    let late = installation.call("POST", &format!("{one}/resume"), Value::Null).await;
    assert_eq!(late.summary(), "400 plain");
    assert_eq!(late.json()["detail"], "a rollout that is aborting cannot resume");
    let all = installation.call("GET", &path, Value::Null).await.expect(200).json();
    assert_eq!((&all["total"], &all["rollouts"][0]["reason"]), (&json!(1), &json!("ended by tenant")));
    assert_eq!(installation.call("GET", &format!("{path}/rol_x"), Value::Null).await.summary(), "404 plain");
}

#[tokio::test]
async fn strangers_learn_nothing_of_an_application() {
    let installation = Installation::new().await;
    let (vm, _) = installation.two().await;
    let app = vm["app_id"].as_str().unwrap();
    let revision = installation.revisions(&vm).await[0].revision_id;
    let change = json!({"memory": 8192});
    let rollout =
        installation.call("POST", &format!("/apps/{app}/rollouts"), change.clone()).await.expect(202).json();
    let rollout = rollout["rollout_id"].as_str().unwrap();
    let now_ms = installation.app.clock.now_ms();
    let (_, _, stranger) = account(&installation.app.store, "stranger", "user", 7, now_ms).await;
    let unknown = "00".repeat(20);
    for (method, rest) in [
        ("GET", "revisions".to_owned()),
        ("GET", format!("revisions/{revision}")),
        ("GET", format!("revisions/{revision}/diff")),
        ("POST", format!("revisions/{revision}/redeploy")),
        ("GET", "rollouts".to_owned()),
        ("POST", "rollouts".to_owned()),
        ("GET", format!("rollouts/{rollout}")),
        ("POST", format!("rollouts/{rollout}/pause")),
        ("POST", format!("rollouts/{rollout}/resume")),
        ("POST", format!("rollouts/{rollout}/abort")),
    ] {
        let mut answers = Vec::new();
        for app in [app, unknown.as_str()] {
            let headers = [("x-api-key", stranger.as_str())];
            let body = if rest == "rollouts" && method == "POST" { change.clone() } else { Value::Null };
            let answer = installation.call_with(&headers, method, &format!("/apps/{app}/{rest}"), body).await;
            answers.push((answer.summary(), answer.text));
        }
        assert_eq!(answers[0], answers[1], "{method} {rest}: foreign and unknown are the same");
        assert_eq!(answers[0].0, "404 plain");
    }
    // A revision of one application is none of another one's.
    let other = installation.create("other-app").await;
    let path = format!("/apps/{}/revisions/{revision}", other["app_id"].as_str().unwrap());
    assert_eq!(installation.call("GET", &path, Value::Null).await.summary(), "404 plain");
}

#[tokio::test]
async fn a_node_is_drained_and_given_back() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    installation.settle(&vm, CvmStatus::Running).await;
    let admin = [("x-api-key", installation.admin.as_str())];
    let call = async |method: &str, node: &str| {
        installation.call_with(&admin, method, &format!("/admin/nodes/{node}/drain"), Value::Null).await
    };
    let before = call("GET", "local").await.expect(200).json();
    assert_eq!((&before["draining"], &before["state"]), (&json!(false), &json!("ended")));
    for _ in 0..2 {
        let drain = call("POST", "local").await.expect(202).json();
        assert_eq!((&drain["draining"], &drain["state"]), (&json!(true), &json!("draining")));
        assert_eq!(
            (&drain["cvms"][0]["name"], &drain["cvms"][0]["state"]),
            (&json!("my-app-01"), &json!("staying"))
        );
        let reason = drain["cvms"][0]["reason"].as_str().unwrap();
        assert!(reason.contains("no other CVM of its application is ready"), "{reason}");
    }
    let refused = installation.call("POST", "/cvms/provision", super::provision_body("my-app-02")).await;
    assert_eq!(refused.status.as_u16(), 400, "nothing new is placed there: {}", refused.text);
    let ended = call("DELETE", "local").await.expect(200).json();
    assert_eq!((&ended["draining"], &ended["state"]), (&json!(false), &json!("ending")));
    installation.provision("my-app-02").await;
    assert_eq!(call("GET", "nowhere").await.summary(), "404 plain");
    let tenant = installation.call("POST", "/admin/nodes/local/drain", Value::Null).await;
    assert_eq!(tenant.summary(), "403 plain");
}
