//! A rollout over three replicas, in real virtual machines, while a public load generator asks for a page at a
//! constant rate through the ingress: what it loses, and how long it takes.
//!
//! `cargo bench -p cloister-tests --bench rollout` prints the table that docs/performance.md quotes, and fails
//! when a request was lost. The load comes from `hey` (package `hey`). The program `cloister` must be built beside it:
//! `make bench` does both.
#![expect(
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a bench prints and may give up"
)]

use std::process::Stdio;
use std::time::{Duration, Instant};

use cloister_tests::api::{Api, creation};
use cloister_tests::cloud::MortalCloud;
use cloister_tests::data_dir::DataDir;
use cloister_tests::{eventually, hello, paths};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Command;

const REPLICAS: usize = 3;
const PATIENCE: Duration = Duration::from_mins(15);
/// Workers of the load generator, and requests of each per second.
const WORKERS: u32 = 4;
const RATE: u32 = 5;

#[tokio::main]
async fn main() {
    // `cargo test --benches` runs this, too, with nothing to measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let dir = DataDir::new();
    let cloud = MortalCloud::start(dir.path(), None).await;
    let api = cloud.api(cloud.key.as_deref().expect("the first key"));
    eventually("the node is online", PATIENCE, async || {
        let nodes = api.get("/attestations/nodes").await;
        (nodes[0]["status"] == "ONLINE").then_some(())
    })
    .await;
    let archive =
        std::fs::read(paths::hello().join("hello.tar")).expect("the example's image; run `make image`");
    api.push_image("cloister.local/hello:1", archive).await;
    let app_id = replicas(&api, &compose(dir.path(), "first")).await;

    let host = format!("{app_id}-{}.apps.localhost", hello::SMALL_PORT);
    let load = Load::start(&format!("http://{}/line.txt", cloud.http), &host);
    let started = Instant::now();
    let body = json!({ "docker_compose_file": compose(dir.path(), "second") });
    let rollout = api.post(&format!("/apps/{app_id}/rollouts"), body).await;
    let path = format!("/apps/{app_id}/rollouts/{}", rollout["rollout_id"].as_str().expect("its id"));
    let state = eventually("the rollout ends", PATIENCE, async || {
        let state = api.get(&path).await["state"].clone();
        (!matches!(state.as_str(), Some("running" | "rolling_back"))).then_some(state)
    })
    .await;
    assert_eq!(state, "completed");
    let took = started.elapsed();
    let (sent, lost) = load.end().await;
    println!("| replicas | rollout | requests | per second | lost (target 0) |\n|---|---|---|---|---|");
    let seconds = took.as_secs_f64();
    println!("| {REPLICAS} | {seconds:.0} s | {sent} | {} | {lost} |", WORKERS * RATE);
    assert!(sent > 0 && lost == 0, "{lost} of {sent} requests were lost");
}

/// The text of a version of the example.
fn compose(dir: &std::path::Path, greeting: &str) -> String {
    std::fs::read_to_string(hello::with_greeting(dir, greeting)).expect("a compose file")
}

/// Three replicas that are up; the application's id.
async fn replicas(api: &Api, compose: &str) -> String {
    let document = json!({ "name": "bench", "runner": "docker-compose", "manifest_version": 2,
        "docker_compose_file": compose });
    let provision = api.provision("bench-web", document).await;
    api.post("/cvms", creation(&provision)).await;
    api.at_rest("bench-web", PATIENCE).await;
    for _ in 1..REPLICAS {
        let replica = api.post("/cvms/bench-web/replicas", Value::Null).await;
        let name = replica["name"].as_str().expect("its name").to_owned();
        let state = api.at_rest(&name, PATIENCE).await;
        assert_eq!(state["status"], "running", "{state}");
    }
    provision["app_id"].as_str().expect("the application").to_owned()
}

/// A running load generator.
struct Load(tokio::process::Child);

impl Load {
    fn start(url: &str, host: &str) -> Self {
        let (workers, rate) = (WORKERS.to_string(), RATE.to_string());
        let child = Command::new("hey")
            .args([
                "-z",
                "30m",
                "-t",
                "10",
                "-disable-keepalive",
                "-c",
                &workers,
                "-q",
                &rate,
                "-host",
                host,
                url,
            ])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        Self(child.expect("hey runs; `make bench` installs it"))
    }

    /// Ends the load; how many requests it sent, and how many were not answered with 200.
    async fn end(self) -> (u64, u64) {
        let pid = self.0.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        kill_process(pid.expect("a process"), Signal::INT).expect("a signal");
        let output = self.0.wait_with_output().await.expect("its report");
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        // `  [200] 1234 responses` below "Status code distribution", `  [3] Get …` below "Error distribution".
        let count = |line: &str, is_good: bool| {
            let (label, rest) = line.trim().strip_prefix('[')?.split_once(']')?;
            let responses = rest.trim().strip_suffix("responses").and_then(|n| n.trim().parse::<u64>().ok());
            match (responses, label == "200") {
                (Some(number), good) if good == is_good => Some(number),
                (None, _) if !is_good => label.parse().ok(),
                _ => None,
            }
        };
        let good: u64 = report.lines().filter_map(|line| count(line, true)).sum();
        let lost: u64 = report.lines().filter_map(|line| count(line, false)).sum();
        assert!(good > 0, "hey said: {report}");
        (good + lost, lost)
    }
}
