//! What requests leave in the audit log, and reading it.

mod records;

use std::fmt::Write as _;
use std::process::Command;

use axum::body::Body;
use axum::http::Request;
use cloister_management_api::{AuditChain, AuditHead, AuditRecord};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::{Value, json};

use super::authorisation::{SSH_KEY, body};
use super::{Answer, Installation};
use crate::api::access;
use crate::audit::INSTALLATION;
use crate::operations::CvmStatus;

impl Installation {
    async fn audit_lines(&self) -> Vec<String> {
        let text = self.call("GET", "/workspace/audit/export", Value::Null).await.expect(200).text;
        text.lines().map(str::to_owned).collect()
    }

    async fn audit_head(&self) -> AuditHead {
        serde_json::from_value(
            self.call("GET", "/workspace/audit/head", Value::Null).await.expect(200).json(),
        )
        .unwrap()
    }

    async fn audit_records(&self, chain: i64) -> Vec<AuditRecord> {
        self.app.store.audit_stretch(chain, 0, i64::MAX, 10_000).await.unwrap()
    }
}

fn verified(lines: &[String], head: &AuditHead) -> Vec<AuditRecord> {
    let mut chain = AuditChain::to_head(head);
    let records = lines.iter().map(|line| chain.line(line).unwrap()).collect();
    chain.finish().unwrap();
    records
}

/// Every operation that changes something, asked for by somebody who may: what is answered with success has left
/// records, and what is refused has not.
#[tokio::test]
async fn every_change_leaves_its_record() {
    let mut table = String::from("operation | answer | records\n");
    for rule in access::rules().iter().filter(|rule| rule.changes.is_some()) {
        let installation = Installation::new().await;
        let cvm = installation.create("tenant-app").await;
        installation.settle(&cvm, CvmStatus::Running).await;
        let mut provision = installation.provision("tenant-app-2").await;
        provision["vm_uuid"] = cvm["vm_uuid"].clone();
        let own = json!({"name": "laptop", "public_key": SSH_KEY});
        let ssh_key = installation.call("POST", "/user/ssh-keys", own).await.expect(201).json()["id"].clone();
        provision["ssh_key"] = ssh_key.clone();
        let other = installation.call("POST", "/tokens", json!({"name": "other"})).await.expect(201).json();
        let is_admin = rule.path.starts_with("/admin/");
        let chain = if is_admin { INSTALLATION } else { installation.tenant_workspace };
        let before = installation.audit_records(chain).await.len();
        let path = rule
            .path
            .replace("{cvm_id}", cvm["vm_uuid"].as_str().unwrap())
            .replace("{vm_uuid}", cvm["vm_uuid"].as_str().unwrap())
            .replace("{token_id}", other["id"].as_str().unwrap())
            .replace("{key_id}", ssh_key.as_str().unwrap())
            .replace("{node}", "local")
            .replace("{username}", "tenant")
            .replace("{app_id}", cvm["app_id"].as_str().unwrap())
            .replace("{revision_id}", &cloister_management_api::RevisionId(1).to_string())
            .replace("{os_image_hash}", &"05".repeat(32))
            .replace("{compose_hash}", &"11".repeat(32))
            .replace("{reference}", "cloister.local/x:1")
            .replace(['{', '}'], "");
        let body = match rule.operation {
            "create_ssh_key" => json!({"name": "two", "public_key": SSH_KEY.replace("AAAC", "AAAD")}),
            "set_cvm_ports" => json!({"ports": []}),
            operation => body(operation, &provision),
        };
        let key = if is_admin { &installation.admin } else { &installation.tenant };
        let headers = [("x-api-key", key.as_str()), ("x-request-id", "the-request")];
        let answer = installation.call_with(&headers, rule.method, &path, body).await;
        let new = installation.audit_records(chain).await.split_off(before);
        for record in &new {
            assert_eq!(record.operation, rule.operation);
            assert_eq!(record.request_id.as_deref(), Some("the-request"));
            assert_eq!(record.actor.name.as_deref(), Some(if is_admin { "operator" } else { "tenant" }));
            assert!(!record.target.id.is_empty(), "{record:?}");
            assert!(record.before != record.after, "{record:?}");
        }
        let told: Vec<_> = new.iter().map(|record| record.target.kind.clone()).collect();
        writeln!(table, "{} | {} | {}", rule.operation, answer.summary(), told.join(", ")).unwrap();
        let refused = answer.status.is_client_error() || answer.status.is_server_error();
        assert!(!refused || new.is_empty(), "{} {}", rule.operation, answer.text);
    }
    insta::assert_snapshot!(table);
}

