//! The published clients of the management API, unmodified, against a cloud of this machine.

mod deploy;
mod governed;
mod libraries;

use std::path::Path;
use std::process::Stdio;

use cloister_tests::command::Up;
use cloister_tests::{PATIENCE, published};
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

const SET: &str = "public-clients";

/// A person with the published command line.
struct Person<'a> {
    up: &'a Up,
    /// Its home, in which it runs its commands.
    home: TempDir,
    key: Option<String>,
}

impl<'a> Person<'a> {
    /// Somebody who just logged in.
    async fn logged_in(up: &'a Up) -> Self {
        let mut person = Self { up, home: TempDir::new().unwrap(), key: None };
        person.log_in().await;
        person
    }

    fn api_url(&self) -> &str {
        self.up.document["api_url"].as_str().unwrap()
    }

    fn with_access(&self, command: &mut Command) {
        command.env("PHALA_CLOUD_API_PREFIX", self.api_url()).env("PHALA_CLOUD_DIR", self.home.path());
        command.env("HOME", self.home.path()).env("NO_COLOR", "1").env_remove("HTTP_PROXY");
        if let Some(key) = &self.key {
            command.env("PHALA_CLOUD_API_KEY", key);
        }
        command.stdin(Stdio::null());
    }

    fn phala(&self, arguments: &[&str]) -> Command {
        let mut command = published::command(SET, "phala");
        self.with_access(&mut command);
        command.args(arguments).current_dir(self.home.path());
        command
    }

    /// Logs in as on a machine without a browser; the operator lets it in.
    async fn log_in(&mut self) {
        let mut login = self.phala(&["login", "--no-open", "--print-token"]);
        let mut login = login.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut words = BufReader::new(login.stderr.take().unwrap()).lines();
        let mut data = BufReader::new(login.stdout.take().unwrap()).lines();
        let mut approved = false;
        while !approved {
            let line = tokio::time::timeout(PATIENCE, words.next_line()).await.expect("in time").unwrap();
            if let Some((_, code)) = line.expect("a code").split_once("enter code: ") {
                let decided = self.up.run(&["tokens", "approve", code.trim()]).await;
                assert_eq!(decided.code, 0, "{decided:?}");
                approved = true;
            }
        }
        // What it says further has to go somewhere.
        let rest = tokio::spawn(async move { while let Ok(Some(_)) = words.next_line().await {} });
        while let Some(line) =
            tokio::time::timeout(PATIENCE, data.next_line()).await.expect("in time").unwrap()
        {
            if let Some(start) = line.find("phak_") {
                self.key = Some(line[start..].trim().to_owned());
            }
        }
        rest.await.unwrap();
        assert!(login.wait().await.unwrap().success() && self.key.is_some());
    }

    /// Runs a command of it; what it prints holds all of these.
    async fn runs(&self, arguments: &[&str], shown: &[&str]) {
        let (succeeded, text) = self.ran(arguments).await;
        assert!(succeeded, "phala {arguments:?}: {text}");
        for wanted in shown {
            assert!(text.contains(wanted), "phala {arguments:?} does not show {wanted:?}: {text}");
        }
    }

    /// Runs a command of it that fails with these words.
    async fn is_refused(&self, arguments: &[&str], words: &str) {
        let (succeeded, text) = self.ran(arguments).await;
        assert!(!succeeded && text.contains(words), "phala {arguments:?} does not say {words:?}: {text}");
    }

    /// Whether a command of it succeeded, and what it printed.
    async fn ran(&self, arguments: &[&str]) -> (bool, String) {
        let output = published::ended(self.phala(arguments)).await;
        let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        (output.status.success(), text.concat())
    }

    /// What a program with a library prints of a CVM in a version, with its key or others.
    async fn walk(&self, script: &str, of: (&str, &str), keys: &[(&str, &str)]) -> Map<String, Value> {
        let mut command = published::program(SET, script, &[of.0, of.1]);
        self.with_access(&mut command);
        command.envs(keys.iter().copied());
        match published::printed(command).await {
            Value::Object(seen) => seen,
            other => panic!("{script} {of:?}: {other}"),
        }
    }
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
