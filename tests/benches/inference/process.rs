//! The processes that are measured, each on its processor.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::Failure;
use crate::load::BODY;

const START_PATIENCE: Duration = Duration::from_mins(2);
const END_PATIENCE: Duration = Duration::from_mins(1);
const KEY: &str = "sk-of-the-bench";
/// Where chats are posted.
const CHAT: &str = "/v1/chat/completions";
/// What is written here is in memory.
const MEMORY: &str = "/dev/shm";

/// Numbers of processors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpus {
    /// Of the load generator and the upstream.
    pub(crate) load: u32,
    /// Of the gateway. The same where there is only one.
    pub(crate) gateway: u32,
}

/// The first and the last processor that this process may have, as it was at first.
pub(crate) fn cpus() -> Cpus {
    static CPUS: OnceLock<Cpus> = OnceLock::new();
    *CPUS.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
        let mut numbers = list.split([',', '-']).flat_map(|number| number.trim().parse());
        let load = numbers.next().unwrap_or(0);
        Cpus { load, gateway: numbers.last().unwrap_or(load) }
    })
}

/// A running server. It ends with the bench.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) path: &'static str,
    /// What is posted there; `None` asks for it.
    pub(crate) body: Option<&'static str>,
    pub(crate) headers: Vec<(String, String)>,
    /// Where its records are, if they are in memory.
    _memory: Option<TempDir>,
    /// Others ask it: it cannot wait while they have their turns.
    is_upstream: bool,
}

impl Process {
    /// A server on the processor of the gateway.
    fn new(child: Child, address: SocketAddr, path: &'static str, body: Option<&'static str>) -> Self {
        Self { child, address, path, body, headers: Vec::new(), _memory: None, is_upstream: false }
    }

    /// Stops it until it is to [go on](Self::go_on), unless others ask it: whatever it does beside its answers would be done
    /// while another one is measured on its processor.
    pub(crate) fn stop(&self) -> Result<(), Failure> {
        if self.is_upstream { Ok(()) } else { self.tell(Signal::STOP) }
    }

    /// Lets it go on, if it is stopped.
    pub(crate) fn go_on(&self) -> Result<(), Failure> {
        self.tell(Signal::CONT)
    }

    /// Signals it and what it started.
    fn tell(&self, signal: Signal) -> Result<(), Failure> {
        let root = self.child.id().ok_or("the process has ended")?;
        for pid in family(root)?.into_iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
            match kill_process(pid, signal) {
                // What it started may have ended by now.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Time that its threads, and those of its children, spent on processors.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        let root = self.child.id().ok_or("the process has ended")?;
        let mut ticks = 0;
        for pid in family(root)? {
            let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
            let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
            let fields: Vec<&str> = rest.split_whitespace().collect();
            // utime and stime, fields 14 and 15 of proc(5), after the name.
            for index in [11, 12] {
                ticks += fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
            }
        }
        // USER_HZ is 100 on every Linux.
        Ok(Duration::from_millis(ticks * 10))
    }

    /// Resident memory, in megabytes.
    pub(crate) fn resident_mb(&self) -> Result<f64, Failure> {
        let root = self.child.id().ok_or("the process has ended")?;
        let mut kib = 0.0;
        for pid in family(root)? {
            let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
            kib +=
                line.split_whitespace().next().and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0);
        }
        Ok(kib * 1024.0 / 1e6)
    }
}

impl Process {
    /// Ends it as its supervisor would, and waits until it has ended well.
    pub(crate) async fn end(mut self) -> Result<(), Failure> {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        kill_process(pid.ok_or("the process has ended")?, Signal::TERM)?;
        let ended = tokio::time::timeout(END_PATIENCE, self.child.wait()).await;
        let status = ended.map_err(|_| "the process was told to end, and goes on")??;
        if status.success() { Ok(()) } else { Err(format!("the process ended with {status}").into()) }
    }
}

/// A process and those that it started.
fn family(root: u32) -> Result<Vec<u32>, Failure> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten() {
            let children = std::fs::read_to_string(task?.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().flat_map(str::parse::<u32>));
        }
    }
    Ok(found)
}

/// Puts this process, and what it starts from now on, on one processor.
pub(crate) fn pin_this(cpu: u32) -> Result<(), Failure> {
    let pid = std::process::id().to_string();
    let done = std::process::Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid", &cpu.to_string(), &pid])
        .stdout(Stdio::null())
        .status()?;
    if done.success() { Ok(()) } else { Err("taskset refuses to choose a processor".into()) }
}

