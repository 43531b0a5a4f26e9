//! A key management service in a process of its own, which this process starts, onboards, watches and ends.
//!
//! It is a separate process so that nothing of the control plane or the node shares its memory, and the
//! same program, so that nothing else must be installed.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cloister_chain::Address;
use cloister_control_plane::kms::{KmsConfig, KmsContract};
use cloister_kms_api::{BootstrapRequest, method};
use cloister_ra_tls::{AuthorityPolicy, authority_client_config, public_key_of_pem};
use cloister_verifier::Clock;
use tempfile::NamedTempFile;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::failure::{Exit, Failure};
use crate::logging;

/// Its directory in that of the cloud.
pub(crate) const DIRECTORY: &str = "kms";
/// The administrator's token in that directory.
pub(crate) const ADMIN_TOKEN_FILE: &str = "admin-token";
/// The certificates of its roots in that directory.
pub(crate) const ROOT_FILE: &str = "root-ca.pem";
/// The port for releases in that directory.
const PORT_FILE: &str = "port";
/// Name of the KMS whose built-in rules decide.
pub(crate) const SLUG: &str = "local";
/// Under which address guests reach this machine.
const HOST_FOR_GUESTS: &str = "10.0.2.2";
/// This program, also after its file was replaced: what was measured is what runs.
pub(crate) const PROGRAM: &str = "/proc/self/exe";

const PAUSE: Duration = Duration::from_millis(100);
/// The first start waits for the certificate of the platform that vouches for it.
const UP_PATIENCE: Duration = Duration::from_mins(1);
/// Longest that one question to it may take; the first root is made with fresh evidence.
const CALL_TIMEOUT: Duration = Duration::from_secs(40);
/// Longest that it gets to end.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Pauses before it is started again, from the shortest to the longest.
const RESTART_PAUSES: std::ops::Range<Duration> = Duration::from_millis(200)..Duration::from_secs(30);
/// Who ran so long has failed for a new reason.
const STABLE: Duration = Duration::from_mins(1);

/// What to start.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// Its name in the installation.
    pub(crate) slug: &'static str,
    /// The contract that decides instead of the built-in rules.
    pub(crate) governed: Option<Governed>,
    /// Its own directory, which has the name [`DIRECTORY`].
    pub(crate) dir: PathBuf,
    /// Onboarding and release.
    pub(crate) listen: SocketAddr,
    /// Directory.
    pub(crate) directory: SocketAddr,
    /// Where the node answers as its guest agent.
    pub(crate) agent_socket: PathBuf,
    /// The root of the development vendor, PEM.
    pub(crate) development_root: PathBuf,
    /// Where the vendor serves its collateral.
    pub(crate) pccs_url: String,
    /// What it logs.
    pub(crate) log: String,
}

/// A contract that decides for a KMS.
#[derive(Debug, Clone)]
pub(crate) struct Governed {
    /// Its chain, a development chain.
    pub(crate) chain_id: u64,
    /// Its address.
    pub(crate) contract: Address,
    /// File with the endpoints of the chain.
    pub(crate) endpoints: PathBuf,
}

impl Governed {
    /// The options of `serve kms` that say so. A development chain makes blocks when there is something to put into
    /// them: no block has others on top, and the newest one may be old.
    fn options(&self) -> Vec<String> {
        let endpoints = self.endpoints.display().to_string();
        let (chain_id, contract) = (self.chain_id.to_string(), self.contract.to_string());
        let options = [
            ("--kms-contract", contract.as_str()),
            ("--chain-id", &chain_id),
            ("--chain-rpc-file", &endpoints),
            ("--chain-confirmations", "0"),
            ("--chain-max-head-age", "0"),
        ];
        options.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]).collect()
    }
}

/// A running KMS.
#[derive(Debug)]
pub(crate) struct KmsPart {
    stop: CancellationToken,
    supervisor: JoinHandle<()>,
}

impl KmsPart {
    /// Starts it and waits until it serves. From then on it is started again whenever it ends.
    pub(crate) async fn start(setup: Setup) -> Result<Self, Failure> {
        let stop = CancellationToken::new();
        let (up, mut is_up) = watch::channel(false);
        let supervisor = tokio::spawn(supervise(setup, up, stop.clone()));
        let part = Self { stop, supervisor };
        if timeout(UP_PATIENCE, is_up.wait_for(|up| *up)).await.is_ok_and(|up| up.is_ok()) {
            return Ok(part);
        }
        part.stop().await;
        Err(Failure::new(Exit::TimedOut, "the key management service did not come up")
            .hint("see why: cloister up -v"))
    }

    /// Ends it.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = self.supervisor.await;
    }
}

impl Setup {
    /// How the control plane knows it.
    pub(crate) fn config(&self) -> Result<KmsConfig, Failure> {
        let url = |text: String| {
            text.parse::<Url>().map_err(|error| Failure::local("the address of the KMS makes no URL", error))
        };
        Ok(KmsConfig {
            slug: self.slug.to_owned(),
            guest_url: url(format!("https://{HOST_FOR_GUESTS}:{}", self.listen.port()))?,
            directory_url: url(self.directory_url())?,
            ca_file: self.dir.join(ROOT_FILE),
            admin_token_file: self.dir.join(ADMIN_TOKEN_FILE),
            contract: self.governed.as_ref().map(|governed| KmsContract {
                chain_id: governed.chain_id,
                address: governed.contract.into_array(),
            }),
        })
    }

    /// Where this machine reaches the directory.
    pub(crate) fn directory_url(&self) -> String {
        format!("https://{}", super::local(self.directory))
    }

