//! CVMs read and changed.

use serde_json::{Value, json};

use super::Installation;
use crate::api::signed_url::Signer;
use crate::operations::CvmStatus;
use crate::store::ObservedVm;

const VERSIONS: [&str; 4] = ["2025-10-28", "2026-01-21", "2026-05-22", "2026-06-23"];

#[tokio::test]
async fn the_forms_of_a_cvm() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let path = format!("/cvms/{}", vm["id"]);
    for version in ["2025-10-28", "2026-01-21"] {
        for (what, path) in [("detail", path.as_str()), ("list", "/cvms"), ("page", "/cvms/paginated")] {
            let value = super::stable(installation.get_in(version, path).await.expect(200).json());
            insta::assert_json_snapshot!(format!("{what}_{version}"), value);
        }
    }
}

#[tokio::test]
async fn every_form_of_identifier_finds_the_cvm() {
    let installation = Installation::new().await;
    let vm = installation.create("My-App-01").await;
    let row = installation.row(&vm).await;
    let instance = "ab".repeat(20);
    let mut change = installation.app.store.change().await.unwrap();
    let seen = ObservedVm { instance_id: Some(instance.parse().unwrap()), ..ObservedVm::default() };
    change.observe_cvm(row.id, &seen, 0).await.unwrap();
    change.commit().await.unwrap();
    for id in [
        row.id.to_string(),
        cloister_management_api::CvmId(row.id).to_string(),
        row.vm_uuid.to_string(),
        row.vm_uuid.simple().to_string().to_uppercase(),
        row.app_id.to_string(),
        format!("0x{}", row.app_id),
        format!("app_{}", row.app_id),
        instance.clone(),
        format!("app_{instance}"),
        format!("instance_{instance}"),
        "my-app-01".to_owned(),
    ] {
        let answer = installation.call("GET", &format!("/cvms/{id}"), Value::Null).await.expect(200);
        assert_eq!(answer.json()["vm_uuid"], vm["vm_uuid"], "{id}");
    }
    for id in ["99", "nobody", "cvm_x", &"00".repeat(20), "%20", "%ff"] {
        let answer = installation.call("GET", &format!("/cvms/{id}"), Value::Null).await;
        assert_eq!(answer.status, 404, "{id}: {}", answer.text);
    }
}

#[tokio::test]
async fn power_is_switched_one_operation_at_a_time() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let act = async |what: &str| {
        installation.call("POST", &format!("/cvms/{}/{what}", vm["id"]), Value::Null).await
    };
    let busy = act("restart").await;
    assert_eq!(busy.summary(), "409 plain");
    assert_eq!(busy.header("retry-after"), "5");
    installation.settle(&vm, CvmStatus::Running).await;
    assert_eq!(act("start").await.expect(200).json()["status"], "running", "it runs already");
    for (what, during, after) in [
        ("shutdown", "shutting_down", CvmStatus::Stopped),
        ("start", "starting", CvmStatus::Running),
        ("restart", "restarting", CvmStatus::Running),
        ("stop", "stopping", CvmStatus::Stopped),
    ] {
        assert_eq!(act(what).await.expect(200).json()["status"], during);
        installation.settle(&vm, after).await;
    }
    let path = format!("/cvms/{}", vm["id"]);
    let deleted = installation.call("DELETE", &path, Value::Null).await.expect(204);
    assert!(deleted.text.is_empty() && deleted.header("content-type").is_empty());
    assert_eq!(installation.call("GET", &path, Value::Null).await.expect(200).json()["status"], "removing");
}

#[tokio::test]
async fn an_empty_body_with_a_json_type_is_no_body() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let path = format!("/cvms/{}/restart", vm["id"]);
    for (body, status) in [
        (Value::Null, 200),
        (json!({}), 200),
        (json!({"force": 1, "id": 3}), 200),
        (json!({"force": "yes"}), 422),
    ] {
        installation.settle(&vm, CvmStatus::Running).await;
        installation.call("POST", &path, body).await.expect(status);
        if status != 200 {
            break;
        }
    }
}