fn pinned(cpu: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cpu.to_string()]).arg(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    command
}

fn free_address() -> Result<SocketAddr, Failure> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn log_file(directory: &Path, name: &str) -> Result<Stdio, Failure> {
    Ok(std::fs::File::create(directory.join(name))?.into())
}

/// The bare upstream.
pub(crate) async fn mock(directory: &Path) -> Result<Process, Failure> {
    part_of_this(directory, cpus().load, "mock", &[]).await
}

/// A process in between that looks at nothing.
pub(crate) async fn relay(directory: &Path, upstream: SocketAddr) -> Result<Process, Failure> {
    part_of_this(directory, cpus().gateway, "relay", &[upstream.to_string()]).await
}

/// Another process of this program. `more` stands behind its address.
async fn part_of_this(directory: &Path, cpu: u32, part: &str, more: &[String]) -> Result<Process, Failure> {
    let address = free_address()?;
    let child = pinned(cpu, std::env::current_exe()?)
        .args([part, &address.to_string()])
        .args(more)
        .stderr(log_file(directory, &format!("{part}.log"))?)
        .spawn()?;
    let is_upstream = part == "mock";
    ready(Process { is_upstream, ..Process::new(child, address, CHAT, Some(BODY)) }).await
}

/// What a gateway does without, to see what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Without {
    Nothing,
    /// Lines for requests.
    AccessLog,
    /// The public log of receipts' hashes.
    ReceiptLog,
    /// A disk below the records: they are in memory.
    Disk,
}

/// What is measured: `CLOISTER_BENCH_PROGRAM`, or what was built beside the bench.
fn program() -> Result<PathBuf, Failure> {
    if let Some(program) = std::env::var_os("CLOISTER_BENCH_PROGRAM") {
        return Ok(program.into());
    }
    let beside = std::env::current_exe()?.ancestors().nth(2).map(|dir| dir.join("cloister"));
    beside.ok_or_else(|| "the bench lies in no directory".into())
}

/// The gateway with receipts and accounting.
pub(crate) async fn gateway(
    directory: &Path,
    upstream: SocketAddr,
    without: Without,
) -> Result<Process, Failure> {
    let address = free_address()?;
    // Each with a state of its own.
    let directory = directory.join(format!("{without:?}"));
    std::fs::create_dir(&directory)?;
    let config = directory.join("gateway.json");
    let memory = (without == Without::Disk).then(|| tempfile::tempdir_in(MEMORY)).transpose()?;
    let state = memory.as_ref().map_or_else(|| directory.join("state"), |memory| memory.path().join("state"));
    let text = json!({
        "bind": address,
        "state_dir": state,
        "receipts": {"log": without != Without::ReceiptLog},
        "keys": [{"name": "bench", "sha256": hex::encode(Sha256::digest(KEY))}],
        "upstreams": [
            {"name": "bare", "base_url": format!("http://{upstream}"), "models": {"bench": "bench"}, "zdr": true},
        ],
        "models": [{"id": "bench", "pricing": {"prompt": "0.000001", "completion": "0.000002"}}],
    });
    std::fs::write(&config, serde_json::to_vec(&text)?)?;
    let child = pinned(cpus().gateway, program()?)
        .args(["serve", "inference-gateway", "--config"])
        .arg(&config)
        .env("CLOISTER_LOG", if without == Without::AccessLog { "error" } else { "info" })
        .stderr(log_file(&directory, "gateway.log")?)
        .spawn()?;
    let headers = vec![("authorization".to_owned(), format!("Bearer {KEY}"))];
    ready(Process { headers, _memory: memory, ..Process::new(child, address, CHAT, Some(BODY)) }).await
}

