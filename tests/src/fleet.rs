//! A cloud of several machines: a control plane and its nodes, each a process of the real command.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Child;

use crate::api::Api;
use crate::command::{cloister, kept_key};
use crate::data_dir::kill_processes_of;
use crate::{PATIENCE, eventually, free_addresses};

/// A control plane without nodes and without a key management service.
pub struct Fleet {
    data_dir: PathBuf,
    /// Where nodes report.
    listener: SocketAddr,
    api: Api,
    #[expect(dead_code, reason = "dropping it ends the process")]
    control_plane: Child,
}

/// A node in a process of its own.
pub struct NodeProcess {
    /// Number in the installation.
    pub id: i64,
    name: &'static str,
    data_dir: PathBuf,
    /// Its listener, and the control plane's.
    addresses: [SocketAddr; 2],
    api: Api,
    child: Child,
}

impl Fleet {
    /// Starts the control plane in a data directory and waits until it answers.
    pub async fn start(data_dir: &Path) -> Self {
        let data_dir = data_dir.join("control-plane");
        let [api, listener] = free_addresses();
        let control_plane = cloister(&data_dir)
            .arg("--data-dir")
            .arg(&data_dir)
            .args(["serve", "control-plane", "--api-listen", &api.to_string()])
            .args(["--fleet-listen", &listener.to_string()])
            .env("CLOISTER_LOG", "warn")
            .stdout(Stdio::null())
            .spawn()
            .expect("cloister starts");
        let (url, credentials) = (format!("http://{api}"), data_dir.join("credentials.json"));
        let kept_as = format!("{url}/api/v1");
        let key =
            eventually("the key of the first start", PATIENCE, async || kept_key(&credentials, &kept_as))
                .await;
        Self { api: Api::new(&url, &key), data_dir, listener, control_plane }
    }

    /// A client of its management API, with the administrator's key.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Starts a new node and waits until it reports.
    pub async fn join(&self, name: &'static str) -> NodeProcess {
        let token = self.api.post("/admin/nodes/invitations", json!({})).await;
        let token = token["join_token"].as_str().expect("a token");
        let [address] = free_addresses();
        let (data_dir, addresses) = (self.data_dir.with_file_name(name), [address, self.listener]);
        let child = serve(&data_dir, name, addresses, Some(token)).await;
        let mut node = NodeProcess { id: 0, name, data_dir, addresses, api: self.api.clone(), child };
        node.id = node.is("ONLINE").await["id"].as_i64().expect("a number");
        node
    }
}

impl NodeProcess {
    /// Ends everything of the machine at once, its virtual machines too, as a power cut would.
    pub async fn lose_power(&mut self) {
        eventually("the machine is off", PATIENCE, async || {
            (kill_processes_of(&self.data_dir) == 0).then_some(())
        })
        .await;
        self.child.wait().await.expect("its status");
    }

    /// Starts it again, with what its disk has.
    pub async fn start(&mut self) {
        self.child = serve(&self.data_dir, self.name, self.addresses, None).await;
        self.is("ONLINE").await;
    }

    /// Waits until the control plane thinks so of it; its document.
    pub async fn is(&self, status: &str) -> Value {
        eventually(&format!("{} is {status}", self.name), PATIENCE, async || {
            let nodes = self.api.get("/admin/nodes").await;
            let nodes = nodes.as_array().expect("a list").iter();
            nodes.filter(|node| node["name"] == self.name).find(|node| node["status"] == status).cloned()
        })
        .await
    }
}

async fn serve(data_dir: &Path, name: &str, addresses: [SocketAddr; 2], token: Option<&str>) -> Child {
    let [address, control_plane] = addresses.map(|address| address.to_string());
    let mut child = cloister(data_dir)
        .arg("--data-dir")
        .arg(data_dir)
        .args(["serve", "node", "--name", name, "--domain", "apps.localhost"])
        .args(["--control-plane", &control_plane, "--listen", &address, "--endpoint", &address])
        .args(["--http-listen", "127.0.0.1:0"])
        .env("CLOISTER_LOG", "warn")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("cloister starts");
    if let Some(token) = token {
        let mut stdin = child.stdin.take().expect("its input");
        stdin.write_all(token.as_bytes()).await.expect("it reads its token");
    }
    child
}
