//! What changes while a gateway runs: upstreams and files; and its end.

use std::sync::Arc;
use std::time::Instant;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Bench, KEY, PATIENCE, Reply, TOKEN, entry, reply, start};
use crate::admission::KeyHash;
use crate::run::parts::Prepared;
use crate::run::watch::Watch;
use crate::upstream::fake::until;

#[tokio::test]
async fn upstreams_are_the_operators_to_see_and_to_replace() {
    const PATH: &str = "/v1/admin/upstreams";
    let bench = Bench::plain().await;
    for path in [PATH, "/v1/metrics"] {
        assert_eq!(bench.get(path, None).await.error().1, "unauthorized");
        assert_eq!(bench.get(path, Some(KEY)).await.error().1, "forbidden");
    }
    let view = bench.get(PATH, Some(TOKEN)).await;
    assert!(!String::from_utf8_lossy(&view.body).contains("s3cret"));
    let view = view.json();
    assert_eq!(view["upstreams"][1]["bearer_token_configured"], true);
    assert_eq!(view["upstreams"][0]["bearer_token_configured"], false);
    let put = |list: Value| reply(bench.request(Method::PUT, PATH).bearer_auth(TOKEN).body(list.to_string()));
    let own = bench.config["upstreams"].clone();
    for bad in [
        json!({}),
        json!([]),
        json!([{ "name": "open" }]),
        json!([own[0], own[0]]),
        json!([entry("other", "ftp://127.0.0.1", &["vendor/model", "vendor/other"], &json!({}))]),
    ] {
        assert_eq!(put(bad.clone()).await.error().1, "invalid_upstream_config", "{bad}");
    }
    assert_eq!(bench.get(PATH, Some(TOKEN)).await.json(), view);
    let before = bench.running.gateway.live();
    let mut more = own.clone();
    let new = entry("new", "http://127.0.0.1:9", &["vendor/new"], &json!({ "bearer_token": "other-s3cret" }));
    more.as_array_mut().unwrap().push(new);
    let replaced = put(more).await;
    assert_eq!(replaced.status, StatusCode::OK, "{:?}", replaced.body);
    assert_ne!(replaced.json()["config_digest"], view["config_digest"]);
    assert!(bench.ids("/v1/models").await.contains(&"vendor/new".to_owned()));
    // What did not change keeps what is known about it.
    let after = bench.running.gateway.live();
    let route = |live: &crate::gateway::Live| Arc::clone(&live.catalogue.model("plain").unwrap().routes[0]);
    assert!(Arc::ptr_eq(&route(&before), &route(&after)));
    drop((before, after));

    // It holds after a restart, and until the file's own upstreams change.
    let file = bench.file();
    let Bench { dir, running, mut config, client, leave } = bench;
    running.stop(PATIENCE, std::future::pending()).await;
    let bench = Bench { running: start(&file).await.unwrap(), dir, config: config.clone(), client, leave };
    assert!(bench.ids("/v1/models").await.contains(&"vendor/new".to_owned()));
    config["upstreams"][0]["models"]["vendor/newest"] = json!("n");
    std::fs::write(&file, config.to_string()).unwrap();
    bench.running.reload();
    bench.listed("vendor/newest").await;
    assert!(!bench.ids("/v1/models").await.contains(&"vendor/new".to_owned()));
}

/// Replaces a list of the configuration.
async fn put(bench: &Bench, path: &str, list: &Value) -> Reply {
    reply(bench.request(Method::PUT, path).bearer_auth(TOKEN).body(list.to_string())).await
}

