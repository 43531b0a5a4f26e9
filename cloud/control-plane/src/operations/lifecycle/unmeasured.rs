//! What a CVM gets with its next start, whenever that is.

use super::{Lifecycle, NewRevision, RequestError, running_operation};
use crate::store::{Change, Configuration, CvmRow};

impl Lifecycle {
    /// Replaces the unmeasured configuration of a CVM for its next start; nothing happens to a VM that is up.
    /// It is refused when the CVM has another revision by now than the one that the change was made from.
    pub async fn configure(
        &self,
        cvm_id: i64,
        base_revision: Option<i64>,
        user_config: Option<String>,
        user_id: i64,
    ) -> Result<(), RequestError> {
        let now_ms = self.clock.now_ms();
        let mut change = self.store.change().await?;
        let cvm = idle(&mut change, cvm_id).await?;
        if cvm.revision_id != base_revision {
            return Err(RequestError::ChangedMeanwhile);
        }
        let configuration = Configuration { user_config, ..cvm.configuration() };
        let revision = NewRevision {
            cvm_id,
            workspace_id: cvm.workspace_id,
            app_id: cvm.app_id,
            operation_type: "update",
            configuration: &configuration,
            correlation_id: self.random.uuid_at(now_ms)?,
            triggered_by: user_id,
        };
        let id = change.insert_revision(&revision, now_ms).await?;
        if let Some(revision) = change.revision(id).await? {
            change.apply_revision(&revision, now_ms).await?;
        }
        change.adopt_revision(cvm_id, id, now_ms).await?;
        Ok(change.commit().await?)
    }

    /// Replaces where a CVM asks for its keys, and its gateways, as JSON arrays; `None` leaves them. They are
    /// used from the next start on.
    pub async fn set_addresses(
        &self,
        cvm_id: i64,
        kms_urls: Option<&str>,
        gateway_urls: Option<&str>,
    ) -> Result<CvmRow, RequestError> {
        let mut change = self.store.change().await?;
        idle(&mut change, cvm_id).await?;
        change.set_addresses(cvm_id, kms_urls, gateway_urls, self.clock.now_ms()).await?;
        let cvm = change.lock_living_cvm(cvm_id).await?.ok_or(RequestError::NotFound)?;
        change.commit().await?;
        Ok(cvm)
    }
}

/// A CVM that no operation and no rollout works on: what a rollout brings, or a replacement has, was decided
/// before.
pub(super) async fn idle(change: &mut Change, cvm_id: i64) -> Result<CvmRow, RequestError> {
    let cvm = change.lock_living_cvm(cvm_id).await?.ok_or(RequestError::NotFound)?;
    if let Some((_, kind)) = change.rollout_at_work_on(cvm_id).await? {
        return Err(RequestError::InRollout(kind));
    }
    match running_operation(change, &cvm).await? {
        Some(current) => Err(RequestError::Busy(current.kind)),
        None => Ok(cvm),
    }
}
