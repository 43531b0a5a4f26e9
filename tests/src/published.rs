//! Published clients, unmodified: what `tests/install-clients.sh` puts below `target/`.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tokio::process::Command;

use crate::{PATIENCE, paths};

fn packages(set: &str) -> PathBuf {
    let packages = paths::workspace().join("target").join(set);
    let installed = packages.join("installed").is_file();
    assert!(installed, "the published clients are not installed; run tests/install-clients.sh {set}");
    packages
}

/// A program of `tests/{set}` with published clients of that set. It gets `arguments`, and behind them the directory of
/// its packages; it prints one JSON object.
#[must_use]
pub fn program(set: &str, script: &str, arguments: &[&str]) -> Command {
    let packages = packages(set);
    let python = Path::new(script).extension().is_some_and(|extension| extension == "py");
    let mut command = Command::new(if python { "python3" } else { "node" });
    command.arg(paths::workspace().join("tests").join(set).join(script)).args(arguments).arg(&packages);
    command.env("PYTHONPATH", packages.join("python")).env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true);
    command
}

/// Runs a command to its end, which has to come in time.
pub async fn ended(mut command: Command) -> Output {
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    output.expect("it ends in time").expect("it starts")
}

/// The JSON object that a program printed, which has to end well.
pub async fn printed(command: Command) -> Value {
    let what = format!("{:?}", command.as_std().get_args().collect::<Vec<_>>());
    let output = ended(command).await;
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {words}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{what}: {error}: {words}"))
}

/// A published command of a set.
#[must_use]
pub fn command(set: &str, name: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(packages(set).join("node_modules/.bin").join(name)).kill_on_drop(true);
    command
}