#[tokio::test]
async fn models_are_the_operators_to_see_and_to_replace() {
    const PATH: &str = "/v1/admin/models";
    const MODEL: &str = "/v1/models/vendor/model";
    let bench = Bench::plain().await;
    assert_eq!(bench.get(PATH, None).await.error().1, "unauthorized");
    assert_eq!(bench.get(PATH, Some(KEY)).await.error().1, "forbidden");
    let view = bench.get(PATH, Some(TOKEN)).await.json();
    let own = bench.config["models"].clone();
    assert_eq!(view["models"], own);
    let mut unknown = own.clone();
    unknown[0]["pricings"] = json!({});
    let mut unserved = own.clone();
    unserved[1]["id"] = json!("vendor/unserved");
    for (bad, said) in [
        (json!({}), "models: have to be an array"),
        (json!([own[0], own[0]]), "models: two have the same id"),
        (unknown, "models[0].pricings: unknown field `pricings`"),
        (unserved, "models[1]: no upstream serves it"),
        (json!([" ".repeat(5 << 20)]), "models[0]: has to be an object"),
    ] {
        let refused = put(&bench, PATH, &bad).await;
        assert_eq!(refused.error(), (400, "invalid_model_config".to_owned(), Value::Null));
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(said), "{message}");
    }
    // What is kept has to be readable at the next start.
    let mut long = own.clone();
    long[0]["description"] = json!("x".repeat(4 << 20));
    let refused = put(&bench, PATH, &long).await;
    assert_eq!(refused.json()["error"]["message"], "models: may have 4 MiB together");
    assert_eq!(bench.get(PATH, Some(TOKEN)).await.json(), view);

    // Another price holds at once, with the upstreams as they are.
    let mut dearer = own.clone();
    dearer[0]["pricing"]["prompt"] = json!("0.5");
    let replaced = put(&bench, PATH, &dearer).await;
    assert_eq!((replaced.status, &replaced.json()["models"]), (StatusCode::OK, &dearer));
    assert_ne!(replaced.json()["config_digest"], view["config_digest"]);
    let price = async |bench: &Bench| bench.get(MODEL, Some(KEY)).await.json()["pricing"]["prompt"].clone();
    assert_eq!(price(&bench).await, "0.5");
    // Upstreams are replaced beside it, each checked with the other.
    let upstreams = bench.config["upstreams"].clone();
    let refused = put(&bench, "/v1/admin/upstreams", &json!([upstreams[1]])).await;
    assert_eq!(refused.json()["error"]["message"], "models[1]: no upstream serves it");
    assert_eq!(put(&bench, "/v1/admin/upstreams", &json!([upstreams[0]])).await.status, StatusCode::OK);
    assert_eq!(price(&bench).await, "0.5");

    // Both hold after a restart, each until its own list of the file changes.
    let file = bench.file();
    let Bench { dir, running, mut config, client, leave } = bench;
    running.stop(PATIENCE, std::future::pending()).await;
    let bench = Bench { running: start(&file).await.unwrap(), dir, config: config.clone(), client, leave };
    assert_eq!(price(&bench).await, "0.5");
    config["upstreams"][0]["models"]["vendor/newest"] = json!("n");
    std::fs::write(&file, config.to_string()).unwrap();
    bench.running.reload();
    bench.listed("vendor/newest").await;
    assert_eq!(price(&bench).await, "0.5");
    config["models"][0]["pricing"]["prompt"] = json!("0.25");
    config["upstreams"][0]["models"]["vendor/last"] = json!("n");
    std::fs::write(&file, config.to_string()).unwrap();
    bench.running.reload();
    bench.listed("vendor/last").await;
    assert_eq!(price(&bench).await, "0.25");
    assert!(!bench.dir.path().join("state/models.json").exists());
}

/// What replaced lists is not lost to a file that does not go with it.
#[tokio::test]
async fn a_file_that_does_not_go_with_what_replaced_its_lists_changes_nothing() {
    let bench = Bench::plain().await;
    let (file, mut config) = (bench.file(), bench.config.clone());
    for (path, list) in [
        ("/v1/admin/models", json!([config["models"][0]])),
        ("/v1/admin/upstreams", json!([config["upstreams"][1]])),
    ] {
        assert_eq!(put(&bench, path, &list).await.status, StatusCode::OK);
    }
    let Bench { dir, running, .. } = bench;
    running.stop(PATIENCE, std::future::pending()).await;
    // The file's models hold again, but not with the upstreams.
    config["models"][0]["name"] = json!("Another");
    std::fs::write(&file, config.to_string()).unwrap();
    let kept = ["models", "upstreams"].map(|list| dir.path().join(format!("state/{list}.json")));
    let refused = crate::error::chain(&start(&file).await.unwrap_err());
    assert!(refused.contains("state/upstreams.json") && refused.contains("models[1]: no"), "{refused}");
    assert!(!refused.contains("state/models.json"), "{refused}");
    assert_eq!(kept.each_ref().map(|path| path.exists()), [true, true]);
    config["models"].as_array_mut().unwrap().pop();
    // Nor is it lost to a file that fails for another reason.
    config["tls"] = json!({ "certificate": dir.path().join("none"), "key": dir.path().join("none") });
    std::fs::write(&file, config.to_string()).unwrap();
    start(&file).await.unwrap_err();
    assert_eq!(kept.each_ref().map(|path| path.exists()), [true, true]);
    config.as_object_mut().unwrap().shift_remove("tls");
    std::fs::write(&file, config.to_string()).unwrap();
    start(&file).await.unwrap().stop(PATIENCE, std::future::pending()).await;
    assert_eq!(kept.each_ref().map(|path| path.exists()), [false, true]);
}

