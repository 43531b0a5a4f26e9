//! `POST /apps/{app_id}/instances`

use axum::Json;
use axum::extract::State;
use cloister_management_api::v20260121::CvmInfo;
use cloister_management_api::{AddInstanceRequest, ApiVersion, CommitRequest, ErrorBody, PlainError, Vm};
use serde_json::Value;
use utoipa::ToSchema;

use super::own::OwnApp;
use super::record::missing;
use crate::api::Api;
use crate::api::approvals;
use crate::api::auth::Auth;
use crate::api::changes::Approval;
use crate::api::cvms::replicas::{given_name, sealed};
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::OptionalBody;
use crate::api::negotiate::Version;
use crate::api::responses::{Authenticated, OnApproval};
use crate::api::scene::Scene;
use crate::api::view::View;
use crate::operations::CvmStatus;
use crate::replicas::{Place, ReplicaRequest, changes};
use crate::store::{Caller, CvmRow};

/// The new CVM in the form of the version.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes a response, is never made")]
pub(crate) enum NewInstance {
    /// Up to version 2026-01-21.
    Record(Box<Vm>),
    /// From version 2026-05-22 on.
    Both(Box<InstanceRecord>),
}

/// A CVM's record with the members that lists have.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a response, is never made")]
pub(crate) struct InstanceRecord {
    /// What lists have.
    #[serde(flatten)]
    info: CvmInfo,
    /// The record.
    #[serde(flatten)]
    record: Vm,
}

/// Add an instance of an application
///
/// Makes another CVM of the application, on the node that fits best: one that has none of its CVMs before one
/// that has. Its document is the application's, with another compose file or pre-launch script if the request
/// brings one. Repeating the request makes another instance. With `token` it commits an instance that was
/// prepared, and only `compose_hash` and `transaction_hash` are looked at beside.
#[utoipa::path(
    post, path = "/apps/{app_id}/instances", tag = "Apps", operation_id = "add_app_instance",
    params(
        ("app_id" = String, Path, description = "App id, with or without `0x` or `app_`"),
        ("X-Prepare-Only" = Option<String>, Header, description = "`true`: only prepare the instance, where somebody has to allow it; without effect elsewhere"),
    ),
    request_body = Option<AddInstanceRequest>,
    responses(
        (status = 200, description = "Accepted; from version 2026-05-22 on with the members of a CVM in lists, too", body = NewInstance),
        (status = 400, description = "No room (ERR-02-…), which configuration is not clear (ERR-03-009), or encrypted_env cannot be used", body = ErrorBody),
        (status = 404, description = "No such application in the workspace", body = PlainError),
        (status = 409, description = "The source is being changed; repeat the request after `Retry-After`", body = PlainError),
        Authenticated, OnApproval,
    ),
)]
pub(crate) async fn add_instance(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    app: OwnApp,
    approval: Approval,
    OptionalBody(body): OptionalBody<AddInstanceRequest>,
) -> ApiResult<Json<Value>> {
    let source = best_source(&app.cvms).ok_or_else(missing)?;
    let body = body.unwrap_or_default();
    let cvm = if body.token.as_deref().is_some_and(|token| !token.trim().is_empty()) {
        approvals::commit_instance(&api, &caller, app.app_id, commit_of(body)).await?
    } else {
        let request = request_of(&caller, source, body)?;
        approvals::add(&api, &caller, source, request, &approval).await?
    };
    let scene = Scene::of(&api, std::slice::from_ref(&cvm)).await?;
    answer(&View::new(&api, &scene, &cvm), version).map(Json)
}

fn commit_of(body: AddInstanceRequest) -> CommitRequest {
    CommitRequest {
        token: body.token,
        compose_hash: body.compose_hash.and_then(|hash| hash.0).map(|hash| hash.to_string()),
        transaction_hash: body.transaction_hash,
    }
}

fn request_of(caller: &Caller, source: &CvmRow, body: AddInstanceRequest) -> ApiResult<ReplicaRequest> {
    Ok(ReplicaRequest {
        source: source.id,
        place: body.node_id.map_or(Place::Anywhere { but: None }, Place::Node),
        compose_hash: body.compose_hash.and_then(|hash| hash.0),
        encrypted_env: sealed(body.encrypted_env.as_deref())?,
        changes: changes(body.docker_compose_file, body.pre_launch_script),
        name: given_name(body.name),
        user_id: caller.user_id,
    })
}

/// The CVM that the new one is to be like: one that works before one that does not, the oldest first.
fn best_source(cvms: &[CvmRow]) -> Option<&CvmRow> {
    let rank = |cvm: &&CvmRow| match cvm.status {
        CvmStatus::Running => 0,
        CvmStatus::Error | CvmStatus::Removing => 2,
        _ => 1,
    };
    cvms.iter().min_by_key(rank)
}

/// The record of the new CVM. Clients of later versions read it as an item of a list, so it is both.
fn answer(view: &View<'_>, version: ApiVersion) -> ApiResult<Value> {
    let json = |value: serde_json::Result<Value>| value.map_err(|error| ApiError::internal(&error));
    let vm = json(serde_json::to_value(view.vm(version)))?;
    if !version.has_text_ids() {
        return Ok(vm);
    }
    let mut both = json(serde_json::to_value(view.info()))?;
    if let (Value::Object(both), Value::Object(vm)) = (&mut both, vm) {
        both.extend(vm);
    }
    Ok(both)
}
