//! Other compose documents.

use cloister_app_compose::{ComposeHash, MAX_COMBINED_BYTES, canonical};
use serde_json::{Value, json};

use super::{DAY_MS, Site, YAML, form};
use crate::api::tests::Installation;
use crate::operations::CvmStatus;
use crate::operations::Step;
use crate::operations::tests::fake_nodes::Fault;

/// A whole document for the CVM.
fn document(image: &str) -> Value {
    json!({"name": "", "docker_compose_file": format!("services: {{web: {{image: {image}}}}}"), "x_own": [1, null]})
}

async fn provision(site: &Site, document: Value) -> Value {
    site.call("POST", "/compose_file/provision", document).await.expect(200).json()
}

async fn apply_and_look(site: &Site) {
    let before = site.raw().await;
    let first = provision(site, document("nginx:2")).await;
    let second = provision(site, document("nginx:3")).await;
    assert_ne!(first["compose_hash"], second["compose_hash"]);
    assert_eq!(first["app_id"], site.vm["app_id"]);
    assert_eq!((&first["device_id"], &first["kms_info"]), (&Value::Null, &Value::Null));
    assert_eq!(first["compose_hash_registered"], true);
    assert_eq!(site.raw().await, before, "nothing is touched yet");

    let hash = format!("0x{}", first["compose_hash"].as_str().unwrap());
    let accepted = site.patch("/compose_file", json!({"compose_hash": hash, "encrypted_env": null})).await;
    let accepted = accepted.expect(202).json();
    assert_eq!(accepted["status"], "in_progress");
    let row = site.at_rest(CvmStatus::Running).await;
    assert_eq!(json!(row.compose_hash.to_string()), first["compose_hash"]);
    assert_eq!(site.nodes.spec_of(row.vm_uuid).unwrap().app_compose, site.raw().await);
    assert_eq!(site.document().await["x_own"], json!([1, null]));
    assert_eq!(site.document().await["name"], "my-app-01");
    assert_eq!(site.history().await[0], "compose_update completed");
    assert_eq!(site.nodes.power_ons(), 2);

    // The other one waits still.
    site.patch("/compose_file", json!({"compose_hash": second["compose_hash"]})).await.expect(202);
    site.at_rest(CvmStatus::Running).await;
    assert!(site.raw().await.contains("nginx:3"));
}

#[tokio::test]
async fn a_provisioned_document_is_applied_by_its_hash() {
    apply_and_look(&Site::new().await).await;
}

#[tokio::test]
async fn it_is_on_postgresql_too() {
    let site = Site::on(Installation::on_postgres().await).await;
    apply_and_look(&site).await;
    site.patch("/name", json!({"name": "other-name"})).await.expect(204);
    let body = json!({"scheduled_delete_at": "2026-02-01T00:00:00Z"});
    site.patch("/scheduled-delete", body).await.expect(200);
    site.patch("", json!({"vcpu": 4, "health_timeout": 60})).await.expect(202);
    let row = site.at_rest(CvmStatus::Running).await;
    assert_eq!((row.name.as_str(), row.vcpu, row.health_timeout_s), ("other-name", 4, 60));
    site.installation.app.clock.advance_ms(30 * DAY_MS);
    assert_eq!(crate::scheduled_deletes::begin_due(&site.installation.app).await.unwrap(), 1);
    assert_eq!(crate::scheduled_deletes::begin_due(&site.installation.app).await.unwrap(), 0);
    site.installation.app.store.close().await;
}