#[tokio::test]
async fn a_cvm_that_cannot_do_it_says_so_for_good() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    installation.settle(&vm, CvmStatus::Error).await;
    let answer = installation.call("POST", &format!("/cvms/{}/start", vm["id"]), Value::Null).await;
    answer.expect(200);
    installation.report(&super::report(65536, true)).await;
    installation.settle(&vm, CvmStatus::Stopped).await;
    let answer = installation.call("POST", &format!("/cvms/{}/start", vm["id"]), Value::Null).await;
    assert_eq!(answer.summary(), "503 plain");
    assert!(!answer.header("retry-after").is_empty());
}

#[tokio::test]
async fn the_compose_document_as_json_and_as_it_was_hashed() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let row = installation.row(&vm).await;
    let path = format!("/cvms/{}/compose_file", vm["id"]);
    let answer = installation.call("GET", &path, Value::Null).await.expect(200);
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.json()["storage_fs"], "zfs");
    for raw in ["raw=true", "raw=1", "raw"] {
        let answer = installation.call("GET", &format!("{path}?{raw}"), Value::Null).await.expect(200);
        assert_eq!(answer.text, row.app_compose);
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    }
    let answer = installation.call("GET", &format!("{path}?raw=false"), Value::Null).await;
    assert_eq!(answer.header("content-type"), "application/json");
}

#[tokio::test]
async fn the_history_by_page_kind_and_time() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let path = format!("/cvms/{}/operations", vm["id"]);
    for (what, after) in [("shutdown", CvmStatus::Stopped), ("start", CvmStatus::Running)] {
        installation
            .settle(&vm, if what == "shutdown" { CvmStatus::Running } else { CvmStatus::Stopped })
            .await;
        installation.app.clock.advance_ms(1000);
        installation.call("POST", &format!("/cvms/{}/{what}", vm["id"]), Value::Null).await.expect(200);
        let _ = after;
    }
    let get = async |query: &str| {
        installation.call("GET", &format!("{path}?{query}"), Value::Null).await.expect(200).json()
    };
    let all = get("").await;
    let kinds: Vec<_> =
        all["items"].as_array().unwrap().iter().map(|item| item["operation_type"].clone()).collect();
    assert_eq!(kinds, ["power_on", "shutdown", "create"]);
    assert_eq!(all["total"], 3);
    insta::assert_json_snapshot!(super::stable(all["items"][0].clone()));

    let first = get("limit=2").await;
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    let rest = get(&format!("limit=2&cursor={}", first["next_cursor"].as_str().unwrap())).await;
    assert_eq!(rest["items"][0]["operation_type"], "create");
    assert_eq!(rest["next_cursor"], Value::Null);
    let other = installation.create("my-app-02").await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let altered = cursor.replace(&cursor[..1], if cursor.starts_with('A') { "B" } else { "A" });
    for (cvm, cursor) in [(&other, cursor), (&vm, altered.as_str()), (&vm, &cursor[1..])] {
        let path = format!("/cvms/{}/operations?cursor={cursor}", cvm["id"]);
        let refused = installation.call("GET", &path, Value::Null).await;
        assert_eq!(refused.summary(), "422 validation", "{cursor}");
    }
    for (query, count) in [
        ("operation_types=create&operation_types=shutdown", 2),
        ("operation_types=unheard_of", 0),
        ("start_time=2026-01-21T10:00:01", 2),
        ("end_time=2026-01-21T10:00:00Z", 1),
    ] {
        assert_eq!(get(query).await["items"].as_array().unwrap().len(), count, "{query}");
    }
}

#[tokio::test]
async fn cancelling() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let path = format!("/cvms/{}/operations/cancel", vm["id"]);
    let answer = installation.call("POST", &path, Value::Null).await.expect(200).json();
    assert_eq!(answer["cancelled"], true);
    assert_eq!(answer["correlation_id"], json!(installation.row(&vm).await.operation_id));
    installation.settle(&vm, CvmStatus::Running).await;
    let answer = installation.call("POST", &path, Value::Null).await.expect(200).json();
    assert_eq!(answer, json!({"cancelled": false, "correlation_id": null}));
    installation.call("DELETE", &format!("/cvms/{}", vm["id"]), Value::Null).await.expect(204);
    assert_eq!(installation.call("POST", &path, Value::Null).await.summary(), "409 plain");
}

