//! A cloud in a process of its own that can be killed.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use cloister_node::ingress::DEFAULT_DOMAIN;
use reqwest::StatusCode;
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::error::Elapsed;

use crate::PATIENCE;
use crate::api::Api;
use crate::paths;

/// A running `mortal-cloud`. Dropping it kills the process and its KMS, not its VMs: those end with the
/// [`DataDir`](crate::data_dir::DataDir).
pub struct MortalCloud {
    child: Child,
    /// Base URL of its API.
    pub api_url: String,
    /// The administrator's key; only at the first start.
    pub key: Option<String>,
    /// Address of the plain-HTTP ingress.
    pub http: String,
}

impl MortalCloud {
    /// Starts the cloud in a data directory, to die at `death`, as `mortal-cloud` takes it, or never.
    pub async fn start(data_dir: &Path, death: Option<&str>) -> Self {
        Self::start_with_images(data_dir, &paths::guest_images(), death).await
    }

    /// Starts the cloud with another directory of guest images.
    pub async fn start_with_images(data_dir: &Path, images: &Path, death: Option<&str>) -> Self {
        let mut child = spawn(data_dir, images, death, Stdio::piped());
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let line = line.expect("it comes up in time").expect("its output").expect("a line of JSON");
        let up: Value = serde_json::from_str(&line).expect("JSON");
        let text = |name: &str| up[name].as_str().map(str::to_owned);
        Self {
            child,
            api_url: text("api").expect("the API's URL"),
            key: text("key"),
            http: text("http").expect("the ingress' address"),
        }
    }

    /// A client with a key of this cloud.
    #[must_use]
    pub fn api(&self, key: &str) -> Api {
        Api::new(&self.api_url, key)
    }

    /// What its ingress answers for an application on which nobody listens: bad gateway if it leads there.
    pub async fn ingress_status(&self, app_id: &str) -> StatusCode {
        let http = reqwest::Client::builder().no_proxy().build().expect("HTTP client");
        let request = http.get(format!("http://{}/", self.http));
        let host = format!("{app_id}.{DEFAULT_DOMAIN}");
        request.header("host", host).send().await.expect("an answer of the ingress").status()
    }

    /// Waits until the process has killed itself.
    pub async fn died(mut self, patience: Duration) {
        is_death(tokio::time::timeout(patience, self.child.wait()).await, "its place");
    }

    /// A life that goes on with what the one before it left and ends at `death`, perhaps before it is up.
    pub async fn live_until(data_dir: &Path, death: &str, patience: Duration) {
        let mut child = spawn(data_dir, &paths::guest_images(), Some(death), Stdio::null());
        is_death(tokio::time::timeout(patience, child.wait()).await, death);
    }
}

fn spawn(data_dir: &Path, images: &Path, death: Option<&str>, stdout: Stdio) -> Child {
    Command::new(paths::program("mortal-cloud").expect("a built program"))
        .arg(data_dir)
        .arg(images)
        .args(death)
        .stdin(Stdio::null())
        .stdout(stdout)
        .kill_on_drop(true)
        .spawn()
        .expect("mortal-cloud starts")
}

/// A process that ended in another way than by `kill -9` shows nothing.
fn is_death(ended: Result<std::io::Result<ExitStatus>, Elapsed>, place: &str) {
    let status = ended.unwrap_or_else(|_| panic!("{place} is not reached")).expect("its status");
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{place}: {status}");
}