#[tokio::test]
async fn only_what_was_provisioned_for_the_cvm_and_has_not_expired_is_applied() {
    let site = Site::new().await;
    let provisioned = provision(&site, document("nginx:2")).await;
    let other = site.installation.create("my-app-02").await;
    let body = json!({"compose_hash": provisioned["compose_hash"]});
    let path = format!("/cvms/{}/compose_file", other["id"]);
    assert_eq!(site.installation.call("PATCH", &path, body.clone()).await.summary(), "400 plain");
    assert_eq!(site.patch("/compose_file", json!({})).await.summary(), "422 validation");
    let unknown = json!({"compose_hash": "00".repeat(32)});
    assert_eq!(site.patch("/compose_file", unknown).await.summary(), "400 plain");
    let foreign_name = json!({"compose_hash": provisioned["compose_hash"], "env_keys": ["A"]});
    assert_eq!(site.patch("/compose_file", foreign_name).await.summary(), "400 ERR-02-008");
    let no_keys = json!({"compose_hash": provisioned["compose_hash"], "encrypted_env": "ab".repeat(61)});
    assert_eq!(site.patch("/compose_file", no_keys).await.summary(), "400 ERR-02-009");

    site.installation.app.clock.advance_ms(13 * DAY_MS);
    provision(&site, document("nginx:2")).await;
    site.installation.app.clock.advance_ms(13 * DAY_MS);
    site.report_images().await;
    site.patch("/compose_file", body.clone()).await.expect(202);
    site.at_rest(CvmStatus::Running).await;
    site.installation.app.clock.advance_ms(DAY_MS);
    assert_eq!(site.patch("/compose_file", body).await.summary(), "400 plain", "14 days are over");
}

#[tokio::test]
async fn names_of_the_environment_come_with_the_document_or_with_its_application() {
    let site = Site::new().await;
    let mut with_names = document("nginx:2");
    with_names["allowed_envs"] = json!(["A"]);
    let provisioned = provision(&site, with_names).await;
    let body = json!({"compose_hash": provisioned["compose_hash"], "env_keys": ["A"]});
    site.patch("/compose_file", body).await.expect(202);
    site.at_rest(CvmStatus::Running).await;
    assert_eq!(site.document().await["allowed_envs"], json!(["A"]));

    // A document that does not speak of them keeps them, unless they are to be updated.
    let kept = provision(&site, document("nginx:3")).await;
    let mut without = document("nginx:3");
    without["update_env_vars"] = json!(true);
    let without = provision(&site, without).await;
    assert_ne!(kept["compose_hash"], without["compose_hash"]);
    let body = json!({"compose_hash": kept["compose_hash"], "env_keys": ["B", "C"], "update_env_vars": true});
    site.patch("/compose_file", body).await.expect(202);
    site.at_rest(CvmStatus::Running).await;
    let document = site.document().await;
    assert_eq!(document["allowed_envs"], json!(["B", "C"]));
    assert!(document.get("update_env_vars").is_none());
}

#[tokio::test]
async fn settings_that_a_document_leaves_open_stay_closed() {
    let site = Site::new().await;
    let closed = json!({"public_logs": false, "public_sysinfo": false});
    site.patch("", closed).await.expect(202);
    site.at_rest(CvmStatus::Running).await;
    let provisioned = provision(&site, document("nginx:2")).await;
    site.patch("/compose_file", json!({"compose_hash": provisioned["compose_hash"]})).await.expect(202);
    site.at_rest(CvmStatus::Running).await;
    let document = site.document().await;
    assert_eq!((&document["public_logs"], &document["public_sysinfo"]), (&json!(false), &json!(false)));
}

#[tokio::test]
async fn documents_that_are_refused() {
    let site = Site::new().await;
    let with = |member: &str, value: Value| {
        let mut document = document("nginx:2");
        document[member] = value;
        document
    };
    let service = "services: {web: {image: nginx}}\n#";
    let fits = MAX_COMBINED_BYTES - service.len() - "é".len();
    let script = |bytes: usize| json!(format!("é{}", "#".repeat(bytes)));
    let mut full = with("docker_compose_file", json!(service));
    full["pre_launch_script"] = script(fits);
    provision(&site, full.clone()).await;
    full["pre_launch_script"] = script(fits + 1);
    for (body, summary) in [
        (json!({}), "422 validation"),
        (json!([]), "422 validation"),
        (Value::Null, "422 validation"),
        (with("allowed_envs", json!("A")), "422 validation"),
        (with("update_env_vars", json!("yes")), "422 validation"),
        (json!({"name": ""}), "400 plain"),
        (with("docker_compose_file", json!(" \n")), "400 plain"),
        (with("docker_compose_file", json!("services: {")), "422 ERR-01-003"),
        (with("docker_compose_file", json!("services: {}")), "422 ERR-01-003"),
        (full, "400 ERR-01-003"),
        (with("manifest_version", json!(3)), "400 ERR-01-003"),
        (with("allowed_envs", json!(["A=B"])), "400 ERR-01-003"),
        (with("storage_fs", json!("ext4")), "400 ERR-02-009"),
        (with("kms_enabled", json!(false)), "400 ERR-02-009"),
        (with("key_provider", json!("none")), "400 ERR-02-009"),
        (with("no_instance_id", json!(true)), "400 ERR-02-009"),
    ] {
        let answer = site.call("POST", "/compose_file/provision", body).await;
        assert_eq!(answer.summary(), summary, "{}", answer.text);
    }
}

