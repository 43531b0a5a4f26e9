//! Which prepared change a token stands for.

use cloister_app_compose::{ComposeHash, InstanceId};
use cloister_management_api::{CommitRequest, CvmIdentifier, ErrorCode};
use uuid::Uuid;

use crate::api::Api;
use crate::api::changes::allowed_by;
use crate::api::error::{ApiError, ApiResult};
use crate::audit;
use crate::governance::{AllowedBy, hash_token};
use crate::store::{CvmRow, PreparedChangeRow, PreparedKind, PreparedState};

/// A commit as it was asked for.
pub(super) struct Commit {
    pub(super) token: String,
    compose_hash: Option<String>,
    transaction: Option<String>,
}

impl Commit {
    /// Reads the body, with the token in it or in the query.
    pub(super) fn new(body: Option<CommitRequest>, query: Option<String>) -> Self {
        let CommitRequest { token, compose_hash, transaction_hash } = body.unwrap_or_default();
        let token = token.filter(|token| !token.trim().is_empty()).or(query).unwrap_or_default();
        Self { token, compose_hash, transaction: transaction_hash }
    }

    /// How the change was allowed, if it is the one that was prepared.
    pub(super) fn of(&self, row: &PreparedChangeRow) -> ApiResult<AllowedBy> {
        let hash = self.compose_hash.as_deref().map(str::trim).filter(|hash| !hash.is_empty());
        if let Some(hash) = hash
            && hash.parse::<ComposeHash>() != Ok(row.compose_hash)
        {
            let text = "the token was made for another compose hash";
            return Err(invalid(text).about("compose_hash", hash));
        }
        allowed_by(self.transaction.as_deref())
    }
}

/// The prepared change that a token stands for, in whatever state, and its CVM. Whoever does not have the token
/// learns nothing: not whether the CVM exists, nor whether anything waits for it.
pub(super) async fn find(
    api: &Api,
    kind: PreparedKind,
    token: &str,
    is_meant: impl Fn(&CvmRow) -> bool,
) -> ApiResult<(PreparedChangeRow, CvmRow)> {
    let unknown = || ApiError::coded(ErrorCode::CommitTokenInvalid);
    let token: Uuid = token.trim().parse().map_err(|_| unknown())?;
    let now_ms = api.clock.now_ms();
    let row = api.store.prepared_change_by_token(&hash_token(token), now_ms).await?.ok_or_else(unknown)?;
    let found = api.store.cvm(row.cvm_id).await?.filter(|row| row.deleted_at_ms.is_none());
    let found = found.filter(is_meant).ok_or_else(unknown)?;
    if row.kind == kind { Ok((row, found)) } else { Err(unknown()) }
}

/// The same of one that can still be committed.
pub(super) async fn pending(
    api: &Api,
    kind: PreparedKind,
    token: &str,
    is_meant: impl Fn(&CvmRow) -> bool,
) -> ApiResult<(PreparedChangeRow, CvmRow)> {
    let (row, cvm) = find(api, kind, token, is_meant).await?;
    match row.state {
        PreparedState::Pending => {
            audit::in_workspace(row.workspace_id);
            Ok((row, cvm))
        }
        PreparedState::Committed => Err(used()),
        PreparedState::Superseded => {
            Err(invalid("another change took the place of the one that was prepared"))
        }
    }
}

/// The change was carried out already.
pub(super) fn used() -> ApiError {
    invalid("the commit token was used already")
}

/// The CVM is not what the change was prepared for.
pub(super) fn changed_meanwhile() -> ApiError {
    invalid("the CVM was changed after this change was prepared")
}

pub(super) fn invalid(text: &str) -> ApiError {
    ApiError::explained(ErrorCode::CommitTokenInvalid, text)
}

/// Whether a path names this CVM.
pub(super) fn names(text: &str, cvm: &CvmRow) -> bool {
    let Ok(identifier) = text.parse::<CvmIdentifier>();
    let has_instance = |id: InstanceId| cvm.instance_id.as_deref() == Some(id.to_string().as_str());
    match identifier {
        CvmIdentifier::Id(id) => id.0 == cvm.id,
        CvmIdentifier::Uuid(uuid) => uuid == cvm.vm_uuid,
        CvmIdentifier::AppOrInstance(app, instance) => app == cvm.app_id || has_instance(instance),
        CvmIdentifier::Instance(instance) => has_instance(instance),
        CvmIdentifier::Name(name) => name.eq_ignore_ascii_case(&cvm.name),
        CvmIdentifier::Nothing => false,
    }
}
