//! Changes that wait until those who decide have allowed them: kept as a whole, found by a token that is their
//! only credential, carried out exactly as they were prepared.

use cloister_app_compose::{AppId, ComposeHash};
use cloister_webhooks::EventKind;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::Url;
use uuid::Uuid;

use super::{Governance, Question, Standing, app_contract, transaction};
use crate::clock::Random;
use crate::operations::{OperationKind, UnknownName, UpdateRequest};
use crate::replicas;
use crate::store::{
    Caller, Change, Configuration, CvmRow, NewPreparedChange, PolicyChange, PreparedChangeRow, PreparedKind,
    StoreError,
};
use crate::webhooks::{Emission, EmitError, Subject, emit};

/// How long a change waits.
pub(crate) const LIFETIME_MS: i64 = 14 * 24 * 60 * 60 * 1000;
/// Changes that may wait in a workspace.
const MAX_OF_WORKSPACE: i64 = 200;

/// What a commit carries out.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum PreparedRequest {
    /// Another configuration for the CVM.
    Update(PreparedUpdate),
    /// Another CVM like it.
    Replica(PreparedReplica),
}

/// Another configuration for a CVM.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PreparedUpdate {
    operation: String,
    pub(crate) configuration: Configuration,
    /// The revision that the change was made from: a CVM that has another one is not changed any more.
    pub(crate) base_revision: Option<i64>,
    shutdown_timeout_s: Option<u32>,
    allow_force_stop: bool,
    rollback_on_failure: Option<bool>,
    health_timeout_s: Option<i64>,
}

impl PreparedUpdate {
    pub(crate) fn new(update: &UpdateRequest, policy: PolicyChange) -> Self {
        Self {
            operation: update.kind.as_str().to_owned(),
            configuration: update.configuration.clone(),
            base_revision: update.base_revision,
            shutdown_timeout_s: update.shutdown_timeout_s,
            allow_force_stop: update.allow_force_stop,
            rollback_on_failure: policy.rollback_on_failure,
            health_timeout_s: policy.health_timeout_s,
        }
    }

    /// What the lifecycle is asked for.
    pub(crate) fn request(&self) -> Result<UpdateRequest, UnknownName> {
        Ok(UpdateRequest {
            kind: self.operation.parse::<OperationKind>()?,
            configuration: self.configuration.clone(),
            base_revision: self.base_revision,
            shutdown_timeout_s: self.shutdown_timeout_s,
            allow_force_stop: self.allow_force_stop,
        })
    }

    /// What becomes of the CVM's policy.
    pub(crate) const fn policy(&self) -> PolicyChange {
        PolicyChange {
            rollback_on_failure: self.rollback_on_failure,
            health_timeout_s: self.health_timeout_s,
        }
    }
}

/// Another CVM of an application.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PreparedReplica {
    /// Where it goes.
    pub(crate) node_id: i64,
    /// The CVM that it is like, and the revision that one had.
    pub(crate) model: i64,
    pub(crate) model_revision: Option<i64>,
    pub(crate) encrypted_env: Option<String>,
    pub(crate) docker_compose_file: Option<String>,
    /// Empty for none.
    pub(crate) pre_launch_script: Option<String>,
    pub(crate) name: Option<String>,
}

impl PreparedReplica {
    /// What its document has instead of that of the CVM that it is like.
    pub(crate) fn changes(&self) -> Vec<(&'static str, Value)> {
        replicas::changes(self.docker_compose_file.clone(), self.pre_launch_script.clone())
    }
}

/// What is to be prepared.
pub(crate) struct Preparation<'a> {
    /// The CVM that it is about.
    pub(crate) cvm: &'a CvmRow,
    /// What the commit carries out.
    pub(crate) request: &'a PreparedRequest,
    pub(crate) governance: &'a Governance,
    pub(crate) compose_hash: ComposeHash,
    /// `None` where the device is nobody's business, and is not known.
    pub(crate) device_id: Option<[u8; 32]>,
    /// What those who decide say now.
    pub(crate) standing: Standing,
    pub(crate) caller: &'a Caller,
}

/// A change that waits, as those who prepare it are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) token: Uuid,
    pub(crate) expires_at_ms: i64,
}

/// Why nothing was prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    /// The CVM is gone.
    #[error("the CVM does not exist any more")]
    Gone,
    /// Too many wait.
    #[error(
        "{0} changes wait for approval in the workspace; each waits for 14 days, until it is committed, or \
             until another one of the same CVM takes its place"
    )]
    TooMany(i64),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What webhooks are told cannot be written down.
    #[error(transparent)]
    Emit(#[from] EmitError),
    /// The request cannot be written down.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Makes and recognises commit tokens.
#[derive(Clone, Copy)]
pub(crate) struct Tokens<'a>(pub(crate) &'a [u8; 32]);

