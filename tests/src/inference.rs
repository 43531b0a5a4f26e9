//! An inference gateway before an upstream, as processes of the real command.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::process::{Child, Command};

use crate::http::{certificate_of, client_of_anybody, client_trusting, plain_client};
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
    /// File with its certificate, PEM, where it ends TLS.
    pub certificate: Option<PathBuf>,
    _processes: Vec<Child>,
}

impl Inference {
    /// Starts a gateway that ends TLS with a certificate of its own, and an upstream that echoes, in a directory, and waits
    /// until they serve.
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
        let tls = json!({"self_signed": true});
        let more = json!({"upstreams": upstreams, "models": models, "tls": tls});
        let mut started = Self::serving(directory, vec![echo], &more).await;
        let pem = certificate_of(&started.url).await.expect("a certificate");
        let file = directory.join("gateway.pem");
        fs::write(&file, pem).expect("a file");
        started.certificate = Some(file);
        started
    }

    /// Starts a gateway before an upstream that runs, with models of the same names, and waits until it serves. It asks
    /// no upstream twice by itself.
    pub async fn before(directory: &Path, upstream: SocketAddr, models: &[String]) -> Self {
        let names: serde_json::Map<String, Value> =
            models.iter().map(|model| (model.clone(), model.clone().into())).collect();
        let upstreams =
            json!([{"name": "upstream", "base_url": format!("http://{upstream}"), "models": names}]);
        Self::of(directory, &json!({"upstreams": upstreams})).await
    }

    /// Starts a gateway with these further members of its configuration, without TLS, and waits until it serves.
    pub async fn of(directory: &Path, more: &Value) -> Self {
        Self::serving(directory, Vec::new(), more).await
    }

    /// A client that trusts it.
    #[must_use]
    pub fn client(&self) -> reqwest::Client {
        match &self.certificate {
            Some(file) => client_trusting(&fs::read(file).expect("a certificate"), &self.url, PATIENCE),
            None => plain_client(),
        }
    }

    async fn serving(directory: &Path, mut processes: Vec<Child>, more: &Value) -> Self {
        let [gateway] = free_addresses::<1>();
        let file = directory.join("gateway.json");
        let mut config = json!({
            "bind": gateway,
            "state_dir": directory.join("gateway"),
            "capacity_retry_ms": 0,
            "keys": keys(),
        });
        config.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        fs::write(&file, config.to_string()).expect("a file");
        let mut process = serve(directory, &["inference-gateway", "--config", &file.display().to_string()]);
        // A name, which certificates are for.
        let url = match more.get("tls") {
            None => format!("http://{gateway}"),
            Some(_) => format!("https://localhost:{}", gateway.port()),
        };
        let (http, health) = (client_of_anybody(&url), format!("{url}/health"));
        eventually("the gateway serves", PATIENCE, async || {
            let ended = process.try_wait().expect("its state");
            assert_eq!(ended, None, "the gateway ended: what it said is above");
            http.get(&health).send().await.ok()?.error_for_status().ok().map(drop)
        })
        .await;
        processes.push(process);
        Self { url, certificate: None, _processes: processes }
    }
}

fn serve(directory: &Path, arguments: &[&str]) -> Child {
    command::cloister(directory).arg("serve").args(arguments).spawn().expect("cloister starts")
}

/// What a program with a published client printed about a gateway, one JSON object.
pub async fn seen_by(program: &str, gateway: &Inference) -> Value {
    published::printed(client(program, gateway, gateway.certificate.as_deref())).await
}

/// What a program with a published client complains of at a gateway whose certificate is not the one that it trusts.
pub async fn complaint_of(program: &str, gateway: &Inference, trusted: &Path) -> String {
    let output = published::ended(client(program, gateway, Some(trusted))).await;
    assert!(!output.status.success(), "{program} trusts anybody");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn client(program: &str, gateway: &Inference, trusted: Option<&Path>) -> Command {
    let mut command = published::program("inference-sdks", program, &[&gateway.url]);
    command.env("INFERENCE_KEY", KEY);
    if let Some(file) = trusted {
        // Where the languages' TLS looks for whom it trusts.
        command.env("SSL_CERT_FILE", file).env("NODE_EXTRA_CA_CERTS", file);
    }
    command
}