#[tokio::test]
async fn so_many_documents_wait_and_no_more() {
    let site = Site::new().await;
    let mut last = Value::Null;
    for number in 0..50 {
        last = provision(&site, document(&format!("nginx:{number}"))).await;
    }
    let more = async || site.call("POST", "/compose_file/provision", document("nginx:more")).await;
    assert_eq!(more().await.summary(), "400 ERR-02-015");
    provision(&site, document("nginx:7")).await;
    site.patch("/compose_file", json!({"compose_hash": last["compose_hash"]})).await.expect(202);
    site.at_rest(CvmStatus::Running).await;
    more().await.expect(200);
    site.call("DELETE", "", Value::Null).await.expect(204);
    let refused = more().await.summary();
    assert!(refused == "400 plain" || refused.starts_with("404"), "{refused}");
}

#[tokio::test]
async fn a_complete_document_is_taken_in_the_form_that_was_hashed() {
    let site = Site::new().await;
    let mut document = site.document().await;
    document["docker_compose_file"] = json!("services: {web: {image: nginx, labels: {\"a\": \"b\"}}}");
    document["x_own"] = json!({"z": 1, "a": [true, null]});
    let post = async |document: &Value, hash: String| {
        site.call("POST", "/compose_file", json!({"compose_file": document, "compose_hash": hash})).await
    };
    for bytes in [canonical::compact(&document), canonical::indented(&document)] {
        let hash = ComposeHash::of(&bytes);
        let accepted = post(&document, hash.to_string()).await.expect(202).json();
        assert_eq!(accepted["status"], "in_progress");
        let row = site.at_rest(CvmStatus::Running).await;
        assert_eq!((row.compose_hash, site.raw().await.as_bytes()), (hash, bytes.as_slice()));
    }
    // A later change goes on from there.
    site.patch("", json!({"public_logs": false})).await.expect(202);
    site.at_rest(CvmStatus::Running).await;
    assert_eq!(site.document().await["x_own"], document["x_own"]);

    let hash = |document: &Value| ComposeHash::of(&canonical::compact(document)).to_string();
    assert_eq!(post(&document, "00".repeat(32)).await.summary(), "400 plain");
    for (member, value, summary) in [
        ("docker_compose_file", json!("services: ["), "422 ERR-01-003"),
        ("docker_compose_file", json!(""), "400 ERR-01-002"),
        ("storage_fs", json!("ext4"), "400 ERR-02-009"),
        ("name", Value::Null, "422 validation"),
        (
            "docker_compose_file",
            json!(format!("services: {{a: {{}}}}\n#{}", "x".repeat(MAX_COMBINED_BYTES))),
            "400 ERR-01-003",
        ),
    ] {
        let mut bad = document.clone();
        bad[member] = value;
        let answer = post(&bad, hash(&bad)).await;
        assert_eq!(answer.summary(), summary, "{member}: {}", answer.text);
    }
    for body in [json!({"compose_file": document}), json!({"compose_hash": "00".repeat(32)})] {
        assert_eq!(site.call("POST", "/compose_file", body).await.summary(), "422 validation");
    }
}

