//! `GET` and `POST /cvms/{cvm_id}/commit-replica`

use axum::Json;
use axum::extract::{Path, State};
use cloister_app_compose::AppId;
use cloister_management_api::{CommitRequest, ErrorBody, PlainError, PreparedChange, Vm};

use super::commit_update::TokenQuery;
use super::find::{Commit, find, names, pending};
use super::{info, replica};
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::input::{OptionalBody, Query};
use crate::api::negotiate::Version;
use crate::api::responses::OnCommit;
use crate::api::scene::Scene;
use crate::api::view::View;
use crate::store::{Caller, CvmRow, PreparedKind};

/// Look at a prepared replica
///
/// What it will run and where, and whether that is allowed. The commit token is the only credential.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/commit-replica", tag = "Approvals", operation_id = "get_commit_replica_info",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name of the source"), TokenQuery),
    responses((status = 200, description = "The replica, also one that was made", body = PreparedChange), OnCommit),
    security(()),
)]
pub(crate) async fn look(
    State(api): State<Api>,
    Path(cvm): Path<String>,
    Query(query): Query<TokenQuery>,
) -> ApiResult<Json<PreparedChange>> {
    let token = query.token.unwrap_or_default();
    let (row, cvm) = find(&api, PreparedKind::Replica, &token, |row| names(&cvm, row)).await?;
    info::of(&api, row, cvm).await.map(Json)
}

/// Commit a prepared replica
///
/// Makes exactly the replica or instance that was prepared, once those who decide have allowed it; the rules are
/// those of `POST /cvms/{cvm_id}/commit-update`.
#[utoipa::path(
    post, path = "/cvms/{cvm_id}/commit-replica", tag = "Approvals", operation_id = "commit_cvm_replica",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name of the source"), TokenQuery),
    request_body = Option<CommitRequest>,
    responses(
        (status = 200, description = "Accepted; follow the new CVM by its `vm_uuid`", body = Vm),
        (status = 400, description = "The node has no room for the replica any more (ERR-02-…)", body = ErrorBody),
        (status = 409, description = "The source is being changed; repeat the request after `Retry-After`: the token stays good. Or the name is taken (ERR-01-004)", body = PlainError),
        (status = 467, description = "The transaction did not allow this (ERR-01-007)", body = ErrorBody),
        (status = 468, description = "Those who decide do not allow this (ERR-01-008)", body = ErrorBody),
        OnCommit,
    ),
    security(()),
)]
pub(crate) async fn commit(
    State(api): State<Api>,
    Path(cvm): Path<String>,
    Version(version): Version,
    Query(query): Query<TokenQuery>,
    OptionalBody(body): OptionalBody<CommitRequest>,
) -> ApiResult<Json<Vm>> {
    let commit = Commit::new(body, query.token);
    let (row, source) = pending(&api, PreparedKind::Replica, &commit.token, |row| names(&cvm, row)).await?;
    let allowed_by = commit.of(&row)?;
    let cvm = replica::commit(&api, &row, &source, allowed_by).await?;
    let scene = Scene::of(&api, std::slice::from_ref(&cvm)).await?;
    Ok(Json(View::new(&api, &scene, &cvm).vm(version)))
}

/// The same for a caller who names the application instead of the source.
pub(crate) async fn commit_instance(
    api: &Api,
    caller: &Caller,
    app_id: AppId,
    body: CommitRequest,
) -> ApiResult<CvmRow> {
    let commit = Commit::new(Some(body), None);
    let is_own = |source: &CvmRow| source.app_id == app_id && source.workspace_id == caller.workspace_id;
    let (row, source) = pending(api, PreparedKind::Replica, &commit.token, is_own).await?;
    let allowed_by = commit.of(&row)?;
    replica::commit(api, &row, &source, allowed_by).await
}
