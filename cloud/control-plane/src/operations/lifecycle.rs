//! Accepting work: each call checks the rules and writes the CVM and its operation in one transaction.
//! When it returns, the work is durable and a worker knows of it.

mod cancel;
mod create;
mod funds;
mod ports;
mod unmeasured;
mod updates;

use std::sync::Arc;

use tokio::sync::Notify;
use uuid::Uuid;

use super::arguments::Arguments;
use super::machine::{CvmStatus, OperationKind, Rules, Step};
use crate::clock::{Clock, NoRandomness, Random};
use crate::fleet::{NodeStanding, PlacementError};
use crate::rollouts::RolloutKind;
use crate::store::{
    CancelRequest, Change, Configuration, CvmRow, NewCvm, NewOperation, NewRevision, OperationRow, Store,
    StoreError,
};

pub use self::cancel::{CancelError, Cancellation};
pub use self::create::{CreateError, CreateRequest};
pub use self::funds::Unfunded;
pub use self::ports::{MAX_PORTS, MapPortsError, WantedPort};
pub use self::updates::{AcceptedUpdate, UpdateRequest};

/// A change of a CVM's power state, or its deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LifecycleRequest {
    /// What to do.
    pub kind: OperationKind,
    /// For restart: take the power away instead of asking the guest.
    pub force: bool,
}

/// Why a request was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The CVM is gone.
    #[error("the CVM does not exist any more")]
    NotFound,
    /// Another operation holds the CVM; the same request may succeed later.
    #[error("{0} is in progress; wait for it to end, or cancel it")]
    Busy(OperationKind),
    /// The CVM's status forbids it.
    #[error("a CVM that is {status} cannot do {kind}")]
    IllegalStatus {
        /// What was asked.
        kind: OperationKind,
        /// The status it is in.
        status: CvmStatus,
    },
    /// The CVM has another configuration than the change was made from.
    #[error("the CVM was changed meanwhile; look at it and try again")]
    ChangedMeanwhile,
    /// Disks only grow.
    #[error("the disk has {from} GB and cannot shrink to {to} GB")]
    DiskShrinks {
        /// What it has.
        from: i64,
        /// What was wanted.
        to: i64,
    },
    /// The node can't give what the change wants.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// Its node takes no changes now.
    #[error("the CVM's node is under maintenance; try again later")]
    Maintenance,
    /// A rollout of its application, or the drain of its node, is at work on it.
    #[error("{} is at work on this CVM; wait for it to end, or end it first", .0.in_words())]
    InRollout(RolloutKind),
    /// Nobody pays for it.
    #[error(transparent)]
    Unfunded(#[from] Unfunded),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No randomness for identifiers.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

/// Why a CVM was not added.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InsertError {
    /// The database failed, or has a living CVM of this name.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No randomness for identifiers.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// What was just written is not there.
    #[error("the new CVM is not in the database")]
    Lost,
}

/// Entry to everything that changes CVMs; cheap to clone.
#[derive(Clone)]
pub struct Lifecycle {
    store: Store,
    clock: Clock,
    random: Random,
    wake_workers: Arc<Notify>,
}

impl Lifecycle {
    /// `wake_workers` is notified after each accepted operation.
    #[must_use]
    pub fn new(store: Store, clock: Clock, random: Random, wake_workers: Arc<Notify>) -> Self {
        Self { store, clock, random, wake_workers }
    }

    /// Accepts a change of power state or a deletion and returns the CVM as it is then. Asking for what
    /// is already so, or already under way, changes nothing.
    pub async fn request(
        &self,
        cvm_id: i64,
        request: LifecycleRequest,
        user_id: i64,
    ) -> Result<CvmRow, RequestError> {
        let mut change = self.store.change().await?;
        let cvm = self.request_in(&mut change, cvm_id, request, user_id).await?;
        change.commit().await?;
        self.wake();
        Ok(cvm)
    }

    /// The same as a part of a larger change. After an error the change may not be committed; after its
    /// commit somebody has to [`Lifecycle::wake`] the workers.
    pub(crate) async fn request_in(
        &self,
        change: &mut Change,
        cvm_id: i64,
        request: LifecycleRequest,
        user_id: i64,
    ) -> Result<CvmRow, RequestError> {
        let rules = request.kind.rules();
        let cvm = change.lock_living_cvm(cvm_id).await?.ok_or(RequestError::NotFound)?;
        let current = running_operation(change, &cvm).await?;
        match &current {
            Some(current) if current.kind == request.kind => return Ok(cvm),
            Some(current) if !rules.preempts || current.kind == OperationKind::Delete => {
                return Err(RequestError::Busy(current.kind));
            }
            Some(_) => {}
            None if rules.already == Some(cvm.status) => return Ok(cvm),
            None => self.check_idle(change, &cvm, request.kind, rules).await?,
        }

        let predecessor = current.as_ref().map(|operation| operation.correlation_id);
        let arguments = Arguments {
            force: request.force,
            was: Some(cvm.status.as_str().to_owned()),
            ..Arguments::default()
        };
        let operation = self.new_operation(cvm.id, user_id, request.kind, &arguments, predecessor)?;
        if let Some(current) = &current {
            // What takes the power away anyway is let finish; everything else is told to make room.
            if current.kind != OperationKind::PowerOff {
                change.request_cancel(current.correlation_id, CancelRequest::MakeRoom).await?;
            }
            change.release_cvm(cvm.id, current.correlation_id).await?;
        }
        self.begin(change, cvm.id, operation).await
    }

