//! What keeps the store from keeping records.

use std::collections::BTreeSet;

use tokio::sync::watch;
use tracing::{error, info};

use super::StoreError;

/// Why records are not kept as they should be. While there is a reason, nothing new is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// The disk did not keep what it was given for the database. Only a start finds out what is there.
    Lost,
    /// Nothing can be written.
    Writing,
    /// What is written is not durable.
    Syncing,
    /// What is written does not get into the database.
    Filing,
}

impl Trouble {
    /// In a word, for whoever watches the gateway.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "records_need_a_restart",
            Self::Writing => "records_not_written",
            Self::Syncing => "records_not_durable",
            Self::Filing => "records_not_filed",
        }
    }
}

/// What is wrong now.
#[derive(Debug, Default)]
pub(super) struct Troubles(watch::Sender<BTreeSet<Trouble>>);

impl Troubles {
    /// The worst.
    pub(super) fn worst(&self) -> Option<Trouble> {
        self.0.borrow().first().copied()
    }

    pub(super) fn has(&self, trouble: Trouble) -> bool {
        self.0.borrow().contains(&trouble)
    }

    /// Waits until something is wrong.
    pub(super) async fn begin(&self) {
        // The sender is this one.
        let _ = self.0.subscribe().wait_for(|troubles| !troubles.is_empty()).await;
    }

    /// Something went well, or did not. Says once that it begins, and once that all is well again.
    pub(super) fn note<T>(&self, trouble: Trouble, outcome: &Result<T, StoreError>) {
        if outcome.is_ok() && !self.has(trouble) {
            return;
        }
        self.0.send_if_modified(|troubles| match outcome {
            Ok(_) => {
                let was = troubles.remove(&trouble);
                if was && troubles.is_empty() {
                    info!("records can be kept again");
                }
                was
            }
            Err(failure) => {
                let is_new = troubles.insert(trouble);
                if is_new {
                    error!(%failure, reason = trouble.name(), "records cannot be kept; requests are refused");
                }
                is_new
            }
        });
    }
}
