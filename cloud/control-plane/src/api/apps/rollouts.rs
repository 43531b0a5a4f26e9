//! `/apps/{app_id}/rollouts`: one change over several CVMs of an application

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_app_compose::{AppId, members};
use cloister_management_api::{
    AbortRolloutRequest, ErrorBody, ErrorCode, PlainError, Rollout, RolloutId, RolloutMember, RolloutPage,
    RolloutRequest, SealedEnv, UpdateCvmRequest,
};
use utoipa::IntoParams;

use super::own::{MAX_CVMS, NamedRollout, OwnApp, revision};
use super::revisions::user;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Edit};
use crate::api::cvms::operations::sanitised;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::input::{Body, OptionalBody, Query, within};
use crate::api::responses::Authenticated;
use crate::api::view::time;
use crate::rollouts::{
    Arguments, NewUpdate, OnFailure, RolloutEvent, RolloutKind, RolloutRequestError, Rollouts, UpdateMember,
};
use crate::store::{Caller, CvmRow, MemberRow, RevisionRow, RolloutRow};

const DEFAULT_PAGE_SIZE: u32 = 20;
const MAX_PAGE_SIZE: u32 = 100;
/// A page far behind the end costs the database more and shows nothing.
const MAX_PAGE: u32 = 100_000;

members! {
    /// Query of `GET /apps/{app_id}/rollouts`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct RolloutsQuery {
        /// Number of the page.
        #[param(required = false, minimum = 1, default = 1)]
        pub page: Option<i64>,
        /// Most rollouts of the page.
        #[param(required = false, minimum = 1, maximum = 100, default = 20)]
        pub page_size: Option<i64>,
    }
}

/// What the members of a rollout get.
pub(super) enum Source<'a> {
    /// A former configuration.
    Revision { row: &'a RevisionRow, env: Option<&'a SealedEnv>, allow_env_mismatch: bool },
    /// Their own with changes.
    Change(&'a UpdateCvmRequest),
}