#[tokio::test]
async fn a_log_is_listed_exported_and_verified() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app").await;
    installation.settle(&vm, CvmStatus::Running).await;
    let path = format!("/cvms/{}", vm["vm_uuid"].as_str().unwrap());
    installation.call("PATCH", &format!("{path}/name"), json!({"name": "new-name"})).await.expect(204);
    installation.call("POST", &format!("{path}/stop"), Value::Null).await.expect(200);
    // Under way already: nothing changes.
    installation.call("POST", &format!("{path}/stop"), Value::Null).await.expect(200);
    let head = installation.audit_head().await;
    let public = UnparsedPublicKey::new(&ED25519, hex::decode(&head.key).unwrap());
    public.verify(&head.message(), &hex::decode(&head.signature).unwrap()).unwrap();
    let records = verified(&installation.audit_lines().await, &head);
    let operations: Vec<_> = records.iter().map(|record| record.operation.as_str()).collect();
    assert_eq!(operations, ["provision_app", "create_cvm", "rename_cvm", "stop_cvm"]);
    assert_eq!(head.sequence, 4);

    let list = async |query: &str| {
        let found = installation.call("GET", &format!("/workspace/audit{query}"), Value::Null).await;
        found.expect(200).json()
    };
    let sequences = |page: &Value| -> Vec<i64> {
        page["items"].as_array().unwrap().iter().map(|item| item["sequence"].as_i64().unwrap()).collect()
    };
    let first = list("?limit=3").await;
    assert_eq!(sequences(&first), [4, 3, 2]);
    let second = list(&format!("?limit=3&cursor={}", first["next_cursor"].as_str().unwrap())).await;
    assert_eq!((sequences(&second), &second["next_cursor"]), (vec![1], &Value::Null));
    let target = vm["vm_uuid"].as_str().unwrap();
    for (query, expected) in [
        (format!("?target={target}"), vec![4, 3, 2]),
        ("?operation=rename_cvm".to_owned(), vec![3]),
        ("?actor=tenant&limit=1".to_owned(), vec![4]),
        (format!("?actor={}", records[0].actor.key_id.unwrap()), vec![4, 3, 2, 1]),
        ("?actor=system".to_owned(), vec![]),
        ("?start_time=2026-01-21T10:00:00Z&end_time=2026-01-21T10:00:00".to_owned(), vec![4, 3, 2, 1]),
        ("?start_time=2027-01-01T00:00:00Z".to_owned(), vec![]),
    ] {
        assert_eq!(sequences(&list(&query).await), expected, "{query}");
    }
    for query in ["?limit=0", "?limit=501", "?cursor=x", "?cursor=-1", "?start_time=x", "?target=%00"] {
        let answer = installation.call("GET", &format!("/workspace/audit{query}"), Value::Null).await;
        assert_eq!(answer.summary(), "422 validation", "{query}");
    }
    // Nobody reads it by reading it into the log.
    assert_eq!(installation.audit_head().await.sequence, 4);
}