/// What the operator is shown can be sent back: nobody is shown a credential, and none is lost, nor goes to another place.
#[tokio::test]
async fn upstreams_keep_their_credentials_when_they_are_sent_back() {
    const PATH: &str = "/v1/admin/upstreams";
    let bench = Bench::plain().await;
    let view = bench.get(PATH, Some(TOKEN)).await.json();
    let mut list = view["upstreams"].clone();
    assert_eq!(list[1]["bearer_token_configured"], true);
    list[1]["weight"] = json!(7);
    let replaced = put(&bench, PATH, &list).await;
    assert_eq!(replaced.status, StatusCode::OK, "{:?}", replaced.body);
    let credential = |bench: &Bench| {
        let upstream = bench.running.gateway().live().config.upstreams[1].clone();
        (upstream.weight, upstream.bearer_token.map(|token| token.expose().to_owned()))
    };
    assert_eq!(credential(&bench), (7, Some("s3cret".to_owned())));
    for (member, value, named) in [
        ("base_url", json!("http://127.0.0.1:1"), "upstreams[1].bearer_token_configured: there is none for"),
        ("name", json!("other"), "upstreams[1].bearer_token_configured: there is none for"),
        ("path", json!("/of/another/tenant"), "upstreams[1].bearer_token_configured: there is none for"),
        ("http2", json!(true), "upstreams[1].bearer_token_configured: there is none for"),
        ("bearer_token_configured", json!("yes"), "upstreams[1].bearer_token_configured: has to be true or"),
        (
            "verifier_options_configured",
            json!(true),
            "upstreams[1].verifier_options_configured: there is none",
        ),
    ] {
        let mut bad = list.clone();
        bad[1][member] = value;
        let refused = put(&bench, PATH, &bad).await;
        assert_eq!(refused.error().1, "invalid_upstream_config", "{member}");
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(named) && !message.contains("s3cret"), "{member}: {message}");
    }
    // One that is sent holds, and one that is not there is gone.
    list[1]["bearer_token"] = json!("other-s3cret");
    assert_eq!(put(&bench, PATH, &list).await.status, StatusCode::OK);
    assert_eq!(credential(&bench), (7, Some("other-s3cret".to_owned())));
    list[1]["bearer_token"] = Value::Null;
    assert_eq!(put(&bench, PATH, &list).await.status, StatusCode::OK);
    assert_eq!(credential(&bench), (7, Some("other-s3cret".to_owned())));
    list[1].as_object_mut().unwrap().shift_remove("bearer_token");
    list[1]["bearer_token_configured"] = json!(false);
    assert_eq!(put(&bench, PATH, &list).await.status, StatusCode::OK);
    assert_eq!(credential(&bench), (7, None));
    // A mistake is named by its member: nobody has seen the text that it is read from.
    list[1]["weight"] = json!("many");
    let refused = put(&bench, PATH, &list).await.json();
    assert_eq!(
        refused["error"]["message"],
        "upstreams[1].weight: has to be a whole number from 0 to 4294967295"
    );
}