impl Tokens<'_> {
    /// The token of a record about this CVM: the same each time, and not to be guessed from others. CVMs have
    /// random names of their own, so that records of a restored or renewed database have other tokens.
    pub(crate) fn of(self, id: i64, vm_uuid: Uuid) -> Uuid {
        // A short key counts as if zeros followed.
        let mut block = [0; 64];
        block.iter_mut().zip(self.0).for_each(|(to, from)| *to = *from);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        // Says what it is for, so that no other use of the key can be mistaken for it.
        mac.update(b"cloister-commit-token");
        mac.update(&id.to_be_bytes());
        mac.update(vm_uuid.as_bytes());
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(mac.finalize().into_bytes()).for_each(|(to, from)| *to = from);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}

/// How a token is stored and looked for. Tokens are not to be guessed, so a plain hash suffices, and looking the
/// hash up tells somebody who measures time nothing about any token.
pub(crate) fn hash_token(token: Uuid) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}

/// Keeps a change in the place of one that waits already for the same CVM and does the same kind of thing. The
/// same change again is the same record with the same token, and waits anew. A new one is told to webhooks.
pub(crate) async fn prepare_in(
    change: &mut Change,
    tokens: Tokens<'_>,
    preparation: &Preparation<'_>,
    now_ms: i64,
) -> Result<Waiting, PrepareError> {
    let Preparation { cvm, request, compose_hash, caller, .. } = *preparation;
    let kind = request.kind();
    change.lock_workspace(cvm.workspace_id).await?;
    change.lock_living_cvm(cvm.id).await?.ok_or(PrepareError::Gone)?;
    let expires_at_ms = now_ms.saturating_add(LIFETIME_MS);
    let (text, device_id) =
        (serde_json::to_string(request)?, preparation.device_id.map(hex::encode).unwrap_or_default());
    let waiting = change.pending_change(cvm.id, kind).await?;
    let same = |row: &&PreparedChangeRow| row.request == text && row.device_id == device_id;
    if let Some(row) = waiting.as_ref().filter(same).filter(|row| row.expires_at_ms > now_ms) {
        change.extend_prepared_change(row.id, expires_at_ms).await?;
        return Ok(Waiting { token: tokens.of(row.id, cvm.vm_uuid), expires_at_ms });
    }
    change.supersede_prepared_changes(cvm.id, kind, now_ms).await?;
    let count = change.count_pending_changes(cvm.workspace_id, now_ms).await?;
    if count >= MAX_OF_WORKSPACE {
        return Err(PrepareError::TooMany(count));
    }
    let id = change.next_prepared_change().await?;
    let token = tokens.of(id, cvm.vm_uuid);
    let new = NewPreparedChange {
        id,
        kind,
        cvm_id: cvm.id,
        workspace_id: cvm.workspace_id,
        app_id: cvm.app_id,
        compose_hash,
        device_id: &device_id,
        request: &text,
        user_id: caller.user_id,
        token_hash: &hash_token(token),
        expires_at_ms,
    };
    change.insert_prepared_change(&new, now_ms).await?;
    let data = event_data(preparation, id, expires_at_ms);
    let emission = Emission {
        workspace_id: cvm.workspace_id,
        kind: kind.event(),
        subject: Subject::Cvm(cvm.id),
        operation: None,
        data,
    };
    emit(change, Random, &emission, now_ms).await?;
    Ok(Waiting { token, expires_at_ms })
}

impl PreparedRequest {
    pub(crate) const fn kind(&self) -> PreparedKind {
        match self {
            Self::Update(_) => PreparedKind::Update,
            Self::Replica(_) => PreparedKind::Replica,
        }
    }
}

impl PreparedKind {
    /// What webhooks are told when a change of this kind begins to wait.
    const fn event(self) -> EventKind {
        match self {
            Self::Update => EventKind::UpdatePendingApproval,
            Self::Replica => EventKind::ReplicaPendingApproval,
        }
    }

    /// Last part of the path that commits a change of this kind.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Update => "commit-update",
            Self::Replica => "commit-replica",
        }
    }
}

/// Where a change is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommitUrls {
    /// A page for people; the token stands behind the `#`, which browsers send to nobody.
    pub(crate) page: String,
    /// A call for programs.
    pub(crate) api: String,
}

impl CommitUrls {
    pub(crate) fn new(public_url: &Url, kind: PreparedKind, vm_uuid: Uuid, token: Uuid) -> Self {
        let (base, path) = (public_url.as_str().trim_end_matches('/'), kind.path());
        Self {
            page: format!("{base}/{path}/{vm_uuid}#{token}"),
            api: format!("{base}/api/v1/cvms/{vm_uuid}/{path}?token={token}"),
        }
    }
}