#[tokio::test]
async fn logs_are_apart() {
    let installation = Installation::new().await;
    installation.create("my-app").await;
    let admin = [("x-api-key", installation.admin.as_str())];
    let own = installation.call_with(&admin, "GET", "/workspace/audit", Value::Null).await.expect(200).json();
    assert_eq!(own["items"], json!([]));
    let body = json!({"maintenance": true});
    installation.call_with(&admin, "POST", "/admin/nodes/local/maintenance", body).await.expect(200);
    let all = installation.call_with(&admin, "GET", "/admin/audit", Value::Null).await.expect(200).json();
    let first = &all["items"][0];
    assert_eq!(
        (&first["workspace"], &first["target"]),
        (&Value::Null, &json!({"kind": "node", "id": "local"}))
    );
    let text =
        installation.call_with(&admin, "GET", "/admin/audit/export", Value::Null).await.expect(200).text;
    assert_eq!(text.lines().count(), 1);
    let head = installation.call_with(&admin, "GET", "/admin/audit/head", Value::Null).await.expect(200);
    verified(&[text.trim_end().to_owned()], &serde_json::from_value(head.json()).unwrap());
    for path in ["/admin/audit", "/admin/audit/export", "/admin/audit/head"] {
        installation.call("GET", path, Value::Null).await.expect(403);
    }
}

#[tokio::test]
async fn a_long_export_comes_in_pieces_and_only_so_many_at_a_time() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app").await;
    let path = format!("/cvms/{}/name", vm["vm_uuid"].as_str().unwrap());
    for round in 0..450 {
        installation.call("PATCH", &path, json!({"name": format!("name-{round}")})).await.expect(204);
    }
    let begin = || {
        let request = Request::builder().uri("/api/v1/workspace/audit/export");
        let request = request.header("x-api-key", &installation.tenant).body(Body::empty()).unwrap();
        tower::ServiceExt::oneshot(installation.router.clone(), request)
    };
    let (first, second) = (begin().await.unwrap(), begin().await.unwrap());
    assert_eq!(begin().await.unwrap().status(), 429);
    let head = installation.audit_head().await;
    // What is recorded while an export is under way belongs to the next one.
    installation.call("PATCH", &path, json!({"name": "last-name"})).await.expect(204);
    drop(second);
    let lines: Vec<String> = Answer::read(first).await.text.lines().map(str::to_owned).collect();
    assert_eq!(verified(&lines, &head).len(), 452);
    let rest = installation.call("GET", "/workspace/audit/export?after=450", Value::Null).await.expect(200);
    assert_eq!(rest.text.lines().count(), 3);
    installation.call("GET", "/workspace/audit/export?after=-1", Value::Null).await.expect(422);
}

/// The program of `docs/audit.md`, as a stranger would run it.
#[tokio::test]
async fn a_stranger_verifies_with_the_program_of_the_documentation() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3");
        return;
    }
    let page = include_str!("../../../../../docs/audit.md");
    let program = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let installation = Installation::new().await;
    let request = installation.call("POST", "/tokens", json!({"name": "ä \"quoted\" \\ λ"})).await;
    request.expect(201);
    installation.create("my-app").await;
    let (lines, head) = (installation.audit_lines().await, installation.audit_head().await);
    let dir = tempfile::tempdir().unwrap();
    let run = |lines: &[String], head: &AuditHead| {
        let (log, kept) = (dir.path().join("log.jsonl"), dir.path().join("head.json"));
        std::fs::write(&log, lines.join("\n") + "\n").unwrap();
        std::fs::write(&kept, serde_json::to_string(head).unwrap()).unwrap();
        let ran = Command::new("python3").arg("-c").arg(program).args([&log, &kept]).output().unwrap();
        (ran.status.success(), String::from_utf8(ran.stderr).unwrap())
    };
    assert_eq!(run(&lines, &head), (true, String::new()));
    assert_eq!(lines.len(), 3);
    let mut changed = lines.clone();
    changed[1] = changed[1].replacen("provision_app", "provision_apq", 1);
    assert!(run(&changed, &head).1.contains("record 2 was changed"));
    assert!(run(&lines[1..], &head).1.contains("record 1 is missing"));
    assert!(run(&lines[..2], &head).1.contains("does not pass through the head"));
}
