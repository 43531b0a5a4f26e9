//! `POST /apps/{app_id}/rollouts`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_app_compose::AppId;
use cloister_management_api::{
    ErrorBody, ErrorCode, PlainError, Rollout, RolloutRequest, SealedEnv, UpdateCvmRequest,
};

use super::view::wire;
use super::{missing, refusal, rollouts};
use crate::api::Api;
use crate::api::approvals;
use crate::api::apps::own::{MAX_CVMS, OwnApp, revision};
use crate::api::auth::Auth;
use crate::api::changes::{self, Approval, Edit};
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::Authenticated;
use crate::rollouts::{Arguments, NewUpdate, OnFailure, UpdateMember};
use crate::store::{Caller, CvmRow, RevisionRow};

/// What the members of a rollout get.
pub(crate) enum Source<'a> {
    /// A former configuration.
    Revision { row: &'a RevisionRow, env: Option<&'a SealedEnv>, allow_env_mismatch: bool },
    /// Their own with changes.
    Change(&'a UpdateCvmRequest),
}

/// How a rollout goes.
pub(crate) struct How {
    pub(crate) on_failure: OnFailure,
    pub(crate) max_unavailable: u32,
    pub(crate) arguments: Arguments,
    /// What the request says about those who have to allow it.
    pub(crate) approval: Approval,
}

