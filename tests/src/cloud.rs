//! A cloud in a process of its own that can be killed.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::api::Api;
use crate::paths;

const START_PATIENCE: Duration = Duration::from_mins(1);

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
    /// Starts the cloud in a data directory, to die at `death` (`operation/step/boundary`) or never.
    pub async fn start(data_dir: &Path, death: Option<&str>) -> Self {
        Self::start_with_images(data_dir, &paths::guest_images(), death).await
    }

    /// Starts the cloud with another directory of guest images.
    pub async fn start_with_images(data_dir: &Path, images: &Path, death: Option<&str>) -> Self {
        let program = paths::program("mortal-cloud").expect("a built program");
        let mut child = Command::new(program)
            .arg(data_dir)
            .arg(images)
            .args(death)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("mortal-cloud starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let line = tokio::time::timeout(START_PATIENCE, lines.next_line()).await;
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

    /// Waits until the process has killed itself.
    pub async fn died(mut self, patience: Duration) {
        tokio::time::timeout(patience, self.child.wait())
            .await
            .expect("it dies in time")
            .expect("its status");
    }
}
