//! An inference gateway before an upstream, as processes of the real command.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::process::Child;

use crate::http::plain_client;
use crate::{PATIENCE, command, eventually, free_addresses, published};

/// The key that the gateway under test knows, and that may do everything.
pub const KEY: &str = "sk-of-the-client-under-test";

/// Keys that may not do everything: the name that follows that of [`KEY`], and its limits.
fn limited() -> [(&'static str, Value); 3] {
    [
        ("poor", json!({"credit": "0"})),
        ("narrow", json!({"models": ["stored"]})),
        ("slow", json!({"requests_per_minute": 1})),
    ]
}

fn keys() -> Value {
    let key = |name: &str, key: &str, limits: Value| {
        let mut entry = json!({"name": name, "sha256": hex::encode(Sha256::digest(key))});
        entry.as_object_mut().expect("an object").extend(limits.as_object().cloned().unwrap_or_default());
        entry
    };
    let limited = limited().map(|(name, limits)| key(name, &format!("{KEY}-{name}"), limits));
    [key("client", KEY, json!({}))].into_iter().chain(limited).collect()
}

/// A running gateway, and its upstream if that is a process, too. They end with the process that started them.
#[derive(Debug)]
pub struct Inference {
    /// Where the gateway answers, without a path.
    pub url: String,
    _processes: Vec<Child>,
}

impl Inference {
    /// Starts a gateway and an upstream that echoes in a directory, and waits until they serve.
    ///
    /// Models: `echo` keeps nothing, `stored` has no route that does.
    pub async fn start(directory: &Path) -> Self {
        let [upstream] = free_addresses();
        let echo = serve(directory, &["echo-upstream", "--listen", &upstream.to_string()]);
        let base_url = format!("http://{upstream}");
        let upstreams = json!([
            {"name": "keeps-nothing", "base_url": base_url, "models": {"echo": "echo"}, "zdr": true},
            {"name": "stores", "base_url": base_url, "models": {"stored": "echo"}},
        ]);
        let models = json!([{"id": "echo", "pricing": {"prompt": "0.000001", "completion": "0.000002"}}]);
        Self::serving(directory, vec![echo], upstreams, models).await
    }

    /// Starts a gateway before an upstream that runs, with models of the same names, and waits until it serves. It asks
    /// no upstream twice by itself.
    pub async fn before(directory: &Path, upstream: SocketAddr, models: &[String]) -> Self {
        let names: serde_json::Map<String, Value> =
            models.iter().map(|model| (model.clone(), model.clone().into())).collect();
        let upstreams =
            json!([{"name": "upstream", "base_url": format!("http://{upstream}"), "models": names}]);
        Self::serving(directory, Vec::new(), upstreams, json!([])).await
    }

    async fn serving(directory: &Path, mut processes: Vec<Child>, upstreams: Value, models: Value) -> Self {
        let [gateway] = free_addresses::<1>();
        let config = directory.join("gateway.json");
        let text = json!({
            "bind": gateway,
            "state_dir": directory.join("gateway"),
            "capacity_retry_ms": 0,
            "keys": keys(),
            "upstreams": upstreams,
            "models": models,
        });
        std::fs::write(&config, text.to_string()).expect("a file");
        processes.push(serve(directory, &["inference-gateway", "--config", &config.display().to_string()]));
        let started = Self { url: format!("http://{gateway}"), _processes: processes };
        let health = format!("{}/health", started.url);
        let http = plain_client();
        eventually("the gateway serves", PATIENCE, async || {
            http.get(&health).send().await.ok()?.error_for_status().ok().map(drop)
        })
        .await;
        started
    }
}

fn serve(directory: &Path, arguments: &[&str]) -> Child {
    command::cloister(directory).arg("serve").args(arguments).spawn().expect("cloister starts")
}

/// What a program with a published client printed about a gateway, one JSON object.
pub async fn seen_by(program: &str, gateway: &Inference) -> Value {
    let mut command = published::program("inference-sdks", program, &[&gateway.url]);
    command.env("INFERENCE_KEY", KEY);
    published::printed(command).await
}
