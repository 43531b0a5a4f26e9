//! `GET` and `POST /cvms/{cvm_id}/commit-update`

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_app_compose::members;
use cloister_management_api::{CommitRequest, CommittedUpdate, ErrorBody, PlainError, PreparedChange};
use utoipa::IntoParams;

use super::find::{Commit, find, names, pending};
use super::{info, update};
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::input::{OptionalBody, Query};
use crate::api::responses::OnCommit;
use crate::store::PreparedKind;

members! {
    /// Query of a commit.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct TokenQuery {
        /// Commit token.
        #[param(required = false)]
        pub token: Option<String>,
    }
}

/// Look at a prepared update
///
/// What it changes, what has to be allowed, and how that stands. The commit token is the only credential.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/commit-update", tag = "Approvals", operation_id = "get_commit_update_info",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"), TokenQuery),
    responses((status = 200, description = "The update, also one that ended", body = PreparedChange), OnCommit),
    security(()),
)]
pub(crate) async fn look(
    State(api): State<Api>,
    Path(cvm): Path<String>,
    Query(query): Query<TokenQuery>,
) -> ApiResult<Json<PreparedChange>> {
    let token = query.token.unwrap_or_default();
    let (row, cvm) = find(&api, PreparedKind::Update, &token, |row| names(&cvm, row)).await?;
    info::of(&api, row, cvm).await.map(Json)
}

/// Commit a prepared update
///
/// Carries out exactly what was prepared, once those who decide have allowed it. The commit token is the only
/// credential: whoever prepared the update may hand it to the owner of the contract. It works once, for 14 days,
/// unless the CVM is changed otherwise or another update is prepared. A transaction is checked before the
/// contract is asked: it has to be confirmed and to have allowed this compose hash or device at the application's
/// contract, directly or through wallets of several people.
#[utoipa::path(
    post, path = "/cvms/{cvm_id}/commit-update", tag = "Approvals", operation_id = "commit_cvm_update",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"), TokenQuery),
    request_body = Option<CommitRequest>,
    responses(
        (status = 202, description = "Accepted; the CVM is restarted with the update", body = CommittedUpdate),
        (status = 400, description = "The node has no room for the update any more (ERR-02-…)", body = ErrorBody),
        (status = 409, description = "Another operation works on the CVM; repeat the request after `Retry-After`: the token stays good", body = PlainError),
        (status = 467, description = "The transaction did not allow this (ERR-01-007)", body = ErrorBody),
        (status = 468, description = "Those who decide do not allow this (ERR-01-008)", body = ErrorBody),
        OnCommit,
    ),
    security(()),
)]
pub(crate) async fn commit(
    State(api): State<Api>,
    Path(cvm): Path<String>,
    Query(query): Query<TokenQuery>,
    OptionalBody(body): OptionalBody<CommitRequest>,
) -> ApiResult<(StatusCode, Json<CommittedUpdate>)> {
    let commit = Commit::new(body, query.token);
    let (row, cvm) = pending(&api, PreparedKind::Update, &commit.token, |row| names(&cvm, row)).await?;
    let allowed_by = commit.of(&row)?;
    let correlation_id = update::commit(&api, &row, &cvm, allowed_by).await?;
    let answer = CommittedUpdate { correlation_id, status: "in_progress".to_owned() };
    Ok((StatusCode::ACCEPTED, Json(answer)))
}
