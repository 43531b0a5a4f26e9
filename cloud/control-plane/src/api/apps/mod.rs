//! Applications: what their CVMs have in common.

pub(crate) mod approvals;
pub(crate) mod attestations;
pub(crate) mod budget;
pub(crate) mod cvms;
pub(crate) mod detail;
pub(crate) mod device_allowlist;
pub(crate) mod filter_options;
pub(crate) mod instances;
pub(crate) mod is_allowed;
pub(crate) mod kms_info;
pub(crate) mod list;
mod own;
pub(crate) mod owners;
pub(crate) mod pending_updates;
mod record;
pub(crate) mod redeploy;
pub(crate) mod revisions;
pub(crate) mod rollouts;
mod statements;
pub(crate) mod tcb_evaluation;
pub(crate) mod usage;

use axum::http::HeaderMap;
use cloister_app_compose::AppId;

use self::record::{missing, parse, records};
use super::Api;
use super::auth;
use super::error::ApiResult;
use super::view::Shown;
use crate::store::CvmRow;

/// CVMs of an app that are asked for their evidence at a time.
const AT_A_TIME: usize = 50;

/// The CVMs of an app whose evidence the caller may see: all of the caller's workspace, and of others
/// those that show it to everybody. An app without any of these is not told from one that does not exist.
async fn visible_cvms(api: &Api, app_id: &str, headers: &HeaderMap) -> ApiResult<(AppId, Vec<CvmRow>)> {
    let caller = auth::optional_caller(api, headers).await?;
    let app_id = parse(app_id)?;
    let mut cvms = api.store.cvms_of_app(app_id).await?;
    cvms.retain(|cvm| {
        let is_own = caller.as_ref().is_some_and(|caller| caller.workspace_id == cvm.workspace_id);
        is_own || Shown::of(&cvm.app_compose).public_tcbinfo
    });
    if cvms.is_empty() { Err(missing()) } else { Ok((app_id, cvms)) }
}
