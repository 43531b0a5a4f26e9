//! `cloister serve kms` on a development platform.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloister_development_tee::{HostProcess, HostProcessAgent, Platform, PlatformKey};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::guest::{Guest, serve};
use crate::support::{bare, transcript};

const PATIENCE: Duration = Duration::from_mins(1);

/// A KMS, its platform, and a home for commands.
pub(crate) struct Service {
    pub(crate) home: TempDir,
    pub(crate) measurement: String,
    pub(crate) pccs: String,
    guest: Arc<Guest>,
    process: Child,
    _agent: HostProcessAgent,
    _runtime: tokio::runtime::Runtime,
}

impl Service {
    /// Starts a KMS that nobody has onboarded.
    pub(crate) fn start() -> Self {
        let guest = Arc::new(Guest::new());
        let pccs = format!("http://{}", serve(&guest, None));
        Self::on(guest, pccs)
    }

    /// Starts another one, on another platform of the same vendor.
    pub(crate) fn start_beside(&self) -> Self {
        Self::on(Arc::clone(&self.guest), self.pccs.clone())
    }

    fn on(guest: Arc<Guest>, pccs: String) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("root.pem"), guest.vendor.root_pem()).unwrap();
        let token = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n";
        std::fs::create_dir_all(home.path().join("cloud/kms")).unwrap();
        std::fs::write(home.path().join("cloud/kms/admin-token"), token).unwrap();

        let key = PlatformKey::generate().unwrap();
        let chain = guest.vendor.issue_platform_certificate(key.ppid(), key.public_key(), guest.now).unwrap();
        let platform = Arc::new(Platform::new(key, &chain).unwrap());
        let program = PathBuf::from(env!("CARGO_BIN_EXE_cloister"));
        let machine = Arc::new(HostProcess::measure(home.path(), &program).unwrap());
        let measurement = hex::encode(machine.mr_aggregated());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let socket = home.path().join("agent/agent.sock");
        let (_, platform) = watch::channel(Some(platform));
        let agent = {
            let _guard = runtime.enter();
            HostProcessAgent::serve(&socket, machine, platform).unwrap()
        };
        let process = spawn(&home, &pccs);
        let service = Self { home, measurement, pccs, guest, process, _agent: agent, _runtime: runtime };
        service.wait("its address", || service.home.path().join("cloud/kms/endpoint.json").exists());
        service
    }

    /// Kills it and starts it again.
    pub(crate) fn restart(&mut self) {
        std::fs::remove_file(self.home.path().join("cloud/kms/endpoint.json")).unwrap();
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = spawn(&self.home, &self.pccs);
        self.wait("its address", || self.home.path().join("cloud/kms/endpoint.json").exists());
    }

    /// Makes the first root and ends onboarding.
    pub(crate) fn onboard(&self) {
        assert!(self.run("kms bootstrap --domain 127.0.0.1").status.success());
        assert!(self.run("kms finish").status.success());
        self.wait("its directory", || self.run("kms status --json").status.success());
    }

    /// A command of somebody who uses the same data directory.
    pub(crate) fn run(&self, line: &str) -> Output {
        bare(&self.home, &format!("{line} --data-dir cloud")).output().unwrap()
    }

    /// The same, with what a person sees and without what is different each time.
    pub(crate) fn show(&self, line: &str) -> String {
        settled(&transcript(line, &self.run(line)))
    }

    /// Where it is, by `directory_url` or `release_url`.
    pub(crate) fn url(&self, which: &str) -> String {
        let text = std::fs::read_to_string(self.home.path().join("cloud/kms/endpoint.json")).unwrap();
        let endpoint: serde_json::Value = serde_json::from_str(&text).unwrap();
        endpoint[which].as_str().unwrap().to_owned()
    }

    pub(crate) fn wait(&self, what: &str, is_there: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_there() {
            assert!(begin.elapsed() < PATIENCE, "no {what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it logged.
    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("kms.log")).unwrap_or_default()
    }
}

fn spawn(home: &TempDir, pccs: &str) -> Child {
    let line = "--data-dir cloud serve kms --listen 127.0.0.1:0 --directory-listen 127.0.0.1:0 \
                --agent-socket agent/agent.sock --admin-token-file cloud/kms/admin-token --development-root root.pem";
    let log = std::fs::File::create(home.path().join("kms.log")).unwrap();
    let mut command: Command = bare(home, line);
    command.args(["--pccs-url", pccs]).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Long runs of hex digits and points in time have names instead.
fn settled(text: &str) -> String {
    let mut settled = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let hex = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        let time = time_length(rest);
        let taken = if hex >= 40 {
            settled.push_str("HEX");
            hex
        } else if time > 0 {
            settled.push_str("TIME");
            time
        } else {
            settled.push(first);
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    settled
}

/// Length of a point in time such as `2026-11-21T12:00:00Z`; 0 if the text does not begin with one.
fn time_length(text: &str) -> usize {
    let word = text.split([' ', '\n', '"', ',']).next().unwrap_or_default();
    if word.parse::<jiff::Timestamp>().is_ok() { word.len() } else { 0 }
}
