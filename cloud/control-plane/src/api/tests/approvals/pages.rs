//! What is told about updates that wait: to the workspace, and to people with a token.

use super::super::account;
use super::*;

#[tokio::test]
async fn updates_that_are_allowed_and_not_applied_are_listed() {
    for governed in Governed::both().await {
        let path = format!("/apps/{}/pending-updates", governed.app_id);
        let list = async || governed.installation.call("GET", &path, Value::Null).await;
        let hashes = async || {
            let items = list().await.expect(200).json()["items"].clone();
            items.as_array().unwrap().iter().map(|item| item["compose_hash"].clone()).collect::<Vec<_>>()
        };
        let prepared = governed.prepare(YAML).await;
        let provision = json!({"name": "my-app", "docker_compose_file": OTHER_YAML});
        let provision = governed.call("POST", "/compose_file/provision", provision).await.expect(200).json();
        let provisioned: ComposeHash = provision["compose_hash"].as_str().unwrap().parse().unwrap();
        assert!(hashes().await.is_empty(), "nobody allowed anything");
        governed.contracts.add_hash(governed.app_id, provisioned);
        assert_eq!(hashes().await, [json!(provisioned.to_string())]);
        governed.contracts.add_hash(governed.app_id, prepared.hash);
        assert_eq!(hashes().await.len(), 2);
        let items = list().await.json()["items"].clone();
        assert_eq!(items[0]["vm_uuid"], governed.vm["vm_uuid"]);
        assert_eq!((&items[0]["on_chain"], &items[0]["instance_name"]), (&json!(true), &json!("my-app")));

        for (hash, image) in [(prepared.hash, "nginx:2"), (provisioned, "nginx:3")] {
            let path = format!("{path}/{}/{hash}/preview", governed.vm["vm_uuid"].as_str().unwrap());
            let preview = governed.installation.call("GET", &path, Value::Null).await.expect(200).json();
            assert!(preview["current_docker_compose"].as_str().unwrap().contains("nginx:1"));
            assert!(preview["pending_docker_compose"].as_str().unwrap().contains(image));
        }
        let missing =
            format!("{path}/{}/{}/preview", governed.vm["vm_uuid"].as_str().unwrap(), "11".repeat(32));
        assert_eq!(governed.installation.call("GET", &missing, Value::Null).await.summary(), "404 plain");
        governed.contracts.set_down(Some("away"));
        assert_eq!(list().await.summary(), "503 plain");
        governed.contracts.set_down(None);

        governed.commit("update", json!({"token": prepared.token})).await.expect(202);
        governed.installation.carry_out(&governed.vm).await;
        assert_eq!(hashes().await, [json!(provisioned.to_string())]);
        let body = json!({"compose_hash": provisioned.to_string()});
        governed.call("PATCH", "/compose_file", body).await.expect(202);
        governed.installation.carry_out(&governed.vm).await;
        assert!(hashes().await.is_empty(), "everything was applied");

        let (store, now_ms) = (&governed.installation.app.store, governed.installation.app.clock.now_ms());
        let (_, _, stranger) = account(store, "stranger", "user", 7, now_ms).await;
        let foreign = [("x-api-key", stranger.as_str())];
        let answer = governed.installation.call_with(&foreign, "GET", &path, Value::Null).await;
        assert_eq!(answer.summary(), "404 plain");
    }
}

#[tokio::test]
async fn a_page_for_people_comes_alone_and_knows_nothing() {
    let governed = Governed::on(Installation::new().await).await;
    let get = async |path: &str| {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        governed.installation.send(request).await.expect(200)
    };
    let vm = governed.vm["vm_uuid"].as_str().unwrap();
    let mut pages = Vec::new();
    for path in
        [format!("/commit-update/{vm}"), format!("/commit-replica/{vm}"), "/commit-update/none".to_owned()]
    {
        let page = get(&path).await;
        assert!(page.header("content-type").starts_with("text/html"));
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(
            (page.header("referrer-policy"), page.header("x-content-type-options")),
            ("no-referrer", "nosniff")
        );
        for inline in ["<script>", "<style>", " style=", " onclick=", "http://", "https://"] {
            assert!(!page.text.contains(inline), "{inline}");
        }
        pages.push(page.text);
    }
    pages.dedup();
    assert_eq!(pages.len(), 1, "the page does not depend on what exists");
    let script = get("/commit.js").await;
    assert!(script.header("content-type").starts_with("text/javascript"));
    assert!(!script.text.contains("innerHTML"));
    assert!(get("/page.css").await.header("content-type").starts_with("text/css"));
}

#[tokio::test]
async fn commits_are_small() {
    let governed = Governed::on(Installation::new().await).await;
    let body = json!({"token": "x".repeat(8 * 1024)});
    assert_eq!(governed.commit("update", body).await.status, 413);
}