    /// Makes its directory, and the administrator's token at the first start.
    pub(crate) fn prepare(&self) -> Result<(), Failure> {
        let failed = |error| Failure::local(format!("cannot use {}", self.dir.display()), error);
        std::fs::create_dir_all(&self.dir).map_err(failed)?;
        make_token(&self.dir.join(ADMIN_TOKEN_FILE)).map_err(failed)?;
        std::fs::write(self.dir.join(PORT_FILE), self.listen.port().to_string()).map_err(failed)
    }

    fn spawn(&self) -> std::io::Result<Child> {
        Command::new(PROGRAM)
            .arg0("cloister")
            // Nothing of this process's environment is meant for it.
            .env_clear()
            .env(logging::VARIABLE, &self.log)
            .arg("--data-dir")
            .arg(self.dir.parent().unwrap_or(&self.dir))
            .args(["serve", "kms", "--exit-with-parent", "--listen"])
            .arg(self.listen.to_string())
            .arg("--directory-listen")
            .arg(self.directory.to_string())
            .arg("--agent-socket")
            .arg(&self.agent_socket)
            .arg("--admin-token-file")
            .arg(self.dir.join(ADMIN_TOKEN_FILE))
            .arg("--development-root")
            .arg(&self.development_root)
            .args(["--pccs-url", &self.pccs_url])
            .args(self.governed.iter().flat_map(Governed::options))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C in a terminal is for this process, which ends the KMS last.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    /// Waits until it serves, and onboards it if nobody has.
    async fn bring_up(&self) {
        loop {
            match self.try_bring_up().await {
                Ok(()) => return,
                // It may just be starting; what is wrong with it, it says itself.
                Err(error) => tracing::debug!(error = error.as_ref(), "the KMS does not serve yet"),
            }
            sleep(PAUSE).await;
        }
    }

    async fn try_bring_up(&self) -> Result<(), BoxedError> {
        let Err(unhealthy) = self.health().await else { return Ok(()) };
        self.onboard().await.map_err(|_| unhealthy)?;
        self.health().await
    }

    /// Whether the directory answers and shows the root that is in this directory.
    async fn health(&self) -> Result<(), BoxedError> {
        let root = tokio::fs::read_to_string(self.dir.join(ROOT_FILE)).await?;
        let policy = AuthorityPolicy::kms(Some(public_key_of_pem(&root)?));
        let clock = Clock::system();
        let tls = authority_client_config(policy, None, move || clock.now())?;
        let http = client().tls_backend_preconfigured(tls).build()?;
        http.get(format!("{}/health", self.directory_url())).send().await?.error_for_status()?;
        Ok(())
    }

    /// Makes the first root and ends onboarding. One that is made already stays: a start that was
    /// interrupted in between goes on here.
    async fn onboard(&self) -> Result<(), BoxedError> {
        let base = format!("http://{}", super::local(self.listen));
        let http = client().build()?;
        let request = BootstrapRequest { domain: HOST_FOR_GUESTS.to_owned() };
        let answer = http.post(format!("{base}{}?json", method::BOOTSTRAP)).json(&request).send().await?;
        let is_new = answer.status().is_success();
        http.get(format!("{base}{}", method::FINISH)).send().await?.error_for_status()?;
        if is_new {
            tracing::info!("the KMS made its first root");
        }
        Ok(())
    }
}

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

fn client() -> reqwest::ClientBuilder {
    reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(CALL_TIMEOUT)
}

/// Keeps one process running until it is told to stop.
async fn supervise(setup: Setup, up: watch::Sender<bool>, stop: CancellationToken) {
    let mut pause = RESTART_PAUSES.start;
    loop {
        let started = Instant::now();
        match setup.spawn() {
            Ok(child) => {
                if watch_over(child, &setup, &up, &stop).await {
                    return;
                }
            }
            Err(error) => tracing::error!(%error, "cannot start the key management service"),
        }
        if started.elapsed() > STABLE {
            pause = RESTART_PAUSES.start;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        pause = (pause * 2).min(RESTART_PAUSES.end);
    }
}

/// Stays with a process until its end; whether that was asked for.
async fn watch_over(
    mut child: Child,
    setup: &Setup,
    up: &watch::Sender<bool>,
    stop: &CancellationToken,
) -> bool {
    let brought_up = async {
        setup.bring_up().await;
        up.send_replace(true);
        std::future::pending::<()>().await;
    };
    // Waiting for a child closes its standard input, which would end it.
    let lifeline = child.stdin.take();
    tokio::select! {
        ended = child.wait() => {
            let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            tracing::error!(status, "the key management service ended; starting it again");
            false
        }
        () = brought_up => false,
        () = stop.cancelled() => {
            drop(lifeline);
            if timeout(END_PATIENCE, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
            true
        }
    }
}

/// The port of the last start of a cloud, for CVMs keep the address.
pub(crate) fn port_before(home: &Path) -> Option<u16> {
    std::fs::read_to_string(home.join(DIRECTORY).join(PORT_FILE)).ok()?.parse().ok()
}

/// Makes the administrator's token unless there is one.
fn make_token(path: &Path) -> std::io::Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    let mut token = [0; 32];
    getrandom::fill(&mut token).map_err(std::io::Error::other)?;
    // Readable by its owner only.
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(path))?;
    writeln!(file, "{}", hex::encode(token))?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_token_is_made_once_and_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(ADMIN_TOKEN_FILE);
        make_token(&path).unwrap();
        let token = std::fs::read_to_string(&path).unwrap();
        assert_eq!(token.trim().len(), 64);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        make_token(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), token);
    }
}