#[tokio::test]
async fn statuses_of_many_and_of_the_operation() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let uuid = vm["vm_uuid"].as_str().unwrap();
    let plain = uuid.replace('-', "");
    let body = json!({"vm_uuids": [uuid, plain, "nonsense", "00000000-0000-4000-8000-000000000000"]});
    let answer = installation.call("POST", "/status/batch", body).await.expect(200).json();
    assert_eq!(answer.as_object().unwrap().keys().collect::<Vec<_>>().len(), 2);
    assert_eq!(answer[&plain]["operation_type"], "create");
    let body = json!({"vm_uuids": vec!["x"; 101]});
    assert_eq!(installation.call("POST", "/status/batch", body).await.summary(), "422 validation");

    let path = format!("/cvms/{}/operation-status", vm["id"]);
    assert_eq!(installation.call("GET", &path, Value::Null).await.expect(200).json()["status"], "creating");
    installation.settle(&vm, CvmStatus::Running).await;
    assert_eq!(installation.call("GET", &path, Value::Null).await.expect(200).json()["status"], "idle");
}

#[tokio::test]
async fn a_guest_that_does_not_answer_is_described() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    installation.settle(&vm, CvmStatus::Running).await;
    let path = format!("/cvms/{}/composition", vm["id"]);
    insta::assert_json_snapshot!(installation.call("GET", &path, Value::Null).await.expect(200).json());
}

#[tokio::test]
async fn log_urls_work_only_with_their_signature() {
    let installation = Installation::new().await;
    let vm = installation.create("my-app-01").await;
    let detail = installation.get_in("2025-10-28", &format!("/cvms/{}", vm["id"])).await.json();
    let url = detail["syslog_endpoint"].as_str().unwrap();
    let path = url.strip_prefix("https://cloud.example/api/v1").unwrap();
    let get = async |path: &str| installation.call_with(&[], "GET", path, Value::Null).await;
    // The node of this test does not listen: the request got that far.
    assert_eq!(get(&format!("{path}&ch=serial")).await.summary(), "502 plain");
    assert_eq!(get(&format!("{path}&ch=stdout")).await.summary(), "502 plain");
    assert_eq!(get(&format!("{path}&ch=other")).await.summary(), "404 plain");
    assert_eq!(get(path.split('?').next().unwrap()).await.summary(), "403 plain");
    assert_eq!(get(&path.replace("signature=", "signature=0")).await.summary(), "403 plain");
    assert_eq!(get(&path.replace('?', "/web?")).await.summary(), "403 plain", "another log of the CVM");
    let (app, vm) = (&installation.app, vm["vm_uuid"].as_str().unwrap().parse().unwrap());
    let signer = Signer::new(&app.log_url_key, &app.public_url, app.clock.now_ms());
    for (container, expected) in [("web", "502 plain"), ("../web", "404 plain")] {
        let url = signer.container_log(vm, container).replace("https://cloud.example/api/v1", "");
        assert_eq!(get(&url).await.summary(), expected, "{container}");
        assert_eq!(get(&url.replacen("web", "db", 1)).await.summary(), "403 plain");
    }
    installation.app.clock.advance_ms(60 * 60 * 1000);
    assert_eq!(get(&format!("{path}&ch=serial")).await.summary(), "403 plain");
}

#[tokio::test]
async fn pages_follow_each_other_in_every_version() {
    let installation = Installation::new().await;
    for index in 0..5 {
        installation.create(&format!("my-app-0{index}")).await;
    }
    for version in VERSIONS {
        let get = async |page: u32| {
            let path = format!("/cvms/paginated?page={page}&page_size=2");
            installation.get_in(version, &path).await.expect(200).json()
        };
        let mut names = Vec::new();
        for page in 1..=4 {
            let answer = get(page).await;
            assert_eq!((&answer["total"], &answer["pages"]), (&json!(5), &json!(3)));
            names.extend(answer["items"].as_array().unwrap().iter().map(|item| item["name"].clone()));
        }
        assert_eq!(names, ["my-app-04", "my-app-03", "my-app-02", "my-app-01", "my-app-00"], "{version}");
    }
}
