//! An inference gateway with an echoing upstream, as processes of the real command.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::process::{Child, Command};

use crate::http::plain_client;
use crate::{command, eventually, free_addresses, paths};

const START_PATIENCE: Duration = Duration::from_mins(1);
/// The key that the gateway under test knows.
pub const KEY: &str = "sk-of-the-client-under-test";

/// A running gateway and its upstream. They end with the process that started them.
#[derive(Debug)]
pub struct Inference {
    /// Where the gateway answers, without a path.
    pub url: String,
    _processes: [Child; 2],
}

impl Inference {
    /// Starts both in a directory and waits until they serve.
    ///
    /// Models: `echo` keeps nothing, `stored` has no route that does.
    pub async fn start(directory: &Path) -> Self {
        let [upstream, gateway] = free_addresses();
        let config = directory.join("gateway.json");
        let text = serde_json::to_vec(&configuration(directory, upstream, gateway)).expect("JSON");
        std::fs::write(&config, text).expect("a file");
        let config = config.display().to_string();
        let echo = serve(directory, &["echo-upstream", "--listen", &upstream.to_string()]);
        let serving = serve(directory, &["inference-gateway", "--config", &config]);
        let started = Self { url: format!("http://{gateway}"), _processes: [echo, serving] };
        let health = format!("{}/health", started.url);
        let http = plain_client();
        eventually("the gateway serves", START_PATIENCE, async || {
            http.get(&health).send().await.ok()?.error_for_status().ok().map(drop)
        })
        .await;
        started
    }
}

fn configuration(directory: &Path, upstream: SocketAddr, gateway: SocketAddr) -> serde_json::Value {
    let base_url = format!("http://{upstream}");
    json!({
        "bind": gateway,
        "state_dir": directory.join("gateway"),
        "keys": [{"name": "client", "sha256": hex::encode(Sha256::digest(KEY))}],
        "upstreams": [
            {"name": "keeps-nothing", "base_url": base_url, "models": {"echo": "echo"}, "zdr": true},
            {"name": "stores", "base_url": base_url, "models": {"stored": "echo"}},
        ],
        "models": [{"id": "echo", "pricing": {"prompt": "0.000001", "completion": "0.000002"}}],
    })
}

fn serve(directory: &Path, arguments: &[&str]) -> Child {
    command::cloister(directory).arg("serve").args(arguments).spawn().expect("cloister starts")
}

/// A program with a published client, to be run against a gateway; it prints one JSON object.
#[must_use]
pub fn client(program: &str, url: &str) -> Command {
    let packages: PathBuf = paths::workspace().join("target/inference-sdks");
    let script = paths::workspace().join("tests/inference-sdks").join(program);
    let installed = packages.join("installed").is_file();
    assert!(installed, "the published clients are not installed; run tests/inference-sdks/install.sh");
    let interpreter = if Path::new(program).extension().is_some_and(|extension| extension == "py") {
        "python3"
    } else {
        "node"
    };
    let mut command = Command::new(interpreter);
    command.arg(script).arg(url).arg(&packages).env("INFERENCE_KEY", KEY).kill_on_drop(true);
    command.env("PYTHONPATH", packages.join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
