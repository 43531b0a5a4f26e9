//! Making a CVM from a cached provision.

use cloister_app_compose::{AppId, ComposeHash};
use cloister_management_api::SealedEnv;

use super::{InsertError, Lifecycle, Unfunded};
use crate::clock::NoRandomness;
use crate::fleet::{NodeStanding, PlacementError, Refusal};
use crate::operations::machine::{CvmStatus, OperationKind};
use crate::store::{Caller, Change, CvmRow, NewCvm, ProvisionRow, StoreError};

/// A CVM to be created from a cached provision (spec 2.2).
#[derive(Debug, Clone)]
pub struct CreateRequest {
    /// The provision.
    pub compose_hash: ComposeHash,
    /// The app that the caller believes to create.
    pub app_id: AppId,
    /// Whether the contract that the app is was found to allow it. Nothing is made without for a provision that
    /// awaits a contract.
    pub is_allowed_by_contract: bool,
    /// Sealed environment; without one, that of the provision is used.
    pub encrypted_env: Option<SealedEnv>,
    /// When it is deleted by itself.
    pub scheduled_delete_at_ms: Option<i64>,
}

/// Why a CVM was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// No provision with that hash in the workspace, or it expired.
    #[error("no provision with this compose_hash; provision again")]
    ProvisionNotFound,
    /// The app id is not the provisioned one.
    #[error("app_id must be the provisioned {provisioned}")]
    AppIdMismatch {
        /// What was provisioned.
        provisioned: AppId,
    },
    /// Another provision took the place of the one that was looked at; the same request may succeed now.
    #[error("the document was provisioned anew meanwhile; send the request again")]
    ProvisionChanged,
    /// The CVM that an earlier call made is on its way out; the same request may succeed later.
    #[error("the CVM of this provision is being removed; try again when it is gone")]
    BeingRemoved,
    /// The app id is in use with another configuration.
    #[error("app_id {0} is already used with another configuration")]
    AppIdInUse(AppId),
    /// The contract that the application is was first used in another workspace.
    #[error(
        "the application of contract 0x{0} was made in another workspace of this installation first, and stays there; \
         deploy a contract of your own"
    )]
    AppElsewhere(AppId),
    /// The name is taken in the workspace.
    #[error("a CVM named {0:?} exists already in this workspace")]
    NameTaken(String),
    /// The chosen node can't take it.
    #[error(transparent)]
    Placement(#[from] PlacementError),
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

impl Lifecycle {
    /// What an earlier call with the same request made; nothing if a call can make it now. An app id that another
    /// configuration uses is refused.
    pub async fn made_before(
        &self,
        caller: &Caller,
        app_id: AppId,
        compose_hash: ComposeHash,
    ) -> Result<Option<CvmRow>, CreateError> {
        let mut change = self.store.change().await?;
        match made(&mut change, caller, app_id, compose_hash).await? {
            None if change.app_in_use(app_id).await? => Err(CreateError::AppIdInUse(app_id)),
            made => Ok(made),
        }
    }

    /// Creates a CVM from a cached provision. Repeating the call returns the same living CVM.
    pub async fn create(&self, caller: &Caller, request: CreateRequest) -> Result<CvmRow, CreateError> {
        self.create_from(caller, request, None).await
    }

    /// The same from the provision that the caller looked at, if it did: what was found about its node and its key
    /// management service says nothing about one that took its place.
    pub async fn create_from(
        &self,
        caller: &Caller,
        request: CreateRequest,
        seen: Option<&ProvisionRow>,
    ) -> Result<CvmRow, CreateError> {
        let now_ms = self.clock.now_ms();
        let mut change = self.store.change().await?;
        change.lock_workspace(caller.workspace_id).await?;
        if let Some(cvm) = made(&mut change, caller, request.app_id, request.compose_hash).await? {
            return Ok(cvm);
        }
        let mut provision = change
            .provision(caller.workspace_id, request.compose_hash, now_ms)
            .await?
            .ok_or(CreateError::ProvisionNotFound)?;
        let place = |row: &ProvisionRow| {
            (row.node_id, row.kms_id, row.app_id, row.awaits_contract, row.os_image_hash)
        };
        if seen.is_some_and(|seen| place(seen) != place(&provision)) {
            return Err(CreateError::ProvisionChanged);
        }
        if change.app_in_use(request.app_id).await? {
            return Err(CreateError::AppIdInUse(request.app_id));
        }
        if request.is_allowed_by_contract
            && !change.bind_app(request.app_id, caller.workspace_id, now_ms).await?
        {
            return Err(CreateError::AppElsewhere(request.app_id));
        }
        if provision.awaits_contract != 0 && request.is_allowed_by_contract {
            provision.app_id = request.app_id;
        }
        if provision.app_id != request.app_id {
            return Err(CreateError::AppIdMismatch { provisioned: provision.app_id });
        }
        if let Some(why) = self.unfunded(&mut change, caller.workspace_id, request.app_id).await? {
            return Err(why.into());
        }
        let node = NodeStanding::locked(&mut change, provision.node_id, now_ms).await?;
        let node = node.ok_or(PlacementError::NodeGone)?;
        node.accept(&(&provision).into())?;
        if change.is_os_image_retired(provision.os_image_hash).await? {
            return Err(node.refused(Refusal::Image).into());
        }

        let env = request.encrypted_env.map(|env| env.as_hex().to_owned());
        let new = NewCvm::of_provision(&provision, caller.user_id, self.random.uuid()?, env);
        let inserted = self.insert(&mut change, &new, OperationKind::Create).await;
        let cvm = inserted.map_err(|error| match error {
            InsertError::Store(error) if error.is_duplicate() => CreateError::NameTaken(new.name.clone()),
            InsertError::Store(error) => error.into(),
            InsertError::Random(error) => error.into(),
            InsertError::Lost => CreateError::ProvisionNotFound,
        })?;
        if request.scheduled_delete_at_ms.is_some() {
            let at_ms = request.scheduled_delete_at_ms;
            change.schedule_deletion(cvm.id, at_ms, caller.user_id, now_ms).await?;
        }
        change.commit().await?;
        self.wake();
        Ok(cvm)
    }
}

/// The living CVM of an application that runs a document.
async fn made(
    change: &mut Change,
    caller: &Caller,
    app_id: AppId,
    compose_hash: ComposeHash,
) -> Result<Option<CvmRow>, CreateError> {
    match change.cvm_of_app_and_hash(caller.workspace_id, app_id, compose_hash).await? {
        Some(cvm) if cvm.status == CvmStatus::Removing => Err(CreateError::BeingRemoved),
        made => Ok(made),
    }
}
