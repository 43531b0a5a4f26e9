//! `POST /apps/{app_id}/revisions/{revision_id}/redeploy` and the same of one CVM

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_app_compose::members;
use cloister_management_api::{ErrorBody, ErrorCode, PlainError, RedeployRequest, Redeployment, RolloutId};

use utoipa::IntoParams;

use super::own::{NamedRevision, OwnApp, RevisionPath, revision};
use super::rollouts::{self, Source};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Approval, Edit, Manner};
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::{OptionalBody, Query};
use crate::api::responses::{Authenticated, OnApproval, OnCvm, OnPower};
use crate::api::target::Target;
use crate::operations::OperationKind;
use crate::rollouts::{Arguments, OnFailure};
use crate::store::{Caller, CvmRow, RevisionRow};

members! {
    /// Query of a redeployment.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct TransactionQuery {
        /// Transaction that allowed the document; `already-registered` has only the contract asked.
        #[param(required = false)]
        pub transaction_hash: Option<String>,
    }
}

impl TransactionQuery {
    fn approval(&self, headers: Approval) -> Approval {
        Approval::of(None, self.transaction_hash.as_deref()).or(headers)
    }
}

/// Bring a revision back
///
/// Gives CVMs of the application the configuration that the revision holds: one CVM at once, several as a
/// rollout, one after the other. Disks never shrink, and CVMs keep their GPUs. A sealed environment that was
/// sealed to a key that is not the application's any more is refused without `allow_env_mismatch`.
#[utoipa::path(
    post, path = "/apps/{app_id}/revisions/{revision_id}/redeploy", tag = "Apps", operation_id = "redeploy_app_revision",
    params(
        RevisionPath, TransactionQuery,
    ),
    request_body = Option<RedeployRequest>,
    responses(
        (status = 202, description = "Accepted", body = Redeployment),
        (status = 200, description = "The CVM has this configuration already", body = Redeployment),
        (status = 400, description = "Which CVM is not clear (ERR-03-009), its node lacks the image (ERR-03-006) or room (ERR-02-…), or the environment does not fit (ERR-02-009)", body = ErrorBody),
        (status = 404, description = "No such app, revision or CVM in the workspace", body = PlainError),
        OnApproval, OnPower, Authenticated,
    ),
)]
pub(crate) async fn redeploy_app(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
    NamedRevision(id): NamedRevision,
    Query(query): Query<TransactionQuery>,
    approval: Approval,
    OptionalBody(request): OptionalBody<RedeployRequest>,
) -> ApiResult<(StatusCode, Json<Redeployment>)> {
    let request = request.unwrap_or_default();
    let row = revision(&api, &caller, app.app_id, &id).await?;
    let members = match request.vm_uuids.as_deref().filter(|uuids| !uuids.is_empty()) {
        Some(uuids) => app.named(uuids)?,
        None if app.cvms.len() > 1 => {
            let message = "the app has several CVMs; name those that get the revision in vm_uuids";
            return Err(
                ApiError::explained(ErrorCode::HashNeeded, message).about("vm_uuids", Vec::<String>::new())
            );
        }
        None => app.cvms.iter().collect(),
    };
    match members.as_slice() {
        [] => Err(ApiError::plain(StatusCode::BAD_REQUEST, "No CVM of the app is left; create one")),
        [cvm] => redeploy(&api, &caller, cvm, &row, &request, query.approval(approval)).await,
        _ => {
            let env = request.encrypted_env.as_ref().and_then(|env| env.0.as_ref());
            let source = Source::Revision { row: &row, env, allow_env_mismatch: request.allow_env_mismatch };
            let how = rollouts::How {
                on_failure: OnFailure::RollBack,
                max_unavailable: 1,
                arguments: Arguments::default(),
                approval: query.approval(approval),
            };
            let id = rollouts::begin(&api, &caller, app.app_id, &members, &source, how).await?;
            Ok((
                StatusCode::ACCEPTED,
                Json(Redeployment {
                    status: "in_progress".to_owned(),
                    message: "The CVMs get the revision one after the other".to_owned(),
                    correlation_id: String::new(),
                    rollout_id: Some(RolloutId(id)),
                }),
            ))
        }
    }
}

/// Bring a revision back to a CVM
///
/// The revision may be one of another CVM of the same application.
#[utoipa::path(
    post, path = "/cvms/{cvm_id}/revisions/{revision_id}/redeploy", tag = "CVMs", operation_id = "redeploy_cvm_revision",
    params(
        ("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"),
        ("revision_id" = String, Path, description = "Id of the revision"),
        TransactionQuery,
    ),
    request_body = Option<RedeployRequest>,
    responses(
        (status = 202, description = "Accepted", body = Redeployment),
        (status = 200, description = "The CVM has this configuration already", body = Redeployment),
        OnCvm, OnApproval, OnPower,
    ),
)]
pub(crate) async fn redeploy_cvm(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    NamedRevision(id): NamedRevision,
    Query(query): Query<TransactionQuery>,
    approval: Approval,
    OptionalBody(request): OptionalBody<RedeployRequest>,
) -> ApiResult<(StatusCode, Json<Redeployment>)> {
    let row = revision(&api, &caller, cvm.app_id, &id).await?;
    redeploy(&api, &caller, &cvm, &row, &request.unwrap_or_default(), query.approval(approval)).await
}

async fn redeploy(
    api: &Api,
    caller: &Caller,
    cvm: &CvmRow,
    row: &RevisionRow,
    request: &RedeployRequest,
    approval: Approval,
) -> ApiResult<(StatusCode, Json<Redeployment>)> {
    let env = request.encrypted_env.as_ref().and_then(|env| env.0.as_ref());
    let mut edit = Edit::of(cvm);
    edit.revision(api, row, env, request.allow_env_mismatch).await?;
    let answer = |status: &str, message: &str, correlation_id: String| {
        Json(Redeployment {
            status: status.to_owned(),
            message: message.to_owned(),
            correlation_id,
            rollout_id: None,
        })
    };
    if edit.kind().is_none() {
        let message = "The CVM has this configuration already; nothing is done";
        return Ok((StatusCode::OK, answer("no_change", message, String::new())));
    }
    let id = changes::accept(api, caller, edit, OperationKind::Update, Manner::of(approval)).await?;
    Ok((StatusCode::ACCEPTED, answer("in_progress", "The CVM gets the revision", id.to_string())))
}