/// A control plane with an embedded database, asked by its administrator.
pub(crate) async fn control_plane(directory: &Path) -> Result<Process, Failure> {
    let [address, fleet] = [free_address()?, free_address()?];
    let data = directory.join("control-plane");
    let child = pinned(cpus().gateway, program()?)
        .arg("--data-dir")
        .arg(&data)
        .args(["serve", "control-plane", "--api-listen", &address.to_string()])
        .args(["--fleet-listen", &fleet.to_string(), "--requests-per-minute", "0"])
        .env("CLOISTER_LOG", "warn")
        .stderr(log_file(directory, "control-plane.log")?)
        .spawn()?;
    let (credentials, kept_as) = (data.join("credentials.json"), format!("http://{address}/api/v1"));
    let deadline = Instant::now() + START_PATIENCE;
    let key = loop {
        if let Some(key) = cloister_tests::command::kept_key(&credentials, &kept_as) {
            break key;
        }
        if Instant::now() > deadline {
            return Err("the control plane does not start".into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let headers = vec![("x-api-key".to_owned(), key)];
    ready(Process { headers, ..Process::new(child, address, "/api/v1/auth/me", None) }).await
}

type Starting<'a> = Pin<Box<dyn Future<Output = Result<Process, Failure>> + 'a>>;
/// Starts a peer before an upstream.
pub(crate) type Start = for<'a> fn(&'a Path, SocketAddr) -> Starting<'a>;

/// A gateway that others publish.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) start: Start,
    /// What the rate of ours beside its is called.
    pub(crate) goal: &'static str,
    /// How many times its rate ours should be.
    pub(crate) times: f64,
}

pub(crate) const PEERS: [Peer; 2] = [
    Peer {
        name: "Portkey (npm)",
        start: |directory, upstream| Box::pin(portkey(directory, upstream)),
        goal: "rate, of Portkey's",
        times: 10.0,
    },
    Peer {
        name: "LiteLLM (PyPI)",
        start: |directory, upstream| Box::pin(litellm(directory, upstream)),
        goal: "rate, of LiteLLM's",
        times: 50.0,
    },
];

fn peers() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/inference-peers")).to_owned()
}

async fn portkey(directory: &Path, upstream: SocketAddr) -> Result<Process, Failure> {
    let address = free_address()?;
    let child = pinned(cpus().gateway, "node")
        .arg(peers().join("node_modules/@portkey-ai/gateway/build/start-server.js"))
        .args([format!("--port={}", address.port()), "--headless".to_owned()])
        .env("NODE_ENV", "production")
        .stderr(log_file(directory, "portkey.log")?)
        .spawn()?;
    let header = |name: &str, value: String| (name.to_owned(), value);
    let headers = vec![
        header("authorization", format!("Bearer {KEY}")),
        header("x-portkey-provider", "openai".to_owned()),
        header("x-portkey-custom-host", format!("http://{upstream}/v1")),
    ];
    ready(Process { headers, ..Process::new(child, address, CHAT, Some(BODY)) }).await
}

async fn litellm(directory: &Path, upstream: SocketAddr) -> Result<Process, Failure> {
    let address = free_address()?;
    let config = directory.join("litellm.yaml");
    std::fs::write(
        &config,
        format!(
            "model_list:\n  - model_name: bench\n    litellm_params:\n      model: openai/bench\n      \
             api_base: http://{upstream}/v1\n      api_key: none\ngeneral_settings:\n  master_key: {KEY}\n"
        ),
    )?;
    let child = pinned(cpus().gateway, "python3")
        .arg(peers().join("python/bin/litellm"))
        .args([
            "--host",
            "127.0.0.1",
            "--port",
            &address.port().to_string(),
            "--num_workers",
            "1",
            "--config",
        ])
        .arg(&config)
        .env("PYTHONPATH", peers().join("python"))
        .stderr(log_file(directory, "litellm.log")?)
        .spawn()?;
    let headers = vec![("authorization".to_owned(), format!("Bearer {KEY}"))];
    ready(Process { headers, ..Process::new(child, address, CHAT, Some(BODY)) }).await
}

/// Waits until a request is answered.
async fn ready(mut process: Process) -> Result<Process, Failure> {
    let http = cloister_tests::http::plain_client();
    let url = format!("http://{}{}", process.address, process.path);
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        let mut request = match process.body {
            Some(body) => http.post(&url).header("content-type", "application/json").body(body),
            None => http.get(&url),
        };
        for (name, value) in &process.headers {
            request = request.header(name, value);
        }
        if let Ok(answer) = request.send().await {
            let status = answer.status();
            let text = answer.text().await.unwrap_or_default();
            if status.is_success() && serde_json::from_str::<Value>(&text).is_ok() {
                return Ok(process);
            }
            if Instant::now() > deadline {
                return Err(format!("{url} answers {status}: {text}").into());
            }
        }
        if let Some(status) = process.child.try_wait()? {
            return Err(format!("what was to answer at {url} ended with {status}").into());
        }
        if Instant::now() > deadline {
            return Err(format!("{url} does not answer").into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