/// How a rollout goes.
pub(super) struct How {
    pub(super) on_failure: OnFailure,
    pub(super) max_unavailable: u32,
    pub(super) arguments: Arguments,
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
        Authenticated,
    ),
)]
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    app: OwnApp,
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
    let manner = changes::manner_of(&change)?;
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
    let how = How { on_failure, max_unavailable: options.max_unavailable, arguments };
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
pub(super) async fn begin(
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

/// List an application's rollouts
#[utoipa::path(
    get, path = "/apps/{app_id}/rollouts", tag = "Apps", operation_id = "list_rollouts",
    params(("app_id" = String, Path, description = "App id, hex"), RolloutsQuery),
    responses(
        (status = 200, description = "A page of rollouts, newest first", body = RolloutPage),
        (status = 404, description = "No such app in the workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    app: OwnApp,
    Query(query): Query<RolloutsQuery>,
) -> ApiResult<Json<RolloutPage>> {
    let page = within("page", query.page, 1, 1..=MAX_PAGE)?;
    let page_size = within("page_size", query.page_size, DEFAULT_PAGE_SIZE, 1..=MAX_PAGE_SIZE)?;
    let size = i64::from(page_size);
    let total = api.store.count_rollouts_of_app(app.app_id, caller.workspace_id).await?;
    let offset = i64::from(page - 1) * size;
    let rows = api.store.rollouts_of_app(app.app_id, caller.workspace_id, size, offset).await?;
    let mut rollouts = Vec::new();
    for row in rows {
        rollouts.push(wire(&api, &caller, row).await?);
    }
    Ok(Json(RolloutPage { rollouts, total, page, page_size, total_pages: (total + size - 1) / size }))
}

/// Get a rollout
#[utoipa::path(
    get, path = "/apps/{app_id}/rollouts/{rollout_id}", tag = "Apps", operation_id = "get_rollout",
    params(
        ("app_id" = String, Path, description = "App id, hex"),
        ("rollout_id" = String, Path, description = "Id of the rollout"),
    ),
    responses(
        (status = 200, description = "The rollout with its members", body = Rollout),
        (status = 404, description = "No such app or rollout in the workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn detail(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    app: OwnApp,
    NamedRollout(id): NamedRollout,
) -> ApiResult<Json<Rollout>> {
    let row = find(&api, &caller, app.app_id, &id).await?;
    Ok(Json(wire(&api, &caller, row).await?))
}

/// Pause a rollout
///
/// Nothing new begins; what was begun ends.
#[utoipa::path(
    post, path = "/apps/{app_id}/rollouts/{rollout_id}/pause", tag = "Apps", operation_id = "pause_rollout",
    params(
        ("app_id" = String, Path, description = "App id, hex"),
        ("rollout_id" = String, Path, description = "Id of the rollout"),
    ),
    responses(
        (status = 200, description = "The rollout", body = Rollout),
        (status = 400, description = "It has ended, or is ending", body = PlainError),
        (status = 404, description = "No such app or rollout in the workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn pause(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    app: OwnApp,
    NamedRollout(id): NamedRollout,
) -> ApiResult<Json<Rollout>> {
    steer(&api, &caller, app.app_id, &id, RolloutEvent::Pause).await
}

/// Resume a rollout
///
/// It goes on where it stopped; CVMs that could not be changed are tried again.
#[utoipa::path(
    post, path = "/apps/{app_id}/rollouts/{rollout_id}/resume", tag = "Apps", operation_id = "resume_rollout",
    params(
        ("app_id" = String, Path, description = "App id, hex"),
        ("rollout_id" = String, Path, description = "Id of the rollout"),
    ),
    responses(
        (status = 200, description = "The rollout", body = Rollout),
        (status = 400, description = "It has ended, or is ending", body = PlainError),
        (status = 404, description = "No such app or rollout in the workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn resume(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    app: OwnApp,
    NamedRollout(id): NamedRollout,
) -> ApiResult<Json<Rollout>> {
    steer(&api, &caller, app.app_id, &id, RolloutEvent::Resume).await
}

/// End a rollout
///
/// Nothing new begins, and what was begun ends. CVMs keep what they have, or with `roll_back` those that were
/// changed go back one after the other.
#[utoipa::path(
    post, path = "/apps/{app_id}/rollouts/{rollout_id}/abort", tag = "Apps", operation_id = "abort_rollout",
    params(
        ("app_id" = String, Path, description = "App id, hex"),
        ("rollout_id" = String, Path, description = "Id of the rollout"),
    ),
    request_body = Option<AbortRolloutRequest>,
    responses(
        (status = 200, description = "The rollout", body = Rollout),
        (status = 400, description = "It has ended, or is ending", body = PlainError),
        (status = 404, description = "No such app or rollout in the workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn abort(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    app: OwnApp,
    NamedRollout(id): NamedRollout,
    OptionalBody(request): OptionalBody<AbortRolloutRequest>,
) -> ApiResult<Json<Rollout>> {
    let rolls_back = request.unwrap_or_default().roll_back;
    let event = if rolls_back { RolloutEvent::AbortAndRollBack } else { RolloutEvent::Abort };
    steer(&api, &caller, app.app_id, &id, event).await
}

async fn steer(
    api: &Api,
    caller: &Caller,
    app_id: AppId,
    id: &str,
    event: RolloutEvent,
) -> ApiResult<Json<Rollout>> {
    let row = find(api, caller, app_id, id).await?;
    let reason = match event {
        RolloutEvent::Pause => Some(format!("paused by {}", caller.username)),
        RolloutEvent::Abort | RolloutEvent::AbortAndRollBack => Some(format!("ended by {}", caller.username)),
        _ => None,
    };
    let moved = rollouts(api).steer(row.id, event, reason.as_deref()).await.map_err(refusal)?;
    Ok(Json(wire(api, caller, moved).await?))
}

fn rollouts(api: &Api) -> Rollouts {
    Rollouts::new(api.store.clone(), api.clock.clone())
}

async fn find(api: &Api, caller: &Caller, app_id: AppId, id: &str) -> ApiResult<RolloutRow> {
    let id: RolloutId = id.parse().map_err(|_| missing())?;
    let row = api.store.rollout(id.0).await?;
    let is_own = |row: &RolloutRow| {
        row.kind == RolloutKind::Update
            && row.workspace_id == Some(caller.workspace_id)
            && row.app_id.as_deref() == Some(app_id.to_string().as_str())
    };
    row.filter(is_own).ok_or_else(missing)
}

fn missing() -> ApiError {
    ApiError::not_found("Rollout")
}

/// A refusal in the words of the interface.
pub(crate) fn refusal(error: RolloutRequestError) -> ApiError {
    let text = error.to_string();
    match error {
        RolloutRequestError::NotFound => missing(),
        // Without a code: it passes.
        RolloutRequestError::UnderWay(_) | RolloutRequestError::ChangedMeanwhile => {
            ApiError::plain(StatusCode::CONFLICT, text).retry_after(RETRY_AFTER_S)
        }
        RolloutRequestError::NothingToChange | RolloutRequestError::IllegalMove { .. } => {
            ApiError::plain(StatusCode::BAD_REQUEST, text)
        }
        RolloutRequestError::MaxUnavailable(limit) => {
            ApiError::explained(ErrorCode::InvalidParameter, text).about("max_unavailable", limit)
        }
        RolloutRequestError::Store(error) => error.into(),
    }
}

async fn wire(api: &Api, caller: &Caller, row: RolloutRow) -> ApiResult<Rollout> {
    let members = api.store.rollout_members(row.id).await?;
    let triggered_by = api.store.user(row.triggered_by).await?;
    // Addresses and paths of hosts are for operators only.
    let shown = |text: String| if caller.is_admin() { text } else { sanitised(&text) };
    let app_id = row.app_id.as_deref().unwrap_or_default();
    let member = |member: MemberRow| RolloutMember {
        vm_uuid: member.vm_uuid,
        name: member.name,
        state: member.state.to_string(),
        correlation_id: member.correlation_id,
        error: member.error.map(shown),
        cvm_status: match member.deleted_at_ms {
            Some(_) => "deleted".to_owned(),
            None => member.cvm_status.to_string(),
        },
        health: member.health,
    };
    Ok(Rollout {
        rollout_id: RolloutId(row.id),
        app_id: app_id.parse().map_err(|error| ApiError::internal(&error))?,
        state: row.state.to_string(),
        reason: row.reason.map(shown),
        on_failure: row.on_failure.to_string(),
        max_unavailable: row.max_unavailable,
        triggered_by: triggered_by.map(|row| user(row.id, row.username)),
        created_at: time(row.created_at_ms),
        updated_at: time(row.updated_at_ms),
        completed_at: row.completed_at_ms.map(time),
        members: members.into_iter().map(member).collect(),
    })
}
