//! `kill -9` at every moment of deliveries, of a real control plane with its database on disk: every event that the
//! API has acknowledged arrives, and every attempt is recorded once.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use cloister_tests::api::Api;
use cloister_tests::data_dir::DataDir;
use cloister_tests::{PATIENCE, eventually, paths};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

/// Events before each death: several attempts are under way at once.
const EVENTS: usize = 4;

/// A receiver that answers 200 to everything and remembers the ids of the events that it got.
struct Receiver {
    url: String,
    got: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let got = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&got);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&all)));
            }
        });
        Self { url, got }
    }

    fn counts(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for id in self.got.lock().unwrap().iter() {
            *counts.entry(id.clone()).or_default() += 1;
        }
        counts
    }
}

/// Answers the requests of a connection until it ends, by whomever's death.
async fn serve(stream: TcpStream, got: Arc<Mutex<Vec<String>>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let event: Value = serde_json::from_slice(&body).ok()?;
        got.lock().unwrap().push(event["id"].as_str()?.to_owned());
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.ok()?;
    }
}

/// A control plane in a process of its own.
struct Mortal {
    child: Child,
    api: String,
    key: Option<String>,
}

impl Mortal {
    /// `None` when it dies before it is up.
    async fn start(data_dir: &Path, death: Option<&str>) -> Option<Self> {
        let mut child = Command::new(paths::program("mortal-webhooks").expect("a built program"))
            .arg(data_dir)
            .args(death)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("mortal-webhooks starts");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("in time").unwrap()?;
        let up: Value = serde_json::from_str(&line).unwrap();
        let text = |name: &str| up[name].as_str().map(str::to_owned);
        Some(Self { child, api: text("api").unwrap(), key: text("key") })
    }

    fn api(&self, key: &str) -> Api {
        Api::new(&self.api, key)
    }

    async fn killed(mut self) {
        self.child.start_kill().unwrap();
        self.child.wait().await.unwrap();
    }

    async fn died(mut self, place: &str) {
        use std::os::unix::process::ExitStatusExt as _;
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = status.unwrap_or_else(|_| panic!("{place} is not reached")).unwrap();
        assert_eq!(status.signal(), Some(9), "{place}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_event_arrives_through_deaths_at_every_moment() {
    let (data_dir, receiver) = (DataDir::new(), Receiver::start().await);
    let mut cloud = Mortal::start(data_dir.path(), None).await.unwrap();
    let key = cloud.key.clone().unwrap();
    let request = json!({ "url": receiver.url, "events": ["cvm.started"] });
    let webhook = cloud.api(&key).post("/workspace/webhooks", request).await;
    let path = format!("/workspace/webhooks/{}", webhook["id"].as_str().unwrap());
    let mut acknowledged = Vec::new();

    let places = (1..=3).flat_map(|nth| ["Taken", "Answered", "Recorded"].map(|at| format!("{at}/{nth}")));
    for place in places {
        cloud.killed().await;
        // What was left under way may bring it there before it is up.
        if let Some(mortal) = Mortal::start(data_dir.path(), Some(&place)).await {
            let api = mortal.api(&key);
            for _ in 0..EVENTS {
                let sent = api.attempt(reqwest::Method::POST, &format!("{path}/test"), Some(json!({}))).await;
                let Some(sent) = sent else { break };
                assert!(sent.status.is_success(), "{place}: {sent:?}");
                acknowledged.push(sent.body["event_id"].as_str().unwrap().to_owned());
            }
            mortal.died(&place).await;
        }
        cloud = Mortal::start(data_dir.path(), None).await.unwrap();
        // Killed by somebody else right after an answer, wherever it is then.
        let sent = cloud.api(&key).post(&format!("{path}/test"), json!({})).await;
        acknowledged.push(sent["event_id"].as_str().unwrap().to_owned());
    }

    let api = cloud.api(&key);
    let deliveries = eventually("everything is delivered", PATIENCE, async || {
        let all = api.get(&format!("{path}/deliveries?limit=200")).await.as_array().unwrap().clone();
        all.iter().all(|delivery| delivery["status"] == "success").then_some(all)
    })
    .await;
    let got = receiver.counts();
    assert!(acknowledged.iter().all(|id| got.contains_key(id)), "none is lost");
    assert!(acknowledged.len() >= 9 && deliveries.len() >= acknowledged.len());
    let mut interrupted = 0;
    for delivery in &deliveries {
        let id = delivery["event_id"].as_str().unwrap();
        let attempts = api.get(&format!("{path}/deliveries/{id}/attempts")).await;
        let outcomes: Vec<_> =
            attempts.as_array().unwrap().iter().map(|row| row["outcome"].as_str().unwrap()).collect();
        let (last, before) = outcomes.split_last().unwrap();
        assert!(*last == "success" && before.iter().all(|outcome| *outcome == "interrupted"), "{outcomes:?}");
        assert_eq!(delivery["attempts"], 1, "{outcomes:?}");
        // A request that was made is an attempt that is recorded; one that died before it was made is one, too.
        assert!((1..=outcomes.len()).contains(&got[id]), "{} requests, {outcomes:?}", got[id]);
        interrupted += before.len();
    }
    assert!(interrupted >= 6, "deaths at Taken and at Answered interrupt attempts: {interrupted}");
}
