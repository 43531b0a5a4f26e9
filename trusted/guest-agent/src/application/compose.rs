//! Applications that are compose files.

use std::borrow::Cow;

use cloister_app_compose::ComposeFile;
use tokio::process::Command;
use tracing::warn;

use super::{Application, ApplicationError};
use crate::engine::Engine;
use crate::failure;
use crate::output::{self, CommandError, Running};
use crate::progress::Progress;

pub(super) const COMPOSE_FILE: &str = "docker-compose.yaml";

/// Exit statuses of the compose front end that say what failed.
const INVALID_FILE: i32 = 15;
const BUILD_FAILED: i32 = 17;
const PULL_FAILED: i32 = 18;

impl Application {
    /// Pulls what is missing and starts all services; ones that left the file are removed.
    pub(super) async fn compose_up(&self, text: &str, progress: &Progress) -> Result<(), ApplicationError> {
        let compose_file = ComposeFile::parse(text)
            .map_err(|error| ApplicationError::Compose(format!("the compose file is invalid: {error}")))?;
        super::write_private(&self.directory.join(COMPOSE_FILE), text.as_bytes())?;
        let mut up = self.compose();
        up.args(["up", "--detach", "--remove-orphans"]);
        let result = match Running::start(&mut up) {
            Ok(running) => running.hiding(&self.hidden).finish(|line| progress.detail(line)).await,
            Err(error) => Err(error),
        };
        result.map_err(|error| ApplicationError::Compose(explain(&error, &compose_file)))
    }

    /// Stops all services in the reverse order of their dependencies. Each gets the time that the compose
    /// file gives it.
    pub(super) async fn compose_stop(&self) {
        if let Err(error) = output::check_hiding(self.compose().arg("stop"), &self.hidden).await {
            warn!("cannot stop the application in order: {}", failure::chain(&error));
        }
    }

    fn compose(&self) -> Command {
        let mut compose = self.command("docker-compose");
        compose.args(["--ansi", "never", "--progress", "plain", "--file", COMPOSE_FILE]);
        compose
    }
}

/// Images of earlier versions of the application would fill the disk.
pub(super) async fn remove_unused_images(engine: &Engine) {
    if let Err(error) = engine.prune_images().await {
        warn!("cannot remove unused images: {}", failure::chain(&error));
    }
}

/// What went wrong and what to do about it, for the person who wrote the compose file.
fn explain(error: &CommandError, file: &ComposeFile) -> String {
    let CommandError::Failed { status, tail, .. } = error else { return failure::chain(error) };
    let reason = tail.lines().next_back().map_or(Cow::Borrowed("it gave no reason"), plain);
    match status.code() {
        Some(INVALID_FILE) => format!("the compose file is invalid: {reason}"),
        Some(PULL_FAILED) => {
            let (image, reason) = pull_failure(tail, file).unwrap_or(("an image", reason));
            format!(
                "cannot pull {image}: {reason}. Check the name, or push it with `cloister image push` if no registry serves it"
            )
        }
        Some(BUILD_FAILED) => format!("an image cannot be built: {reason}"),
        _ => format!("the services cannot be started: {reason}"),
    }
}

/// The image of the first service whose line reports an error, and that error: ` web Error …`.
fn pull_failure<'a>(tail: &'a str, file: &'a ComposeFile) -> Option<(&'a str, Cow<'a, str>)> {
    tail.lines().find_map(|line| {
        let (service, reason) = line.trim().split_once(" Error ")?;
        Some((file.image(service)?, plain(reason)))
    })
}

/// The engine's message without its wrappings.
fn plain(line: &str) -> Cow<'_, str> {
    #[derive(serde::Deserialize)]
    struct Wrapped {
        message: String,
    }
    let line = line.trim();
    let line = line.strip_prefix("Error response from daemon:").unwrap_or(line).trim();
    serde_json::from_str(line).map_or(Cow::Borrowed(line), |Wrapped { message }| Cow::Owned(message))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use proptest::prelude::*;

    use super::*;

    fn explained(code: i32, tail: &str) -> String {
        let file = ComposeFile::parse("services: {web: {image: 'cloister.local/nope:3'}}").unwrap();
        let status = ExitStatus::from_raw(code << 8);
        let program = "docker-compose".to_owned();
        explain(&CommandError::Failed { program, status, tail: tail.to_owned() }, &file)
    }

    #[test]
    fn names_the_image_and_the_way_out() {
        let tails = [
            (
                PULL_FAILED,
                " web Pulling \n web Error {\"message\":\"no such host\"}\nError response from daemon: {\"message\":\"no such host\"}",
            ),
            (PULL_FAILED, "Error response from daemon: manifest unknown"),
            (
                INVALID_FILE,
                "validating docker-compose.yaml: services.web Additional property portz is not allowed",
            ),
            (BUILD_FAILED, "failed to solve"),
            (1, " Container app-web-1  Starting\nError response from daemon: address already in use"),
            (1, ""),
        ];
        let texts: Vec<_> = tails.iter().map(|(code, tail)| explained(*code, tail)).collect();
        insta::assert_snapshot!(texts.join("\n"));
    }

    proptest! {
        #[test]
        fn never_panics(tail: String) {
            explained(PULL_FAILED, &tail);
        }
    }
}