const NUMBER: &str = "prepared_change_id";

/// What is told to webhooks about a change that waits, without its token: see [`with_token`].
fn event_data(preparation: &Preparation<'_>, id: i64, expires_at_ms: i64) -> Value {
    let Preparation { cvm, governance, compose_hash, device_id, standing, caller, .. } = *preparation;
    let app_id = format!("0x{}", cvm.app_id);
    let contract = match governance {
        Governance::Contract(contract) => Some(contract),
        Governance::Workspace | Governance::Owners | Governance::Unknown => None,
    };
    let question = Question { compose_hash, device_id };
    let calls = contract.map(|_| transaction::needed(&question, standing)).unwrap_or_default();
    let action = |call: &transaction::Needed| {
        json!({
            "to": format!("0x{}", hex::encode(app_contract(cvm.app_id))),
            "method": call.method,
            "calldata": format!("0x{}", hex::encode(&call.calldata)),
        })
    };
    json!({
        NUMBER: id,
        "cvm_id": cvm.vm_uuid,
        "cvm_name": cvm.name,
        "compose_hash": compose_hash,
        "app_id": app_id,
        "device_id": device_id.map(hex::encode).unwrap_or_default(),
        "kms": contract.map(|contract| json!({
            "chain_id": contract.chain_id,
            "contract_address": format!("0x{}", hex::encode(contract.address)),
        })),
        "onchain_action": calls.first().map(action),
        "onchain_actions": calls.iter().map(action).collect::<Vec<_>>(),
        "expires_at": jiff::Timestamp::from_millisecond(expires_at_ms).map(|time| time.to_string()).ok(),
        "initiated_by": {
            "user_id": cloister_management_api::UserId(caller.user_id), "username": caller.username,
        },
    })
}

/// The data of a stored event as it is delivered: with the commit token and the addresses that hold it, which are
/// never stored. Events of other kinds stay as they are.
pub fn with_token(mut data: Value, key: &[u8; 32], public_url: &Url, event_type: &str) -> Value {
    let kind = [PreparedKind::Update, PreparedKind::Replica]
        .into_iter()
        .find(|kind| kind.event().as_str() == event_type);
    let Some((kind, members)) = kind.zip(data.as_object_mut()) else { return data };
    let id = members.remove(NUMBER).as_ref().and_then(Value::as_i64);
    let vm_uuid = members.get("cvm_id").and_then(Value::as_str).and_then(|text| text.parse().ok());
    if let Some((id, vm_uuid)) = id.zip(vm_uuid) {
        let token = Tokens(key).of(id, vm_uuid);
        let urls = CommitUrls::new(public_url, kind, vm_uuid, token);
        members.insert("commit_token".to_owned(), json!(token));
        members.insert("commit_url".to_owned(), json!(urls.page));
        members.insert("api_commit_url".to_owned(), json!(urls.api));
    }
    data
}

/// Whose contract a suggestion is about.
pub(crate) fn contract_in_words(app_id: AppId, chain_id: u64) -> String {
    format!("contract 0x{} on chain {chain_id}", hex::encode(app_contract(app_id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_belongs_to_its_record_and_installation() {
        let (one, other) = (Uuid::from_bytes([1; 16]), Uuid::from_bytes([2; 16]));
        let token = Tokens(&[7; 32]).of(1, one);
        assert_eq!(token, Tokens(&[7; 32]).of(1, one));
        assert_eq!(token.get_version_num(), 4);
        for different in
            [Tokens(&[8; 32]).of(1, one), Tokens(&[7; 32]).of(2, one), Tokens(&[7; 32]).of(1, other)]
        {
            assert_ne!(token, different);
        }
        assert!(!hash_token(token).contains(&token.simple().to_string()));
    }

    #[test]
    fn requests_are_read_as_they_were_written() {
        let replica = PreparedReplica {
            node_id: 1,
            model: 2,
            model_revision: Some(3),
            encrypted_env: Some("ab".repeat(61)),
            docker_compose_file: Some("services: {}".to_owned()),
            pre_launch_script: Some(String::new()),
            name: None,
        };
        assert_eq!(
            replica.changes(),
            [("docker_compose_file", json!("services: {}")), ("pre_launch_script", Value::Null),]
        );
        let request = PreparedRequest::Replica(replica);
        let text = serde_json::to_string(&request).unwrap();
        assert!(serde_json::from_str::<PreparedRequest>(&text).unwrap() == request);
        assert_eq!(request.kind(), PreparedKind::Replica);
    }
}
