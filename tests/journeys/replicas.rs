//! Several CVMs of one application behind one name: they share the work, and a change of all of them loses
//! nothing that anybody asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use cloister_tests::command::Up;
use cloister_tests::data_dir::DataDir;
use cloister_tests::http::get_text;
use cloister_tests::{PATIENCE, eventually, hello, paths};
use serde_json::Value;

/// Time between two requests of the load.
const PACE: Duration = Duration::from_millis(200);

async fn done(up: &Up, arguments: &[&str]) -> Value {
    let ran = up.run(arguments).await;
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or(Value::Null)
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
    let first = hello::with_greeting(dir.path(), "first");
    let small = ["--vcpu", "1", "--memory", "512", "-n", "shop-web"];
    done(&up, &[&["deploy", "-c", first.to_str().unwrap()][..], &small].concat()).await;
    done(&up, &["cvms", "replicate", "shop-web"]).await;

    let listed = done(&up, &["--json", "cvms", "list"]).await;
    let cvms = listed["items"].as_array().unwrap();
    assert_eq!(cvms.len(), 2);
    assert_eq!(cvms[0]["app_id"], cvms[1]["app_id"]);
    assert_ne!(cvms[0]["instance_id"], cvms[1]["instance_id"], "each has an identity and a disk of its own");
    let (page_url, url) = hello::urls(&cvms[0]);
    eventually("the application answers", PATIENCE, async || get_text(&url).await).await;

    let load = Arc::new(Load::default());
    let requests = tokio::spawn(Arc::clone(&load).run(url.clone()));
    let second = hello::with_greeting(dir.path(), "second");
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
