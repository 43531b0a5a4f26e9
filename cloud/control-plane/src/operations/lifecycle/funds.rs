//! Whether a workspace may start something.

use cloister_app_compose::AppId;

use super::Lifecycle;
use crate::billing::Month;
use crate::store::{Change, StoreError};

/// Why nothing is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfunded {
    /// The workspace pays in advance, and nothing is left.
    #[error("the workspace's credit is used up; nothing is started before there is credit again")]
    NoCredit,
    /// The application's budget stops it.
    #[error(
        "the application's budget of this month is used up, and the budget stops its CVMs; raise or remove it, or \
         wait for the next month"
    )]
    OverBudget,
}

impl Lifecycle {
    /// What keeps a workspace from starting a CVM of an application now.
    pub(crate) async fn unfunded(
        &self,
        change: &mut Change,
        workspace_id: i64,
        app_id: AppId,
    ) -> Result<Option<Unfunded>, StoreError> {
        let now_ms = self.clock.now_ms();
        if change.is_prepaid(workspace_id).await? && !change.funds(workspace_id, now_ms).await?.suffice() {
            return Ok(Some(Unfunded::NoCredit));
        }
        let is_stopped =
            change.is_stopped_by_budget(workspace_id, app_id, Month::of(now_ms).number()).await?;
        Ok(is_stopped.then_some(Unfunded::OverBudget))
    }
}