#[tokio::test]
async fn the_compose_file_alone() {
    let site = Site::new().await;
    let get = async || site.call("GET", "/docker-compose.yml", Value::Null).await.expect(200);
    let before = site.document().await;
    assert_eq!(get().await.text, before["docker_compose_file"].as_str().unwrap());
    assert_eq!(get().await.header("content-type"), "text/yaml; charset=utf-8");

    let (form_type, body) = form(YAML);
    for (content_type, text, kept) in [
        ("text/yaml", "services: {a: {image: b}}\r\n# ä", "services: {a: {image: b}}\r\n# ä"),
        ("application/yaml; charset=utf-8", YAML, YAML),
        ("text/plain", "services: {c: {image: d}}", "services: {c: {image: d}}"),
        (form_type.as_str(), body.as_str(), YAML),
    ] {
        let headers = [("content-type", content_type), ("x-transaction-hash", "0x00")];
        let accepted = site.send("PATCH", "/docker-compose", &headers, text).await.expect(202).json();
        assert_eq!(accepted["status"], "in_progress", "{content_type}");
        site.at_rest(CvmStatus::Running).await;
        assert_eq!(get().await.text, kept);
    }
    let mut after = site.document().await;
    after["docker_compose_file"] = before["docker_compose_file"].clone();
    assert_eq!(after, before, "the rest stays");

    let empty_form = form("").1;
    let no_file = "--b\r\ncontent-disposition: form-data; name=\"other\"\r\n\r\nx\r\n--b--\r\n";
    let too_long = format!("{YAML}#{}", "x".repeat(MAX_COMBINED_BYTES - YAML.len()));
    for (content_type, text, summary) in [
        ("application/json", YAML, "400 plain"),
        ("application/octet-stream", YAML, "400 plain"),
        ("text/yaml", "", "400 plain"),
        ("text/yaml", " \n", "400 plain"),
        (form_type.as_str(), empty_form.as_str(), "400 plain"),
        (form_type.as_str(), no_file, "400 plain"),
        (form_type.as_str(), "no form", "400 plain"),
        ("multipart/form-data", YAML, "400 plain"),
        ("text/yaml", "services: {", "422 ERR-01-003"),
        ("text/yaml", "a: 1", "422 ERR-01-003"),
        ("text/yaml", too_long.as_str(), "400 ERR-01-003"),
    ] {
        let headers = [("content-type", content_type)];
        let answer = site.send("PATCH", "/docker-compose", &headers, text).await;
        assert_eq!(answer.summary(), summary, "{content_type}: {}", answer.text);
    }
    let huge = "x".repeat(2 * 1024 * 1024);
    let answer = site.send("PATCH", "/docker-compose", &[("content-type", "text/yaml")], &huge).await;
    assert_eq!(answer.summary(), "413 plain");
    assert_eq!(site.nodes.power_ons(), 5, "a refusal restarts nothing");
}

#[tokio::test]
async fn the_script_alone() {
    let site = Site::new().await;
    let get = async || site.call("GET", "/pre-launch-script", Value::Null).await.expect(200);
    assert_eq!(
        (get().await.text.as_str(), get().await.header("content-type")),
        ("", "text/plain; charset=utf-8")
    );
    let (form_type, body) = form("echo form\n");
    for (content_type, text, kept) in [
        ("text/plain", "echo \"a\": 1\n", "echo \"a\": 1\n"),
        ("application/x-sh", "echo b", "echo b"),
        (form_type.as_str(), body.as_str(), "echo form\n"),
    ] {
        let headers = [("content-type", content_type)];
        let accepted = site.send("PATCH", "/pre-launch-script", &headers, text).await.expect(200).json();
        assert_eq!(accepted["status"], "in_progress");
        site.at_rest(CvmStatus::Running).await;
        assert_eq!(get().await.text, kept);
    }
    let program = site.document().await["docker_compose_file"].as_str().unwrap().len();
    let (fits, too_long) =
        ("#".repeat(MAX_COMBINED_BYTES - program), "#".repeat(MAX_COMBINED_BYTES - program + 1));
    for (content_type, text, summary) in [
        ("application/json", "echo", "400 plain"),
        ("text/yaml", "echo", "400 plain"),
        ("text/plain", "", "400 plain"),
        ("text/plain", too_long.as_str(), "400 ERR-01-003"),
    ] {
        let answer = site.send("PATCH", "/pre-launch-script", &[("content-type", content_type)], text).await;
        assert_eq!(answer.summary(), summary, "{content_type}");
    }
    site.send("PATCH", "/pre-launch-script", &[("content-type", "text/plain")], &fits).await.expect(200);
    site.at_rest(CvmStatus::Running).await;
    site.patch("", json!({"pre_launch_script": ""})).await.expect(202);
    site.at_rest(CvmStatus::Running).await;
    assert!(site.document().await.get("pre_launch_script").is_none());
}

