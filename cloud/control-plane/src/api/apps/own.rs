//! Which application a path names, and whether the caller may know.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use cloister_app_compose::AppId;
use cloister_management_api::{ErrorCode, RevisionId};
use utoipa::IntoParams;
use uuid::Uuid;

use super::record::{missing, parse};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::store::{Caller, CvmRow, RevisionRow};

/// Most living CVMs of an application that are looked at.
pub(super) const MAX_CVMS: usize = 100;

/// The application that the path's `app_id` names: one that has, or had, CVMs in the caller's workspace. Any
/// other is not told from one that does not exist.
pub(crate) struct OwnApp {
    pub(super) app_id: AppId,
    /// Its living CVMs, oldest first, at most [`MAX_CVMS`].
    pub(super) cvms: Vec<CvmRow>,
}

impl FromRequestParts<Api> for OwnApp {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> ApiResult<Self> {
        let Auth(caller) = Auth::from_request_parts(parts, api).await?;
        let app_id = parse(&parameter(parts, api, "app_id").await)?;
        let mut cvms = api.store.cvms_of_app(app_id).await?;
        cvms.retain(|cvm| cvm.workspace_id == caller.workspace_id);
        if cvms.is_empty() && api.store.count_revisions_of_app(app_id, caller.workspace_id).await? == 0 {
            return Err(missing());
        }
        Ok(Self { app_id, cvms })
    }
}

/// The path of a revision, for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes parameters, is never made")]
pub(super) struct RevisionPath {
    /// App id, hex
    app_id: String,
    /// Id of the revision
    revision_id: String,
}

/// The path of a rollout, for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes parameters, is never made")]
pub(super) struct RolloutPath {
    /// App id, hex
    app_id: String,
    /// Id of the rollout
    rollout_id: String,
}

/// The text of the path's `revision_id`.
pub(crate) struct NamedRevision(pub(super) String);

impl FromRequestParts<Api> for NamedRevision {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Infallible> {
        Ok(Self(parameter(parts, api, "revision_id").await))
    }
}

/// A parameter of the path; empty when it is not UTF-8.
pub(super) async fn parameter(parts: &mut Parts, api: &Api, name: &str) -> String {
    let Ok(path) = RawPathParams::from_request_parts(parts, api).await else { return String::new() };
    path.iter().find_map(|(key, value)| (key == name).then(|| value.to_owned())).unwrap_or_default()
}

impl OwnApp {
    /// The living CVMs that these texts name, in their order and each once.
    pub(super) fn named(&self, vm_uuids: &[String]) -> ApiResult<Vec<&CvmRow>> {
        let mut named: Vec<&CvmRow> = Vec::new();
        for text in vm_uuids {
            let found = text.parse::<Uuid>().ok();
            let found = found.and_then(|uuid| self.cvms.iter().find(|cvm| cvm.vm_uuid == uuid));
            let cvm = found
                .ok_or_else(|| ApiError::coded(ErrorCode::CvmNotFound).about("vm_uuids", text.as_str()))?;
            if !named.iter().any(|other| other.id == cvm.id) {
                named.push(cvm);
            }
        }
        if named.is_empty() {
            return Err(ApiError::explained(ErrorCode::InvalidParameter, "vm_uuids names no CVM")
                .about("vm_uuids", Vec::<String>::new()));
        }
        Ok(named)
    }
}

/// The applied revision of an application that a text names.
pub(super) async fn revision(
    api: &Api,
    caller: &Caller,
    app_id: AppId,
    text: &str,
) -> ApiResult<RevisionRow> {
    let missing = || ApiError::not_found("Revision");
    let id: RevisionId = text.parse().map_err(|_| missing())?;
    let row = api.store.revision(id.0).await?.ok_or_else(missing)?;
    let is_own = row.workspace_id == caller.workspace_id && row.app_id == app_id;
    if is_own && row.applied_at_ms.is_some() { Ok(row) } else { Err(missing()) }
}
