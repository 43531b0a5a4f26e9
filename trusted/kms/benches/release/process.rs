//! Servers as processes, and what they use.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cloister_development_tee::{HostProcess, HostProcessAgent};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::Outcome;
use crate::caller::Caller;
use crate::machine::{APP, COMPOSE_HASH};
use crate::vendor::Vendored;

/// Unit of CPU time in `/proc`: fixed by the kernel's interface.
const TICKS_PER_SECOND: u64 = 100;
const SERVER_CORE: &str = "0";
const CALLERS_CORE: &str = "1";

/// A server, until it is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// A KMS and what it needs around it.
pub(crate) struct KmsServer {
    pub(crate) server: Server,
    pub(crate) machine: Vendored,
    _agent: HostProcessAgent,
    _dir: TempDir,
}

/// Leaves the first core to the server, where there are two.
pub(crate) fn pin_myself() {
    let pid = std::process::id().to_string();
    let _ = Command::new("taskset").args(["-acp", CALLERS_CORE, &pid]).stdout(Stdio::null()).status();
}

impl Server {
    pub(crate) fn bare() -> Outcome<Self> {
        Self::start(&["bare"])
    }

    fn start(arguments: &[&str]) -> Outcome<Self> {
        let myself = std::env::current_exe()?;
        let mut child = Command::new("taskset")
            .args(["-c", SERVER_CORE])
            .arg(myself)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let address = line.trim().parse().map_err(|_| "the server did not start")?;
        Ok(Self { child, address })
    }

    /// A KMS that releases keys to the machines of its platform.
    pub(crate) async fn kms() -> Outcome<KmsServer> {
        // Not /tmp, which may be memory.
        let parent = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, Into::into);
        let dir = tempfile::tempdir_in(parent)?;
        let machine = Vendored::new()?;
        fs::write(dir.path().join("root.pem"), machine.vendor.root_pem())?;
        let rules = json!({
            "platform": {"allowedTcbStatuses": ["UpToDate"]},
            "apps": {hex::encode(APP): [hex::encode(COMPOSE_HASH)]},
        });
        fs::write(dir.path().join("rules.json"), serde_json::to_vec(&rules)?)?;
        let process = HostProcess::measure(&dir.path().join("tee"), &std::env::current_exe()?)?;
        let (_, platform) = watch::channel(Some(Arc::clone(&machine.platform)));
        let agent = HostProcessAgent::serve(&dir.path().join("agent/socket"), Arc::new(process), platform)?;
        let pccs = format!("http://{}", machine.serve().await?);
        let server = Self::start_beside(dir.path(), &pccs).await?;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build()?;
        let base = format!("http://{}", server.address);
        let bootstrap = http.post(format!("{base}/prpc/Onboard.Bootstrap?json"));
        bootstrap.body(r#"{"domain":"kms.example"}"#).send().await?.error_for_status()?;
        http.get(format!("{base}/finish")).send().await?.error_for_status()?;
        let holder = machine.holder()?;
        let mut tries = 0;
        while let Err(error) = Caller::connect(server.address, &holder).await {
            tries += 1;
            if tries > 100 {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(KmsServer { server, machine, _agent: agent, _dir: dir })
    }

    /// While this process answers its questions.
    async fn start_beside(dir: &Path, pccs: &str) -> Outcome<Self> {
        let (dir, pccs) = (dir.to_string_lossy().into_owned(), pccs.to_owned());
        tokio::task::spawn_blocking(move || Self::start(&["serve", &dir, &pccs])).await?
    }

    /// CPU time so far, of all threads, in the kernel too.
    pub(crate) fn cpu(&self) -> Outcome<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, fields) = stat.rsplit_once(") ").ok_or("no such process")?;
        let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
        Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    }

    /// Resident memory, in KiB.
    pub(crate) fn memory(&self) -> Outcome<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no such process")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