    async fn insert_revision(
        &self,
        change: &mut Change,
        cvm: &CvmRow,
        configuration: &Configuration,
        operation: &NewOperation,
    ) -> Result<i64, StoreError> {
        let new = NewRevision {
            cvm_id: cvm.id,
            workspace_id: cvm.workspace_id,
            app_id: cvm.app_id,
            operation_type: if operation.kind.changes_revision() { "update" } else { "deploy" },
            configuration,
            correlation_id: operation.correlation_id,
            triggered_by: operation.triggered_by,
        };
        change.insert_revision(&new, self.clock.now_ms()).await
    }

    /// Adds a CVM with its first revision and the operation that boots it, in a change that checked that it
    /// may. A name that is taken is [`StoreError::is_duplicate`].
    pub(crate) async fn insert(
        &self,
        change: &mut Change,
        new: &NewCvm,
        kind: OperationKind,
    ) -> Result<CvmRow, InsertError> {
        let now_ms = self.clock.now_ms();
        let cvm_id = change.insert_cvm(new, now_ms).await?;
        let mut operation = self.new_operation(cvm_id, new.user_id, kind, &Arguments::default(), None)?;
        let cvm = change.lock_cvm(cvm_id).await?.ok_or(InsertError::Lost)?;
        let revision = self.insert_revision(change, &cvm, &new.configuration, &operation).await?;
        change.adopt_revision(cvm_id, revision, now_ms).await?;
        operation.to_revision = Some(revision);
        change.acquire_cvm(cvm_id, operation.correlation_id).await?;
        self.accept(change, &operation, CvmStatus::Creating).await?;
        change.lock_cvm(cvm_id).await?.ok_or(InsertError::Lost)
    }

    /// The time by the clock of all operations.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// An identity for a new CVM.
    pub(crate) fn new_uuid(&self) -> Result<Uuid, NoRandomness> {
        self.random.uuid()
    }

    /// Tells the workers that something was accepted.
    pub(crate) fn wake(&self) {
        self.wake_workers.notify_one();
    }

    /// Gives an idle CVM to an operation.
    async fn begin(
        &self,
        change: &mut Change,
        cvm_id: i64,
        operation: NewOperation,
    ) -> Result<CvmRow, RequestError> {
        if !change.acquire_cvm(cvm_id, operation.correlation_id).await? {
            return Err(RequestError::Busy(operation.kind));
        }
        let status = operation.kind.rules().during;
        change.set_cvm_status(cvm_id, status, self.clock.now_ms()).await?;
        self.accept(change, &operation, status).await?;
        change.lock_cvm(cvm_id).await?.ok_or(RequestError::NotFound)
    }

    async fn check_idle(
        &self,
        change: &mut Change,
        cvm: &CvmRow,
        kind: OperationKind,
        rules: &Rules,
    ) -> Result<(), RequestError> {
        if !rules.from.contains(&cvm.status) {
            return Err(RequestError::IllegalStatus { kind, status: cvm.status });
        }
        if rules.steps.contains(&Step::StartVm)
            && let Some(why) = self.unfunded(change, cvm.workspace_id, cvm.app_id).await?
        {
            return Err(why.into());
        }
        // Taking a CVM away from a node under maintenance must stay possible.
        if rules.target != Some(CvmStatus::Running) {
            return Ok(());
        }
        match change.node(cvm.node_id).await? {
            Some(node) if NodeStanding::in_maintenance(&node) => Err(RequestError::Maintenance),
            _ => Ok(()),
        }
    }

    fn new_operation(
        &self,
        cvm_id: i64,
        user_id: i64,
        kind: OperationKind,
        arguments: &Arguments,
        predecessor: Option<Uuid>,
    ) -> Result<NewOperation, NoRandomness> {
        Ok(NewOperation {
            correlation_id: self.random.uuid_at(self.clock.now_ms())?,
            cvm_id,
            kind,
            arguments: arguments.to_json(),
            triggered_by: user_id,
            predecessor,
            to_revision: None,
            from_revision: None,
        })
    }

    async fn accept(
        &self,
        change: &mut Change,
        operation: &NewOperation,
        status: CvmStatus,
    ) -> Result<(), StoreError> {
        let now_ms = self.clock.now_ms();
        change.insert_operation(operation, now_ms).await?;
        let event = format!("instance.{}.start", operation.kind);
        change.append_event(operation.correlation_id, &event, status.as_str(), now_ms).await
    }
}

async fn running_operation(change: &mut Change, cvm: &CvmRow) -> Result<Option<OperationRow>, StoreError> {
    match cvm.operation_id.as_deref().and_then(|id| id.parse().ok()) {
        Some(id) => change.operation(id).await,
        None => Ok(None),
    }
}
