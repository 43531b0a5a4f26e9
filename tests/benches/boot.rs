//! Where the time of a deployment goes: the hello example with two services, its image already on the
//! node, from `POST /cvms` to the answer of the application.
//!
//! `cargo bench -p cloister-tests --bench boot` prints the table that docs/performance.md quotes. The
//! boot phases are looked up every 20 ms, so each figure may be late by that much.
#![expect(
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a bench prints and may give up"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cloister_tests::api::Api;
use cloister_tests::cloud::MortalCloud;
use cloister_tests::data_dir::DataDir;
use cloister_tests::{eventually, paths};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const ROUNDS: usize = 5;
const PATIENCE: Duration = Duration::from_mins(3);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Moments of one deployment, in order; the names are the rows of the table.
type Moments = BTreeMap<(usize, String), Duration>;

#[tokio::main]
async fn main() {
    let data_dir = DataDir::new();
    let cloud = MortalCloud::start(data_dir.path(), None).await;
    let api = cloud.api(cloud.key.as_deref().expect("the first key"));
    eventually("the node is online", PATIENCE, async || {
        let nodes = api.get("/attestations/nodes").await;
        (nodes[0]["status"] == "ONLINE").then_some(())
    })
    .await;
    push_image(&api).await;

    let mut rounds: Vec<Moments> = Vec::new();
    for round in 0..ROUNDS {
        let name = format!("bench-{round}");
        let moments = deploy(&cloud, &api, &name).await;
        rounds.push(moments);
        api.call(Method::DELETE, &format!("/cvms/{name}"), None).await;
        api.gone(&name, PATIENCE).await;
    }
    println!("| Since `POST /cvms` | min | median | max |\n|---|---|---|---|");
    for key in rounds[0].keys() {
        let mut times: Vec<_> = rounds.iter().filter_map(|round| round.get(key)).collect();
        times.sort();
        let (min, median, max) = (times[0], times[times.len() / 2], times[times.len() - 1]);
        println!(
            "| {} | {:.2} s | {:.2} s | {:.2} s |",
            key.1,
            min.as_secs_f64(),
            median.as_secs_f64(),
            max.as_secs_f64()
        );
    }
}

async fn push_image(api: &Api) {
    let archive = std::fs::read(paths::hello().join("hello.tar")).expect("the example's image archive");
    api.push_image("cloister.local/hello:1", archive).await;
}

async fn deploy(cloud: &MortalCloud, api: &Api, name: &str) -> Moments {
    let compose = std::fs::read_to_string(paths::hello().join("compose.yaml")).expect("compose.yaml");
    let document = json!({
        "name": name, "runner": "docker-compose", "manifest_version": 2, "docker_compose_file": compose,
    });
    let provision = api.provision_sized(name, document, 2, 1024).await;
    let request = json!({ "app_id": provision["app_id"], "compose_hash": provision["compose_hash"] });

    let asked = Instant::now();
    let created = api.post("/cvms", request).await;
    let mut moments = Moments::new();
    let mut note = |order: usize, name: &str| {
        moments.entry((order, name.to_owned())).or_insert_with(|| asked.elapsed());
    };
    note(0, "answer to `POST /cvms`");
    let path = format!("/cvms/{name}/state");
    let mut order = 1;
    let mut last = String::new();
    loop {
        let state = api.get(&path).await;
        let progress = state["boot_progress"].as_str().unwrap_or_default().to_owned();
        if progress != last && !progress.is_empty() {
            note(order, &format!("guest: {progress}"));
            order += 1;
            last = progress;
        }
        if state["in_progress"] == false {
            assert_eq!(state["status"], "running", "{state}");
            break;
        }
        assert!(asked.elapsed() < PATIENCE, "{state}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    note(90, "CVM is `running`");
    answers(cloud, created["app_id"].as_str().expect("app_id")).await;
    note(91, "application answers");
    if let Some(started) = vm_started_after(api, name).await {
        moments.insert((0, "VM process started".to_owned()), started);
    }
    moments
}

/// From the acceptance of the operation to the end of its step `start_vm`.
async fn vm_started_after(api: &Api, name: &str) -> Option<Duration> {
    let operations = api.operations(name).await;
    let events = operations.last()?["events"].as_array()?.clone();
    let at = |suffix: &str| {
        let event = events
            .iter()
            .find(|event| event["event_type"].as_str().is_some_and(|name| name.ends_with(suffix)))?;
        parse_ms(&event["timestamp"])
    };
    u64::try_from(at(".start_vm")? - at(".start")?).ok().map(Duration::from_millis)
}

fn parse_ms(timestamp: &Value) -> Option<i64> {
    timestamp.as_str()?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

async fn answers(cloud: &MortalCloud, app_id: &str) {
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build().expect("client");
    eventually("the application answers", PATIENCE, async || {
        let request =
            http.get(format!("http://{}/", cloud.http)).header("host", format!("{app_id}.apps.localhost"));
        let answer = request.send().await.ok()?;
        (answer.status() == StatusCode::OK).then_some(())
    })
    .await;
}
