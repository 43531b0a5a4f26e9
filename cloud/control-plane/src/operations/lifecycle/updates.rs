//! Other configurations for CVMs.

use uuid::Uuid;

use super::{Arguments, CvmStatus, Lifecycle, OperationKind, RequestError, running_operation};
use crate::fleet::{GpuNeed, NodeStanding, PlacementError, Requirements};
use crate::store::{Change, Configuration, CvmRow, RevisionRow};

/// Another configuration for a CVM.
#[derive(Debug, Clone)]
pub struct UpdateRequest {
    /// What kind of change the history shows; one of those that bring a revision.
    pub kind: OperationKind,
    /// What the CVM gets. Its disk is not smaller than the present one.
    pub configuration: Configuration,
    /// The revision that the change was made from: it is refused when the CVM has another one by now.
    pub base_revision: Option<i64>,
    /// Seconds that the guest gets to shut down, 10 to 1200; the usual time if absent.
    pub shutdown_timeout_s: Option<u32>,
    /// Whether the power of a guest that does not shut down in time is taken away; otherwise the change
    /// fails then.
    pub allow_force_stop: bool,
}

/// A change that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedUpdate {
    /// Its operation.
    pub correlation_id: Uuid,
    /// What it brings.
    pub revision_id: i64,
}

impl Lifecycle {
    /// Gives a CVM another configuration: one that is up is restarted with it and gets its last good one back
    /// when that fails, by its policy; one that is off gets it with its next start.
    pub async fn update(
        &self,
        cvm_id: i64,
        request: &UpdateRequest,
        user_id: i64,
    ) -> Result<AcceptedUpdate, RequestError> {
        let mut change = self.store.change().await?;
        let accepted = self.update_in(&mut change, cvm_id, request, user_id, None).await?;
        change.commit().await?;
        self.wake();
        Ok(accepted)
    }

    /// The same as a part of a larger change, by the rollout that the CVM belongs to, if any. After an error
    /// the change may not be committed; after its commit somebody has to [`Lifecycle::wake`] the workers.
    pub(crate) async fn update_in(
        &self,
        change: &mut Change,
        cvm_id: i64,
        request: &UpdateRequest,
        user_id: i64,
        rollout: Option<i64>,
    ) -> Result<AcceptedUpdate, RequestError> {
        let cvm = change.lock_living_cvm(cvm_id).await?.ok_or(RequestError::NotFound)?;
        match change.rollout_at_work_on(cvm_id).await? {
            Some((id, kind)) if rollout != Some(id) => return Err(RequestError::InRollout(kind)),
            _ => {}
        }
        if let Some(current) = running_operation(change, &cvm).await? {
            return Err(RequestError::Busy(current.kind));
        }
        if request.base_revision.is_some_and(|base| cvm.revision_id != Some(base)) {
            return Err(RequestError::ChangedMeanwhile);
        }
        let arguments = Arguments {
            offline: cvm.status == CvmStatus::Stopped,
            shutdown_timeout_s: request.shutdown_timeout_s,
            never_force: !request.allow_force_stop,
            was: Some(cvm.status.as_str().to_owned()),
            ..Arguments::default()
        };
        let rules = request.kind.rules_for(arguments.power());
        self.check_idle(change, &cvm, request.kind, rules).await?;
        self.check_room(change, &cvm, &request.configuration).await?;
        let mut operation = self.new_operation(cvm_id, user_id, request.kind, &arguments, None)?;
        // One that is up goes back to what it has, with what was set for its next start: a key that was taken from
        // it must not come back.
        let good = match cvm.status {
            CvmStatus::Error => change.last_good_revision(cvm_id).await?,
            _ => None,
        };
        let (from_revision, held) = self.way_back(change, &cvm, good, &request.configuration).await?;
        operation.from_revision = from_revision;
        let revision_id = self.insert_revision(change, &cvm, &request.configuration, &operation).await?;
        operation.to_revision = Some(revision_id);
        change.reserve(cvm_id, Some(&held)).await?;
        let correlation_id = operation.correlation_id;
        self.begin(change, cvm_id, operation).await?;
        Ok(AcceptedUpdate { correlation_id, revision_id })
    }

    /// The revision that a change goes back to when it fails, and what the CVM has to hold until it has ended:
    /// the last good one if the node can give it back, which others may have filled up since, else the present
    /// one.
    async fn way_back(
        &self,
        change: &mut Change,
        cvm: &CvmRow,
        good: Option<RevisionRow>,
        wanted: &Configuration,
    ) -> Result<(Option<i64>, Configuration), RequestError> {
        let present = || (cvm.revision_id, wanted.clone());
        let Some(good) = good.filter(|good| cvm.revision_id != Some(good.id)) else { return Ok(present()) };
        let either = good.configuration.covering(wanted);
        match self.check_room(change, cvm, &either).await {
            Ok(()) => Ok((Some(good.id), either)),
            Err(RequestError::Placement(_)) => Ok(present()),
            Err(error) => Err(error),
        }
    }

    /// Whether the CVM's node can give it what a change wants.
    async fn check_room(
        &self,
        change: &mut Change,
        cvm: &CvmRow,
        wanted: &Configuration,
    ) -> Result<(), RequestError> {
        if wanted.disk_gb < cvm.disk_gb {
            return Err(RequestError::DiskShrinks { from: cvm.disk_gb, to: wanted.disk_gb });
        }
        let node = NodeStanding::locked(change, cvm.node_id, self.clock.now_ms()).await?;
        let growth = Requirements {
            vcpu: (wanted.vcpu - cvm.vcpu).max(0),
            memory_mb: (wanted.memory_mb - cvm.memory_mb).max(0),
            disk_gb: wanted.disk_gb - cvm.disk_gb,
            os_image_hash: Some(wanted.os_image_hash).filter(|image| *image != cvm.os_image_hash),
            gpus: GpuNeed::exactly(&cvm.new_gpus(wanted)),
        };
        Ok(node.ok_or(PlacementError::NodeGone)?.accept_growth(&growth)?)
    }
}