/// What holds from one start to the next is changed by none; the rest of the file holds at once: a key that is taken out of it
/// works no more.
#[tokio::test]
async fn what_needs_a_start_waits_for_it_and_nothing_else_does() {
    const GOES: &str = "sk-key-that-goes";
    let bench = Bench::new(|config, _| {
        let goes = json!({ "name": "goes", "sha256": KeyHash::of(GOES).to_string() });
        config["keys"].as_array_mut().unwrap().push(goes);
    })
    .await;
    let state = bench.dir.path().join("other");
    let mut config = bench.config.clone();
    for (member, value) in [
        ("bind", json!("127.0.0.1:1")),
        ("metrics_bind", json!("127.0.0.1:2")),
        ("state_dir", json!(state)),
        ("tls", json!({ "self_signed": true })),
        ("body_memory_mib", json!(64)),
        ("receipts", json!({ "log": false })),
        ("traces", json!({ "endpoint": "http://127.0.0.1:1/v1/traces" })),
        ("trust", json!({ "production": true })),
        ("agent_socket", json!("/none")),
        ("subject", json!("other")),
        ("source", json!({ "repo_url": "https://example.com", "repo_commit": "c".repeat(40) })),
        ("keyset_lifetime_s", json!(7200)),
        ("enable_e2ee", json!(false)),
    ] {
        config[member] = value;
    }
    config["upstreams"][0]["models"]["vendor/new"] = json!("n");
    config["keys"].as_array_mut().unwrap().pop();
    let gateway = bench.running.gateway();
    let reload = async |text: String| {
        std::fs::write(bench.file(), text).unwrap();
        let settings = gateway.office.settings().unwrap();
        settings.reload(gateway, Prepared::read).await.map(|(reloaded, prepared)| {
            prepared.hold(gateway);
            reloaded
        })
    };
    let reloaded = reload(config.to_string()).await.unwrap();
    let waiting = [
        "bind",
        "metrics_bind",
        "state_dir",
        "tls",
        "body_memory_mib",
        "receipts",
        "traces",
        "trust",
        "agent_socket",
        "subject",
        "source",
        "keyset_lifetime_s",
        "enable_e2ee",
    ];
    assert_eq!((reloaded.is_other, reloaded.waiting), (true, waiting.to_vec()));
    assert_eq!(bench.ids("/v1/models").await.len(), 4);
    assert_eq!(bench.get("/v1/models", Some(GOES)).await.error().0, 401);
    // Lists are still kept where they were, and what waits goes on waiting.
    assert_eq!(put(&bench, "/v1/admin/models", &bench.config["models"]).await.status, StatusCode::OK);
    assert!(!state.exists() && bench.dir.path().join("state/models.json").exists());
    assert_eq!(gateway.live().config.state_dir, bench.dir.path().join("state"));
    let mut watch = Watch::new(Arc::clone(gateway), None);
    let figure = async |value: u8| {
        let reply = bench.get("/v1/metrics", Some(TOKEN)).await;
        let line = format!("\nprivate_ai_gateway_configuration_healthy {value}\n");
        assert!(String::from_utf8_lossy(&reply.body).contains(&line), "{value}");
    };
    watch.look(true).await;
    figure(0).await;
    // Who decides about requests stays the same until a start.
    config.as_object_mut().unwrap().shift_remove("keys");
    config["control"] = json!({ "url": "http://127.0.0.1:1", "token_file": bench.dir.path().join("none") });
    assert!(reload(config.to_string()).await.unwrap_err().to_string().contains("without a restart"));
    std::fs::write(bench.file(), bench.config.to_string()).unwrap();
    watch.look(true).await;
    figure(1).await;
}