#[tokio::test]
async fn an_expected_hash_must_be_the_one_that_the_change_gives() {
    let site = Site::new().await;
    let mut expected = site.document().await;
    expected["docker_compose_file"] = json!(YAML);
    let right = ComposeHash::of(&canonical::compact(&expected)).to_string();
    let present = site.row().await.compose_hash.to_string();
    for hash in [present.as_str(), "nonsense"] {
        let headers = [("content-type", "text/yaml"), ("x-compose-hash", hash)];
        let answer = site.send("PATCH", "/docker-compose", &headers, YAML).await;
        assert_eq!(answer.summary(), "466 ERR-01-006");
        let answer =
            site.send("PATCH", "", &headers, &json!({"docker_compose_file": YAML}).to_string()).await;
        assert_eq!(answer.summary(), "466 ERR-01-006");
    }
    let right = format!("0x{}", right.to_uppercase());
    let answer = site.send("PATCH", "", &[("x-compose-hash", &right)], "{}").await;
    assert_eq!(answer.summary(), "466 ERR-01-006", "nothing was prepared under it");
    let answer = site.send("PATCH", "", &[("x-compose-hash", &present)], "").await.expect(200).json();
    assert_eq!(answer["status"], "no_change");
    let headers =
        [("content-type", "text/yaml"), ("x-compose-hash", right.as_str()), ("x-prepare-only", "true")];
    site.send("PATCH", "/docker-compose", &headers, YAML).await.expect(202);
}

#[tokio::test]
async fn visibility_is_part_of_the_document() {
    let site = Site::new().await;
    let before = site.raw().await;
    let open = json!({"public_sysinfo": true, "public_logs": true});
    let answer = site.patch("/visibility", open).await.expect(200).json();
    assert_eq!((&answer["id"], &answer["in_progress"]), (&site.vm["id"], &json!(false)), "it is so already");
    let closed = json!({"public_sysinfo": 0, "public_logs": false, "public_tcbinfo": false});
    let answer = site.patch("/visibility", closed).await.expect(200).json();
    assert_eq!((&answer["status"], &answer["in_progress"]), (&json!("updating"), &json!(true)));
    site.at_rest(CvmStatus::Running).await;
    let mut document = site.document().await;
    for member in ["public_sysinfo", "public_logs", "public_tcbinfo"] {
        assert_eq!(document[member], false, "{member}");
        document[member] = json!(true);
    }
    assert_eq!(canonical::compact(&document), before.as_bytes());
    assert_eq!(site.history().await[0], "compose_update completed");
    assert_eq!(site.patch("/visibility", json!({"public_logs": true})).await.summary(), "422 validation");
}

#[tokio::test]
async fn the_older_form() {
    let site = Site::new().await;
    let body = json!({
        "compose_manifest": {
            "docker_compose_file": YAML, "manifest_version": 1, "runner": "docker-compose", "version": "1.0.0",
            "features": ["kms"], "name": "x", "allowed_envs": ["A"],
        },
        "encrypted_env": "", "allow_restart": true, "env_keys": ["B"],
    });
    let path = format!("/cvms/app_{}/compose", site.vm["app_id"].as_str().unwrap());
    let answer = site.installation.call("PUT", &path, body.clone()).await.expect(202).json();
    assert!(answer["detail"].is_string());
    site.at_rest(CvmStatus::Running).await;
    let document = site.document().await;
    assert_eq!((&document["docker_compose_file"], &document["allowed_envs"]), (&json!(YAML), &json!(["B"])));
    assert_eq!((&document["manifest_version"], &document["features"]), (&json!(2), &json!(["kms"])));
    site.installation.call("PUT", &path, body).await.expect(200);
    let refused =
        json!({"compose_manifest": {"docker_compose_file": "services: {a: {}}"}, "allow_restart": 0});
    assert_eq!(site.installation.call("PUT", &path, refused).await.summary(), "400 ERR-02-009");
    assert_eq!(site.installation.call("PUT", &path, json!({})).await.summary(), "422 validation");
}

#[tokio::test]
async fn a_document_that_does_not_boot_is_taken_back() {
    let site = Site::new().await;
    let before = site.raw().await;
    site.nodes.set_fault(Step::PrepareDisk, Fault::Refuse("no"));
    site.patch("", json!({"docker_compose_file": YAML})).await.expect(202);
    super::within("the change failed", async || site.history().await[0].contains("failed")).await;
    site.nodes.clear_faults();
    assert_eq!(site.raw().await, before);
}
