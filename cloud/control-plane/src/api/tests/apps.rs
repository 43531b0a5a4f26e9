//! Applications as members of their workspace and others see them.

use serde_json::{Value, json};

use super::{Installation, stable};
use crate::operations::{CvmStatus, OperationKind};
use crate::store::NewCvm;

/// Two applications, of which the first has two CVMs; the CVMs, oldest first.
async fn scene(installation: &Installation) -> [Value; 3] {
    let first = installation.create("web-app-01").await;
    let other = installation.create("worker-01").await;
    let row = installation.row(&first).await;
    let new = NewCvm {
        workspace_id: row.workspace_id,
        user_id: row.user_id,
        node_id: row.node_id,
        vm_uuid: installation.app.random.uuid().unwrap(),
        name: "web-app-02".into(),
        app_id: row.app_id,
        kms_id: row.kms_id,
        listed: 0,
        configuration: row.configuration(),
    };
    let mut change = installation.app.store.change().await.unwrap();
    let replica =
        installation.app.lifecycle.insert(&mut change, &new, OperationKind::Replicate).await.unwrap();
    change.commit().await.unwrap();
    installation.settle(&first, CvmStatus::Running).await;
    [first, other, json!({"id": replica.id, "app_id": row.app_id.to_string()})]
}

fn names(page: &Value) -> Vec<&str> {
    page["dstack_apps"].as_array().unwrap().iter().map(|app| app["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn both_versions_show_all_that_clients_need() {
    let installation = Installation::new().await;
    let [first, ..] = scene(&installation).await;
    let path = format!("/apps/{}", first["app_id"].as_str().unwrap());
    let basic = installation.get_in("2025-10-28", &path).await.expect(200).json();
    insta::assert_json_snapshot!(stable(basic));
    let full = installation.get_in("2026-01-21", &path).await.expect(200).json();
    assert_eq!(full["current_cvm"]["name"], "web-app-01", "the one that is up");
    assert_eq!(full["cvms"][0]["node_info"]["object_type"], "node");
    assert_eq!((&full["cvm_count"], full.get("team_slug")), (&json!(2), None));

    let page = installation.get_in("2026-01-21", "/apps").await.expect(200).json();
    assert_eq!(names(&page), ["web-app-02", "worker-01"]);
    assert_eq!(
        (&page["total"], &page["total_pages"], &page["page_size"]),
        (&json!(2), &json!(1), &json!(20))
    );
    assert_eq!(page["dstack_apps"][0], full);
    let cvms = installation.get_in("2026-01-21", &format!("{path}/cvms")).await.expect(200).json();
    assert_eq!(cvms, full["cvms"]);
    let hosted = installation.get_in("2025-10-28", &format!("{path}/cvms")).await.expect(200).json();
    assert_eq!(hosted[1]["hosted"]["name"], "web-app-01");
}

#[tokio::test]
async fn filters_and_pages() {
    let installation = Installation::new().await;
    let [first, ..] = scene(&installation).await;
    let app_id = first["app_id"].as_str().unwrap();
    let get = async |query: &str| installation.get_in("2026-01-21", &format!("/apps?{query}")).await;
    for (query, expected) in [
        ("search=WORK".to_owned(), vec!["worker-01"]),
        ("search=web-app-01".to_owned(), vec!["web-app-02"]),
        (format!("search=app_{app_id}"), vec!["web-app-02"]),
        ("search=100%25".to_owned(), vec![]),
        ("status=running&status=stopped".to_owned(), vec!["web-app-02"]),
        ("listed=true".to_owned(), vec!["worker-01", "web-app-02"]),
        ("listed=0&search=".to_owned(), vec!["web-app-02"]),
        ("node=local&region=HOME&base_image=cloister-0.1.0".to_owned(), vec!["web-app-02", "worker-01"]),
        ("instance_type=tdx.small".to_owned(), vec!["web-app-02", "worker-01"]),
        ("node=other".to_owned(), vec![]),
        ("region=mars".to_owned(), vec![]),
        ("kms_type=phala".to_owned(), vec![]),
        ("kms_slug=x".to_owned(), vec![]),
        ("page=2&page_size=1".to_owned(), vec!["worker-01"]),
        ("page=3&page_size=1".to_owned(), vec![]),
    ] {
        let page = get(&query).await.expect(200).json();
        assert_eq!(names(&page), expected, "{query}");
    }
    let last = get("page=3&page_size=1").await.json();
    assert_eq!((&last["total"], &last["total_pages"]), (&json!(2), &json!(2)));
    for bad in ["page=0", "page_size=101", "page=x", "listed=maybe"] {
        assert_eq!(get(bad).await.summary(), "422 validation", "{bad}");
    }
    let options = installation.call("GET", "/apps/filter-options", Value::Null).await.expect(200).json();
    insta::assert_json_snapshot!(options);
}

#[tokio::test]
async fn others_see_that_a_listed_app_is_there_and_nothing_else() {
    let installation = Installation::new().await;
    let [first, ..] = scene(&installation).await;
    let path = format!("/apps/{}", first["app_id"].as_str().unwrap());
    let other = [("x-api-key", installation.admin.as_str())];
    let get = async |path: &str| installation.call_with(&other, "GET", path, Value::Null).await;
    let seen = get(&path).await.expect(200).json();
    let members = seen.as_object().unwrap();
    assert_eq!((members.len(), &members["app_id"]), (11, &first["app_id"]));
    assert_eq!(members.values().filter(|value| value.is_null()).count(), 10);
    assert_eq!(get(&format!("{path}/cvms")).await.summary(), "404 plain");
    assert_eq!(get("/apps").await.expect(200).json()["total"], 0);
    let nothing = get("/apps/filter-options").await.expect(200).json();
    assert!(nothing.as_object().unwrap().values().all(|value| value == &json!([])), "{nothing}");

    let mut change = installation.app.store.change().await.unwrap();
    let row = installation.row(&first).await;
    change.delete_cvm(&row, 0).await.unwrap();
    change.commit().await.unwrap();
    assert_eq!(get(&path).await.summary(), "404 plain", "the CVM that was listed is gone");
    for unknown in ["/apps/x", "/apps/app_0", &format!("/apps/{}", "00".repeat(20))] {
        assert_eq!(installation.call("GET", unknown, Value::Null).await.summary(), "404 plain", "{unknown}");
    }
}

#[tokio::test]
async fn a_workspace_has_no_limits_of_its_own() {
    let installation = Installation::new().await;
    let quotas = installation.call("GET", "/workspaces/tenant/quotas", Value::Null).await.expect(200).json();
    insta::assert_json_snapshot!(quotas);
    let foreign = installation.call("GET", "/workspaces/operator/quotas", Value::Null).await;
    assert_eq!(foreign.summary(), "404 plain");
}
