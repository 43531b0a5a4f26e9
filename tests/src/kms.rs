//! A key management service beside a cloud under test, as a process of the real command.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cloister_control_plane::kms::KmsConfig;
use cloister_kms_api::{BootstrapRequest, method};
use cloister_node::HostProcess;
use cloister_ra_tls::{AuthorityPolicy, authority_client_config, public_key_of_pem};
use jiff::Timestamp;
use tokio::process::{Child, Command};

use crate::{PATIENCE, eventually, free_addresses, paths};

const CALL_TIMEOUT: Duration = Duration::from_secs(40);
/// Long enough for a token, and of no use elsewhere.
const TOKEN: &str = "the-token-of-the-administrator-under-test";

/// Where the service of a data directory is: at the same addresses in all its lives, because CVMs keep
/// them.
#[derive(Debug, Clone)]
pub struct KmsPlace {
    data_dir: PathBuf,
    release: SocketAddr,
    directory: SocketAddr,
}

/// A running service. It ends with the process that started it.
#[derive(Debug)]
pub struct Kms(#[expect(dead_code, reason = "its standard input keeps the service alive")] Child);

impl KmsPlace {
    /// The place in a data directory; chosen when it is asked for the first time.
    #[must_use]
    pub fn of(data_dir: &Path) -> Self {
        let kept = data_dir.join("kms-ports.json");
        let ports: [u16; 2] = std::fs::read(&kept).map_or_else(
            |_| {
                let ports = free_addresses().map(|address| address.port());
                std::fs::create_dir_all(data_dir).expect("the data directory");
                std::fs::write(&kept, serde_json::to_vec(&ports).expect("JSON")).expect("a file");
                ports
            },
            |text| serde_json::from_slice(&text).expect("two ports"),
        );
        let [release, directory] = ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        Self { data_dir: data_dir.to_owned(), release, directory }
    }

    /// How the control plane knows it.
    #[must_use]
    pub fn config(&self) -> KmsConfig {
        let url = |text: String| text.parse().expect("a URL");
        KmsConfig {
            slug: "local".to_owned(),
            guest_url: url(format!("https://10.0.2.2:{}", self.release.port())),
            directory_url: url(format!("https://{}", self.directory)),
            ca_file: self.root_file(),
            admin_token_file: self.token_file(),
            contract: None,
        }
    }

    /// What the node plays a machine for.
    #[must_use]
    pub fn host_process(&self) -> HostProcess {
        HostProcess {
            socket: self.agent_socket(),
            executable: paths::program("cloister").expect("a built program"),
        }
    }

    /// Starts the service, onboards it at its first start, and waits until it serves. The node must run;
    /// the control plane publishes the root and the collateral of the development vendor.
    pub async fn start(&self, development_root: &Path, api: SocketAddr) -> Kms {
        std::fs::create_dir_all(self.dir()).expect("a directory");
        std::fs::write(self.token_file(), TOKEN).expect("a file");
        let mut child = self.spawn(development_root, api);
        eventually("the KMS serves", PATIENCE, async || {
            // The service of a former life may have the addresses for a moment longer.
            if child.try_wait().expect("its status").is_some() {
                child = self.spawn(development_root, api);
            }
            if self.serves().await.is_none() {
                self.onboard().await?;
            }
            self.serves().await
        })
        .await;
        Kms(child)
    }

    fn spawn(&self, development_root: &Path, api: SocketAddr) -> Child {
        Command::new(self.host_process().executable)
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(["serve", "kms", "--exit-with-parent"])
            .args(["--listen", &self.release.to_string()])
            .args(["--directory-listen", &self.directory.to_string()])
            .arg("--agent-socket")
            .arg(self.agent_socket())
            .arg("--admin-token-file")
            .arg(self.token_file())
            .arg("--development-root")
            .arg(development_root)
            .args(["--pccs-url", &format!("http://{api}/development-pccs")])
            .env("CLOISTER_LOG", "warn")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("cloister starts")
    }

    async fn serves(&self) -> Option<()> {
        let root = std::fs::read_to_string(self.root_file()).ok()?;
        let policy = AuthorityPolicy::kms(Some(public_key_of_pem(&root).ok()?));
        let tls = authority_client_config(policy, None, now).ok()?;
        let http = client().tls_backend_preconfigured(tls).build().ok()?;
        let answer = http.get(format!("https://{}/health", self.directory)).send().await.ok()?;
        answer.status().is_success().then_some(())
    }

    /// A root that was made before stays.
    async fn onboard(&self) -> Option<()> {
        let (base, http) = (format!("http://{}", self.release), client().build().ok()?);
        let request = BootstrapRequest { domain: "10.0.2.2".to_owned() };
        http.post(format!("{base}{}?json", method::BOOTSTRAP)).json(&request).send().await.ok()?;
        let finished = http.get(format!("{base}{}", method::FINISH)).send().await.ok()?;
        finished.status().is_success().then_some(())
    }

    fn dir(&self) -> PathBuf {
        self.data_dir.join("kms")
    }

    fn root_file(&self) -> PathBuf {
        self.dir().join("root-ca.pem")
    }

    fn token_file(&self) -> PathBuf {
        self.dir().join("admin-token")
    }

    fn agent_socket(&self) -> PathBuf {
        self.data_dir.join("node/run/kms-agent.sock")
    }
}

fn client() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(CALL_TIMEOUT)
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + std::time::UNIX_EPOCH.elapsed().unwrap_or_default()
}