/// What runs programs beside the keys, or names files, is in the file alone.
#[tokio::test]
async fn the_operators_token_runs_no_programs() {
    const PATH: &str = "/v1/admin/upstreams";
    let program = json!({
        "verifier_command": ["/bin/false"],
        "verifier_options": { "key": "s3cret-option" },
        "verifier_scope": "model",
    });
    let bench = Bench::new(|config, _| {
        let proves = entry("proves", "https://127.0.0.1:9", &["vendor/proven"], &program);
        config["upstreams"].as_array_mut().unwrap().push(proves);
    })
    .await;
    let view = bench.get(PATH, Some(TOKEN)).await;
    assert!(!String::from_utf8_lossy(&view.body).contains("s3cret"));
    assert_eq!(view.json()["upstreams"][2]["verifier_options_configured"], true);
    assert_eq!(view.json()["upstreams"][1]["verifier_options_configured"], false);
    let put =
        |list: &Value| reply(bench.request(Method::PUT, PATH).bearer_auth(TOKEN).body(list.to_string()));
    let own = bench.config["upstreams"].clone();
    for (at, member, value, named) in [
        (0, "verifier_command", json!(["/bin/sh", "-c", "evil"]), "upstreams[0].verifier_command"),
        (0, "ca_file", json!("/etc/shadow"), "upstreams[0].ca_file"),
        (2, "ca_file", json!("/etc/shadow"), "upstreams[2].ca_file"),
        (2, "verifier_command", json!(["/bin/true"]), "upstreams[2].verifier_command"),
        (2, "verifier_command", json!(["/bin/false", "evil"]), "upstreams[2].verifier_command"),
        (2, "verifier_options", json!({ "key": "other" }), "upstreams[2].verifier_options"),
        (2, "verifier_options", Value::Null, "upstreams[2].verifier_options"),
        (2, "verifier_scope", json!("router"), "upstreams[2].verifier_scope"),
        // The program is another upstream's.
        (2, "name", json!("other"), "upstreams[2].verifier_command"),
    ] {
        let mut list = own.clone();
        list[at][member] = value;
        let refused = put(&list).await;
        assert_eq!(refused.error().1, "invalid_upstream_config", "{named}");
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(named) && !message.contains("s3cret"), "{named}: {message}");
    }
    assert_eq!(bench.get(PATH, Some(TOKEN)).await.json(), view.json());
    // As the file says it, or not at all.
    let mut list = own.clone();
    list[2]["weight"] = json!(7);
    assert_eq!(put(&list).await.status, StatusCode::OK);
    for member in ["verifier_command", "verifier_options", "verifier_scope"] {
        list[2].as_object_mut().unwrap().shift_remove(member);
    }
    assert_eq!(put(&list).await.status, StatusCode::OK);

    // What was kept on disk is looked at in the same way.
    let file = bench.file();
    let kept = bench.dir.path().join("state/upstreams.json");
    let Bench { dir: _dir, running, .. } = bench;
    running.stop(PATIENCE, std::future::pending()).await;
    let mut replaced: Value = serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap();
    replaced["upstreams"][2]["verifier_command"] = json!(["/bin/true"]);
    std::fs::write(&kept, replaced.to_string()).unwrap();
    let refused = crate::error::chain(&start(&file).await.unwrap_err());
    assert!(refused.contains("upstreams[2].verifier_command"), "{refused}");
}

#[tokio::test]
async fn an_operator_without_a_token_has_no_endpoints() {
    let bench = Bench::new(|config, _| {
        config.as_object_mut().unwrap().shift_remove("admin_token_file");
        config["metrics_bind"] = json!("127.0.0.1:0");
    })
    .await;
    for path in ["/v1/metrics", "/v1/admin/upstreams"] {
        assert_eq!(bench.get(path, Some(TOKEN)).await.error().1, "not_found");
    }
    // Figures have a listener of their own.
    let _ = bench.get("/health", None).await;
    let url = format!("http://{}/metrics", bench.running.metrics_address().unwrap());
    let figures = bench.client.get(url).send().await.unwrap().text().await.unwrap();
    let line = "private_ai_gateway_responses_total{endpoint=\"/health\",status=\"200\"} 1";
    assert!(figures.lines().any(|found| found == line), "{figures}");
    assert!(figures.contains("private_ai_gateway_route_healthy{route=\"open:plain\"} 1"));
}

#[tokio::test]
async fn a_file_that_is_of_no_use_changes_nothing() {
    let bench = Bench::plain().await;
    std::fs::write(bench.file(), "{").unwrap();
    bench.running.reload();
    let mut config = bench.config.clone();
    config["upstreams"][0]["models"]["vendor/new"] = json!("n");
    assert_eq!(bench.ids("/v1/models").await.len(), 3);
    std::fs::write(bench.file(), config.to_string()).unwrap();
    // The clock finds it, too.
    bench.listed("vendor/new").await;
}

