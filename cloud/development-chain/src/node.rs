//! The node's process.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;
use url::Url;

use crate::{CHAIN_ID, StartError, io};

/// How long the node may take to say where it listens.
const TIME_LIMIT: Duration = Duration::from_mins(1);
/// How it says that.
const LISTENING: &str = "Listening on ";
/// Most of what the node says that is repeated when it fails, in bytes.
const MAX_WORDS: u64 = 500;

/// A process that ends with this value, and at the latest with this process.
#[derive(Debug)]
pub(crate) struct Node {
    url: Url,
    running: Running,
    ended: Option<oneshot::Receiver<()>>,
    _lock: File,
}

/// The process while there is one: nothing else is ever signalled.
type Running = Arc<Mutex<Option<Pid>>>;

impl Node {
    pub(crate) async fn start(
        program: &Path,
        directory: &Path,
        port: Option<u16>,
    ) -> Result<Self, StartError> {
        fs::create_dir_all(directory).map_err(io("make its directory"))?;
        let lock = File::create(directory.join("lock")).map_err(io("lock its directory"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| StartError::InUse(directory.to_owned()))?;
        let (told, listening) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let running = Running::default();
        let log = directory.join("node.log");
        let written = File::create(&log).map_err(io("make the log of its node"))?;
        let command = command(program, directory, port, written);
        let kept = Arc::clone(&running);
        // A child told to die with its parent dies with the parent's *thread*: this one lasts as long as the child.
        thread::Builder::new()
            .name("development-chain".to_owned())
            .spawn(move || {
                supervise(command, &log, &kept, told);
                let _ = end.send(());
            })
            .map_err(io("start a thread"))?;
        // From here on, whatever fails ends the process.
        let mut node = Self { url: nowhere()?, running, ended: Some(ended), _lock: lock };
        let address = tokio::time::timeout(TIME_LIMIT, listening).await.map_err(|_| StartError::Silent)?;
        let address = address.map_err(|_| StartError::Silent)??;
        node.url = Url::parse(&format!("http://{address}")).map_err(|_| StartError::Silent)?;
        Ok(node)
    }

    pub(crate) const fn url(&self) -> &Url {
        &self.url
    }

    /// Ends the process and waits for that.
    pub(crate) async fn stop(mut self) {
        self.interrupt();
        if let Some(ended) = self.ended.take() {
            let _ = ended.await;
        }
    }

    /// The signal at which the node writes its state and ends.
    fn interrupt(&self) {
        if let Some(pid) = *self.running.lock() {
            let _ = kill_process(pid, Signal::INT);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.interrupt();
    }
}

fn nowhere() -> Result<Url, StartError> {
    Url::parse("http://127.0.0.1:0").map_err(|_| StartError::Silent)
}

fn command(program: &Path, directory: &Path, port: Option<u16>, log: File) -> Command {
    let mut command = Command::new("setpriv");
    // At this signal it writes its state.
    command.args(["--pdeathsig", "INT", "--"]).arg(program);
    command.args([
        "--host",
        "127.0.0.1",
        "--no-cors",
        "--preserve-historical-states",
        "--state-interval",
        "1",
    ]);
    command.args(["--port", &port.unwrap_or(0).to_string(), "--chain-id", &CHAIN_ID.to_string()]);
    command.arg("--state").arg(directory.join("state.json"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    command
}

/// Runs the process to its end; says where it listens once it does.
fn supervise(
    mut command: Command,
    log: &Path,
    running: &Running,
    told: oneshot::Sender<Result<String, StartError>>,
) {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let _ = told.send(Err(io("start its node")(error)));
            return;
        }
    };
    *running.lock() = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let mut told = Some(told);
    if let Some(output) = child.stdout.take() {
        read_all(output, &mut told);
    }
    // Whoever signals holds this lock: the number is not anybody else's yet.
    let mut pid = running.lock();
    let _ = child.wait();
    *pid = None;
    drop(pid);
    if let Some(told) = told {
        let _ = told.send(Err(StartError::Ended(last_words(log))));
    }
}

/// Reads until the process closes its output, so that it never waits for a reader.
fn read_all(output: ChildStdout, told: &mut Option<oneshot::Sender<Result<String, StartError>>>) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { return };
        if let Some(address) = line.strip_prefix(LISTENING)
            && let Some(told) = told.take()
        {
            let _ = told.send(Ok(address.trim().to_owned()));
        }
    }
}

fn last_words(log: &Path) -> String {
    let mut words = String::new();
    if let Ok(log) = File::open(log) {
        let _ = log.take(MAX_WORDS).read_to_string(&mut words);
    }
    words.trim().replace(char::is_control, " ")
}
