//! Applications that are bash scripts.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Application, ApplicationError};
use crate::failure;
use crate::health::Verdict;
use crate::output::{CommandError, Running};
use crate::progress::Progress;

/// A main script that runs for this long counts as started; one that fails earlier failed to start.
const SETTLING: Duration = Duration::from_secs(3);

/// A main script that was started.
#[derive(Debug)]
pub(super) struct MainScript {
    group: Option<Pid>,
    end: JoinHandle<Result<(), CommandError>>,
}

impl Application {
    pub(super) async fn start_main_script(
        &mut self,
        text: &str,
        progress: &Progress,
    ) -> Result<(), ApplicationError> {
        let running =
            Running::start(&mut self.script("main.sh", text)?).map_err(ApplicationError::MainScript)?;
        let group = running.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let mut end = tokio::spawn(running.hiding(&self.hidden).finish(|_| ()));
        if let Ok(ended) = timeout(SETTLING, &mut end).await {
            ended.unwrap_or(Ok(())).map_err(ApplicationError::MainScript)?;
            progress.health(Verdict::healthy());
            return Ok(());
        }
        progress.health(Verdict::healthy());
        let progress = progress.clone();
        let end = tokio::spawn(async move {
            let result = end.await.unwrap_or(Ok(()));
            match &result {
                Ok(()) => info!("the main script ended"),
                Err(error) => {
                    let why = format!("the main script failed: {}", failure::chain(error));
                    progress.health(Verdict::unhealthy(why));
                }
            }
            result
        });
        self.main_script = Some(MainScript { group, end });
        Ok(())
    }

    /// Asks the script and all that it started, then ends what is left after `grace`.
    pub(super) async fn stop_main_script(&mut self, grace: Duration) {
        let Some(MainScript { group: Some(group), end }) = self.main_script.take() else { return };
        // Fails when the group is gone, which is what is wanted.
        let _ = kill_process_group(group, Signal::TERM);
        if timeout(grace, end).await.is_err() {
            warn!("the main script did not end within {} s and is killed", grace.as_secs());
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use cloister_app_compose::AppCompose;
    use cloister_guest_channel::status::Health;

    use super::*;
    use crate::application::Variables;
    use crate::hidden::Hidden;

    fn application(directory: &Path) -> Application {
        let document =
            br#"{"name": "script", "manifest_version": 2, "runner": "bash", "bash_script": "true"}"#;
        Application {
            app: AppCompose::parse(document).unwrap(),
            directory: directory.to_owned(),
            scripts: directory.to_owned(),
            environment: std::iter::once(("PATH", std::env::var("PATH").unwrap())).collect::<Variables>(),
            hidden: Hidden::default(),
            main_script: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_script_does_well_until_it_fails() {
        let directory = tempfile::tempdir().unwrap();
        let mut application = application(directory.path());
        let progress = Progress::new();
        let script = "until [ -e go ]; do :; done; echo the disk is purple; exit 3";
        application.start_main_script(script, &progress).await.unwrap();
        let mut status = progress.watch();
        assert_eq!(status.borrow_and_update().health, Some(Health::Healthy));
        fs::write(directory.path().join("go"), "").unwrap();
        let failed = status.wait_for(|status| status.health == Some(Health::Unhealthy)).await.unwrap();
        let why = failed.health_detail.clone().unwrap();
        assert!(why.contains("exit status: 3") && why.contains("the disk is purple"), "{why}");
    }

    #[tokio::test]
    async fn a_script_that_ends_at_once_is_done_or_did_not_start() {
        let directory = tempfile::tempdir().unwrap();
        let progress = Progress::new();
        application(directory.path()).start_main_script("true", &progress).await.unwrap();
        assert_eq!(progress.watch().borrow().health, Some(Health::Healthy));
        let progress = Progress::new();
        application(directory.path()).start_main_script("exit 3", &progress).await.unwrap_err();
        assert_eq!(progress.watch().borrow().health, None);
    }
}