/// A key that goes with such an edit is refused when all of the edit holds, and not before.
#[tokio::test]
async fn a_file_that_names_what_is_not_there_changes_nothing_until_it_is() {
    const GOES: &str = "sk-key-that-goes";
    let stays = json!({ "name": "test", "sha256": KeyHash::of(KEY).to_string() });
    let goes = json!({ "name": "goes", "sha256": KeyHash::of(GOES).to_string() });
    let bench = Bench::new(|config, _| config["keys"] = json!([stays, goes])).await;
    let token = bench.dir.path().join("another-token");
    let mut config = bench.config.clone();
    config["keys"] = json!([stays]);
    config["upstreams"][0]["models"]["vendor/new"] = json!("n");
    config["admin_token_file"] = json!(token);
    std::fs::write(bench.file(), config.to_string()).unwrap();
    let mut watch = Watch::new(Arc::clone(bench.running.gateway()), None);
    watch.look(true).await;
    assert_eq!(bench.get("/v1/models", Some(GOES)).await.status, StatusCode::OK);
    assert_eq!(bench.ids("/v1/models").await.len(), 3);
    assert_eq!(bench.get("/v1/admin/models", Some(TOKEN)).await.status, StatusCode::OK);
    // The configuration itself stays as it is.
    std::fs::write(&token, "another-token-of-a-test").unwrap();
    watch.look(false).await;
    assert_eq!(bench.get("/v1/models", Some(GOES)).await.error().0, 401);
    assert_eq!(bench.ids("/v1/models").await.len(), 4);
    assert_eq!(bench.get("/v1/admin/models", Some(TOKEN)).await.error().0, 403);
    assert_eq!(bench.get("/v1/admin/models", Some("another-token-of-a-test")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn who_ends_lets_answers_end_and_begins_none() {
    let bench = Bench::plain().await;
    let waiting = tokio::spawn(reply(bench.chat("plain")));
    let deadline = Instant::now() + PATIENCE;
    while bench.running.gateway.requests.is_empty() {
        assert!(Instant::now() < deadline && !waiting.is_finished(), "the request does not begin");
        tokio::task::yield_now().await;
    }
    bench.running.gateway.begin_draining();
    let health = bench.get("/health", None).await;
    assert_eq!((health.status.as_u16(), health.json()), (503, json!({ "status": "draining" })));
    let refused = reply(bench.chat("plain")).await;
    assert_eq!(refused.error().1, "service_unavailable");
    assert_eq!(refused.header("retry-after"), "1");
    let Bench { running, leave, dir: _dir, .. } = bench;
    let address = running.address();
    let stopped = tokio::spawn(running.stop(PATIENCE, std::future::pending()));
    leave.add_permits(1);
    let answer = waiting.await.unwrap();
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "hello");
    stopped.await.unwrap();
    // A child of another test that is just being started shares the listener until it runs its own program:
    // connecting alone tells nothing.
    if let Ok(mut stream) = TcpStream::connect(address).await {
        let mut answer = Vec::new();
        let asked = stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(asked.is_err() || stream.read_to_end(&mut answer).await.is_err() || answer.is_empty());
    }
}

/// A request whose body is still on its way when the end begins is under way like others.
#[tokio::test]
async fn a_body_that_is_being_read_is_waited_for_and_its_request_is_recorded() {
    let bench = Bench::plain().await;
    let store = bench.running.gateway.store.clone();
    let body = json!({ "model": "plain", "messages": [{ "role": "user", "content": "hi" }] }).to_string();
    let mut client = TcpStream::connect(bench.running.address()).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let (first, rest) = body.split_at(10);
    client.write_all(format!("{head}{first}").as_bytes()).await.unwrap();
    let gateway = Arc::clone(bench.running.gateway());
    until(|| !gateway.requests.is_empty()).await;
    let Bench { running, leave, dir: _dir, .. } = bench;
    let stopped = tokio::spawn(running.stop(PATIENCE, std::future::pending()));
    until(|| gateway.is_draining()).await;
    client.write_all(rest.as_bytes()).await.unwrap();
    leave.add_permits(1);
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("hello"), "{answer}");
    stopped.await.unwrap();
    assert_eq!(store.usage(0, 10).unwrap().len(), 1);
}

/// Who is told a second time to end waits for no body.
#[tokio::test]
async fn an_urgent_end_waits_for_no_body() {
    let bench = Bench::plain().await;
    let gateway = Arc::clone(bench.running.gateway());
    let mut client = TcpStream::connect(bench.running.address()).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 99\r\n\r\n{{"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    until(|| !gateway.requests.is_empty()).await;
    let Bench { running, dir: _dir, .. } = bench;
    running.stop(PATIENCE, async {}).await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
}
