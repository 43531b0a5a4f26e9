//! The `cloister` command as a person uses it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::PATIENCE;
use crate::api::Api;
use crate::paths;

const LISTENERS: [&str; 9] =
    ["api", "fleet", "node", "http", "https", "kms", "kms-directory", "inference", "echo"];

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Ran {
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Its data.
    pub stdout: String,
    /// Its words.
    pub stderr: String,
}

impl Ran {
    /// The JSON document that it printed.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A cloud on this machine, in the foreground of another process.
pub struct Up {
    child: Child,
    stdout: BufReader<ChildStdout>,
    data_dir: PathBuf,
    /// What `cloister up --json` printed when the cloud was up.
    pub document: Value,
}

impl Up {
    /// Starts `cloister up --json` on free ports and waits until it is up. Words go to this process'
    /// stderr.
    pub async fn start(data_dir: &Path, deploy: Option<&Path>) -> Self {
        Self::start_with_images(data_dir, &paths::guest_images(), deploy).await
    }

    /// Like [`Up::start`] with another directory of guest images.
    pub async fn start_with_images(data_dir: &Path, images: &Path, deploy: Option<&Path>) -> Self {
        Self::start_with(data_dir, images, deploy, &[]).await
    }

    /// Like [`Up::start`] with a development chain, under whose contract the application is.
    pub async fn start_with_chain(data_dir: &Path, deploy: Option<&Path>) -> Self {
        let options = ["--development-chain", "--contract-kms-listen", "127.0.0.1:0"];
        let options = [&options[..], &["--contract-kms-directory-listen", "127.0.0.1:0"]].concat();
        Self::start_with(data_dir, &paths::guest_images(), deploy, &options).await
    }

    async fn start_with(data_dir: &Path, images: &Path, deploy: Option<&Path>, options: &[&str]) -> Self {
        let mut command = cloister(data_dir);
        command.env("CLOISTER_GUEST_IMAGES", images);
        command.args(["--json", "up"]).args(options);
        for listener in LISTENERS {
            command.arg(format!("--{listener}-listen")).arg("127.0.0.1:0");
        }
        if let Some(directory) = deploy {
            command.arg("--deploy").arg(directory);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("cloister starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("its output"));
        let document = tokio::time::timeout(PATIENCE, read_document(&mut stdout)).await;
        let document = document.expect("the cloud is up in time");
        Self { child, stdout, data_dir: data_dir.to_owned(), document }
    }

    /// Where the cloud keeps its data.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// A client of its management API, with the administrator's key.
    #[must_use]
    pub fn api(&self) -> Api {
        let url = self.document["api_url"].as_str().expect("the API's URL");
        let path = self.document["credentials"].as_str().expect("where the key is kept");
        let key = kept_key(Path::new(path), url).expect("a key of this API");
        Api::new(url.trim_end_matches("/api/v1"), &key)
    }

    /// Runs another command against this cloud.
    pub async fn run(&self, arguments: &[&str]) -> Ran {
        run(&self.data_dir, arguments).await
    }

    /// Presses Ctrl-C once and waits for the end; the exit code.
    pub async fn interrupt(mut self) -> i32 {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        kill_process(pid.expect("a process"), Signal::INT).expect("a signal");
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let mut rest = Vec::new();
        let _ = self.stdout.read_to_end(&mut rest).await;
        ended.expect("it ends in time").expect("its status").code().unwrap_or(-1)
    }
}

/// Runs a command to its end.
pub async fn run(data_dir: &Path, arguments: &[&str]) -> Ran {
    let output = cloister(data_dir).args(arguments).output().await.expect("cloister starts");
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The key that the command keeps for the API at a URL, if it keeps one.
#[must_use]
pub fn kept_key(credentials: &Path, url: &str) -> Option<String> {
    let kept: Value = serde_json::from_slice(&std::fs::read(credentials).ok()?).ok()?;
    Some(kept["servers"][url].as_str()?.to_owned())
}

/// The command with the data directory, the guest images, and nothing else of this process' environment.
pub(crate) fn cloister(data_dir: &Path) -> Command {
    let mut command = Command::new(paths::program("cloister").expect("a built program"));
    command
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name == "PATH"))
        .env("HOME", data_dir)
        .env("CLOISTER_DATA_DIR", data_dir)
        .env("CLOISTER_GUEST_IMAGES", paths::guest_images())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Reads a pretty-printed JSON object; the process goes on afterwards.
async fn read_document(stdout: &mut BufReader<ChildStdout>) -> Value {
    let mut text = String::new();
    loop {
        let read = stdout.read_line(&mut text).await.expect("its output");
        assert!(read > 0, "the cloud ended before it was up: {text}");
        if let Ok(document) = serde_json::from_str(&text) {
            return document;
        }
    }
}