/// Change the CVMs of an application
///
/// Brings one change to the named, or all, CVMs of the application, one after the other: the next one begins
/// when the one before it is up with the change and all that were changed are healthy. CVMs that are off get it
/// without being started. A CVM that cannot be changed gets its last good configuration back by itself, and then
/// the others do, or the rollout waits, as `on_failure` says. Until it ends, nothing else can change the
/// configuration of its CVMs.
#[utoipa::path(
    post, path = "/apps/{app_id}/rollouts", tag = "Apps", operation_id = "create_rollout",
    params(("app_id" = String, Path, description = "App id, hex")),
    request_body(content = RolloutRequest, example = json!({
        "docker_compose_file": "services:\n  web:\n    image: registry.example/web:2\n", "max_unavailable": 1, "on_failure": "roll_back",
    })),
    responses(
        (status = 202, description = "Accepted", body = Rollout),
        (status = 400, description = "Nothing would change, a CVM cannot take the change, or a parameter is invalid", body = ErrorBody),
        (status = 404, description = "No such app, revision or CVM in the workspace", body = PlainError),
        (status = 409, description = "Another rollout or operation is under way", body = PlainError),
        (status = 465, description = "Those who decide have not allowed the document, or the device of a CVM (ERR-01-005). Nothing is kept: have it allowed, and start the rollout again", body = ErrorBody),
        (status = 466, description = "A CVM would get another document than `X-Compose-Hash` names (ERR-01-006)", body = ErrorBody),
        (status = 467, description = "`X-Transaction-Hash` allowed nothing of it (ERR-01-007)", body = ErrorBody),
        (status = 468, description = "Those who decide do not allow it, although it is said to be allowed (ERR-01-008)", body = ErrorBody),
        (status = 503, description = "Those who decide cannot be asked now; repeat the request after `Retry-After`", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn create(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
    approval: Approval,
    Body(RolloutRequest { options, change }): Body<RolloutRequest>,
) -> ApiResult<(StatusCode, Json<Rollout>)> {
    let members = match options.vm_uuids.as_deref() {
        Some(uuids) => app.named(uuids)?,
        None if app.cvms.len() >= MAX_CVMS => {
            let message =
                format!("the app has {MAX_CVMS} CVMs or more; name those of this rollout in vm_uuids");
            return Err(ApiError::explained(ErrorCode::InvalidParameter, message)
                .about("vm_uuids", Vec::<String>::new()));
        }
        None => app.cvms.iter().collect(),
    };
    let on_failure = options.on_failure.as_deref().unwrap_or(OnFailure::RollBack.as_str());
    let on_failure = on_failure.parse().map_err(|_| {
        ApiError::fault(&["body", "on_failure"], "enum", "Input should be 'roll_back' or 'pause'")
    })?;
    let manner = changes::manner_of(&change, Approval::default())?;
    if !manner.policy.is_empty() {
        let message = "a rollout does not change the policies of CVMs; set rollback_on_failure and health_timeout \
                       of each CVM";
        return Err(ApiError::explained(ErrorCode::IncompatibleParameters, message));
    }
    let row = match &options.revision_id {
        Some(id) => Some(revision(&api, &caller, app.app_id, &id.0.to_string()).await?),
        None => None,
    };
    let source = match &row {
        Some(row) => {
            let env = change.encrypted_env.as_ref().and_then(|env| env.0.as_ref());
            check_only_env(&change)?;
            Source::Revision { row, env, allow_env_mismatch: options.allow_env_mismatch }
        }
        None => Source::Change(&change),
    };
    let arguments = Arguments {
        shutdown_timeout_s: manner.shutdown_timeout_s,
        // As with a single CVM: without the wish, nobody's power is taken away.
        allow_force_stop: manner.allow_force_stop,
        ..Arguments::default()
    };
    let how = How { on_failure, max_unavailable: options.max_unavailable, arguments, approval };
    let id = begin(&api, &caller, app.app_id, &members, &source, how).await?;
    let row = api.store.rollout(id).await?.ok_or_else(missing)?;
    Ok((StatusCode::ACCEPTED, Json(wire(&api, &caller, row).await?)))
}

/// A revision is brought back as it was; only its environment can be another one.
fn check_only_env(change: &UpdateCvmRequest) -> ApiResult<()> {
    let rest = UpdateCvmRequest {
        encrypted_env: None,
        shutdown_timeout: None,
        allow_force_stop: false,
        ..change.clone()
    };
    if rest == UpdateCvmRequest::default() {
        return Ok(());
    }
    let message = "revision_id brings a whole configuration; beside it only encrypted_env can be given";
    Err(ApiError::explained(ErrorCode::IncompatibleParameters, message))
}

/// Composes what each member gets, and accepts the rollout; its id.
pub(crate) async fn begin(
    api: &Api,
    caller: &Caller,
    app_id: AppId,
    cvms: &[&CvmRow],
    source: &Source<'_>,
    how: How,
) -> ApiResult<i64> {
    if cvms.is_empty() {
        return Err(ApiError::plain(StatusCode::BAD_REQUEST, "No CVM of the app is left; create one"));
    }
    let (mut members, mut kinds) = (Vec::new(), Vec::new());
    for cvm in cvms {
        let edit = match source {
            Source::Change(change) => changes::edit_of(api, cvm, change).await?,
            Source::Revision { row, env, allow_env_mismatch } => {
                let mut edit = Edit::of(cvm);
                edit.revision(api, row, *env, *allow_env_mismatch).await?;
                edit
            }
        };
        kinds.extend(edit.kind());
        members.push(UpdateMember {
            cvm_id: cvm.id,
            base_revision: cvm.revision_id,
            configuration: edit.into_configuration(),
        });
    }
    let documents: Vec<_> =
        cvms.iter().zip(&members).map(|(cvm, member)| (*cvm, member.configuration.compose_hash)).collect();
    approvals::check_members(api, &documents, &how.approval).await?;
    // The history shows what all have in common.
    kinds.dedup();
    let arguments = match (source, kinds.as_slice()) {
        (Source::Change(_), [kind]) => Arguments { kind: kind.as_str().to_owned(), ..how.arguments },
        _ => how.arguments,
    };
    let new = NewUpdate {
        app_id,
        workspace_id: caller.workspace_id,
        members,
        on_failure: how.on_failure,
        max_unavailable: how.max_unavailable,
        arguments,
        user_id: caller.user_id,
    };
    rollouts(api).update(&new).await.map_err(refusal)
}
