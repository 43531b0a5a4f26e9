//! Applications that are bash scripts.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Application, ApplicationError};
use crate::failure;
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
            return ended.unwrap_or(Ok(())).map_err(ApplicationError::MainScript);
        }
        let progress = progress.clone();
        let end = tokio::spawn(async move {
            let result = end.await.unwrap_or(Ok(()));
            match &result {
                Ok(()) => info!("the main script ended"),
                Err(error) => progress.detail(&format!("the main script failed: {}", failure::chain(error))),
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
