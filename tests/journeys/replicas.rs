//! Several CVMs of one application behind one name: they share the work, and a change of all of them loses
//! nothing that anybody asked for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use cloister_tests::command::Up;
use cloister_tests::data_dir::DataDir;
use cloister_tests::http::get_text;
use cloister_tests::{eventually, paths};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_mins(5);
/// Time between two requests of the load.
const PACE: Duration = Duration::from_millis(200);

async fn done(up: &Up, arguments: &[&str]) -> Value {
    let ran = up.run(arguments).await;
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or(Value::Null)
}

/// The example with a greeting, and with its small service reachable from outside: a page that costs a guest
/// without hardware virtualisation next to nothing.
fn compose(dir: &Path, greeting: &str) -> PathBuf {
    let text = std::fs::read_to_string(paths::hello().join("compose.yaml")).unwrap();
    let text = text.replacen("${DSTACK_APP_NAME:-hello}", greeting, 1).replacen(
        "command: [\"api\"]",
        "command: [\"api\"]\n    ports: [\"8080:8080\"]",
        1,
    );
    assert!(text.contains(greeting) && text.contains("8080:8080"));
    let file = dir.join(format!("{greeting}.yaml"));
    std::fs::write(&file, text).unwrap();
    file
}

/// Requests at a constant pace, each on a connection of its own, until it is told to end.
#[derive(Default)]
struct Load {
    sent: AtomicU32,
    lost: AtomicU32,
    is_over: AtomicBool,
}

impl Load {
    async fn run(self: Arc<Self>, url: String) {
        let mut pace = tokio::time::interval(PACE);
        while !self.is_over.load(Ordering::Relaxed) {
            pace.tick().await;
            let (load, url) = (Arc::clone(&self), url.clone());
            load.sent.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                if get_text(&url).await.is_none() {
                    load.lost.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_change_one_after_the_other_and_lose_no_request() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let dir = DataDir::new();
    let up = Up::start(dir.path(), None).await;
    let archive = paths::hello().join("hello.tar");
    done(&up, &["image", "push", archive.to_str().unwrap()]).await;
    let first = compose(dir.path(), "first");
    let small = ["--vcpu", "1", "--memory", "512", "-n", "shop-web"];
    done(&up, &[&["deploy", "-c", first.to_str().unwrap()][..], &small].concat()).await;
    done(&up, &["cvms", "replicate", "shop-web"]).await;

    let listed = done(&up, &["--json", "cvms", "list"]).await;
    let cvms = listed["items"].as_array().unwrap();
    assert_eq!(cvms.len(), 2);
    assert_eq!(cvms[0]["app_id"], cvms[1]["app_id"]);
    assert_ne!(cvms[0]["instance_id"], cvms[1]["instance_id"], "each has an identity and a disk of its own");
    let app_id = cvms[0]["app_id"].as_str().unwrap();
    let page_url = cvms[0]["endpoints"][0]["app"].as_str().unwrap().to_owned();
    let url =
        format!("{}/line.txt", page_url.replacen(app_id, &format!("{app_id}-8080"), 1).trim_end_matches('/'));
    eventually("the application answers", PATIENCE, async || get_text(&url).await).await;

    let load = Arc::new(Load::default());
    let requests = tokio::spawn(Arc::clone(&load).run(url.clone()));
    let second = compose(dir.path(), "second");
    done(&up, &["rollouts", "start", "shop-web", "-c", second.to_str().unwrap(), "--timeout", "900"]).await;
    load.is_over.store(true, Ordering::Relaxed);
    requests.await.unwrap();
    eventually("the new page is there", PATIENCE, async || {
        get_text(&page_url).await.filter(|page| page.contains("Hello from second"))
    })
    .await;
    let (sent, lost) = (load.sent.load(Ordering::Relaxed), load.lost.load(Ordering::Relaxed));
    assert!(sent > 100, "{sent} requests are no load");
    assert_eq!(lost, 0, "of {sent} requests");

    // One that is taken away leaves the other to answer.
    let gone = cvms[1]["vm_uuid"].as_str().unwrap();
    done(&up, &["cvms", "shutdown", gone]).await;
    assert!(get_text(&url).await.is_some(), "the other one answers");
    assert_eq!(up.interrupt().await, 0);
}
