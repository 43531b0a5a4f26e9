//! `POST /cvms/{cvm_id}/replicas` and `POST /apps/{app_id}/cvms/{vm_uuid}/replicas`

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use cloister_management_api::{
    ApiVersion, CvmName, ErrorBody, ErrorCode, PlainError, ReplicateRequest, SealedEnv, Vm,
};

use super::power::unfunded;
use crate::api::Api;
use crate::api::approvals::{self, cannot_tell};
use crate::api::auth::Auth;
use crate::api::changes::Approval;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::input::OptionalBody;
use crate::api::negotiate::Version;
use crate::api::placing::{no_node_error, placement_error};
use crate::api::provisioning::{compose_error, nothing_opens_it};
use crate::api::responses::{OnApproval, OnCvm};
use crate::api::scene::Scene;
use crate::api::target::{self, Target};
use crate::api::view::View;
use crate::replicas::{Place, ReplicaError, ReplicaRequest};
use crate::store::{Caller, CvmRow};

/// Add a replica of a CVM
///
/// Makes another CVM of the same application: the same document, image and size, with a disk and an instance
/// id of its own. Repeating the request makes another one. What the source holds on its disk is not copied.
#[utoipa::path(
    post, path = "/cvms/{cvm_id}/replicas", tag = "CVMs", operation_id = "replicate_cvm",
    params(
        ("cvm_id" = String, Path, description = "Id, UUID, instance id or name of the source"),
        ("X-Prepare-Only" = Option<String>, Header, description = "`true`: only prepare the replica, where somebody has to allow it; without effect elsewhere"),
    ),
    request_body = Option<ReplicateRequest>,
    responses(
        (status = 200, description = "Accepted; follow the new CVM by its `vm_uuid`", body = Vm),
        (status = 400, description = "No room (ERR-02-…), the node lacks the image (ERR-03-006), which configuration is not clear (ERR-03-009), or encrypted_env cannot be used", body = ErrorBody),
        (status = 404, description = "No such CVM (ERR-03-001), deleted meanwhile (ERR-03-008), or no such node (ERR-01-001)", body = ErrorBody),
        (status = 409, description = "The source is being changed; repeat the request after `Retry-After`", body = PlainError),
        OnCvm, OnApproval,
    ),
)]
pub(crate) async fn replicate(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Target(cvm): Target,
    approval: Approval,
    OptionalBody(body): OptionalBody<ReplicateRequest>,
) -> ApiResult<Json<Vm>> {
    accept(&api, &caller, version, &cvm, &approval, body.unwrap_or_default()).await
}

/// Add a replica of an application's CVM
///
/// The same as `POST /cvms/{cvm_id}/replicas` for a CVM of this application.
#[utoipa::path(
    post, path = "/apps/{app_id}/cvms/{vm_uuid}/replicas", tag = "Apps", operation_id = "replicate_app_cvm",
    params(
        ("app_id" = String, Path, description = "App id, with or without `0x` or `app_`"),
        ("vm_uuid" = String, Path, description = "UUID of the source, with or without dashes"),
        ("X-Prepare-Only" = Option<String>, Header, description = "`true`: only prepare the replica, where somebody has to allow it; without effect elsewhere"),
    ),
    request_body = Option<ReplicateRequest>,
    responses(
        (status = 200, description = "Accepted; follow the new CVM by its `vm_uuid`", body = Vm),
        (status = 400, description = "The CVM is of another application, or as for the same request by CVM", body = ErrorBody),
        (status = 409, description = "The source is being changed; repeat the request after `Retry-After`", body = PlainError),
        OnCvm, OnApproval,
    ),
)]
pub(crate) async fn replicate_of_app(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    SourceOfApp(cvm): SourceOfApp,
    approval: Approval,
    OptionalBody(body): OptionalBody<ReplicateRequest>,
) -> ApiResult<Json<Vm>> {
    accept(&api, &caller, version, &cvm, &approval, body.unwrap_or_default()).await
}

/// The CVM that the path's `vm_uuid` names, of the application that it names. It is looked for before the rest of a
/// request is read.
pub(crate) struct SourceOfApp(CvmRow);

impl FromRequestParts<Api> for SourceOfApp {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> ApiResult<Self> {
        let Auth(caller) = Auth::from_request_parts(parts, api).await?;
        let missing = || ApiError::coded(ErrorCode::CvmNotFound);
        let path = Path::<(String, String)>::from_request_parts(parts, api).await;
        let Path((app_id, vm_uuid)) = path.map_err(|_| missing())?;
        if vm_uuid.parse::<uuid::Uuid>().is_err() {
            return Err(missing());
        }
        let cvm = target::find(api, &caller, &vm_uuid).await?;
        if target::app_id(&app_id) != Some(cvm.app_id) {
            let message = format!("the CVM belongs to application {}", cvm.app_id);
            return Err(
                ApiError::explained(ErrorCode::IncompatibleParameters, message).about("app_id", app_id)
            );
        }
        Ok(Self(cvm))
    }
}

async fn accept(
    api: &Api,
    caller: &Caller,
    version: ApiVersion,
    source: &CvmRow,
    approval: &Approval,
    body: ReplicateRequest,
) -> ApiResult<Json<Vm>> {
    let request = ReplicaRequest {
        source: source.id,
        place: body.node_id.map_or(Place::BesideSource, Place::Node),
        compose_hash: body.compose_hash.and_then(|hash| hash.0),
        encrypted_env: sealed(body.encrypted_env.as_deref())?,
        changes: Vec::new(),
        name: None,
        user_id: caller.user_id,
    };
    let cvm = approvals::add(api, caller, source, request, approval).await?;
    let scene = Scene::of(api, std::slice::from_ref(&cvm)).await?;
    Ok(Json(View::new(api, &scene, &cvm).vm(version)))
}

/// A sealed environment, by this endpoint's own rule: what cannot be one is a wrong value, not a wrong schema.
pub(crate) fn sealed(text: Option<&str>) -> ApiResult<Option<SealedEnv>> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    text.parse().map(Some).map_err(|error: cloister_management_api::InvalidSealedEnv| {
        ApiError::explained(ErrorCode::InvalidParameter, error.to_string())
            .about("encrypted_env", format!("{} characters", text.chars().count()))
    })
}

/// A refusal in the words of the interface.
pub(in crate::api) fn replica_error(error: ReplicaError) -> ApiError {
    let text = error.to_string();
    match error {
        ReplicaError::SourceGone => ApiError::explained(ErrorCode::ReplicaSourceNotVisible, text),
        ReplicaError::SourceStatus(_) => ApiError::plain(StatusCode::BAD_REQUEST, text),
        ReplicaError::SourceBusy | ReplicaError::ChangedMeanwhile => {
            ApiError::plain(StatusCode::CONFLICT, text).retry_after(RETRY_AFTER_S)
        }
        ReplicaError::HashNeeded(hashes) => {
            let hashes: Vec<String> = hashes.iter().map(ToString::to_string).collect();
            ApiError::explained(ErrorCode::HashNeeded, text).about("compose_hash", hashes)
        }
        ReplicaError::HashUnknown(hash) => {
            ApiError::explained(ErrorCode::InvalidParameter, text).about("compose_hash", hash.to_string())
        }
        ReplicaError::Document(error) => compose_error(error),
        ReplicaError::NothingOpensEnv => nothing_opens_it(),
        ReplicaError::NodeUnknown(node) => {
            ApiError::coded(ErrorCode::NodeUnknown).with_status(StatusCode::NOT_FOUND).about("node_id", node)
        }
        ReplicaError::ImageMissing { image, .. } => {
            ApiError::explained(ErrorCode::SourceImageMissing, text).about("image", image)
        }
        ReplicaError::Placement(error) => placement_error(&error),
        ReplicaError::NoNodeFits(error) => no_node_error(&error),
        ReplicaError::CannotTell(error) => cannot_tell(error),
        ReplicaError::NameTaken(name) => ApiError::coded(ErrorCode::NameTaken).about("name", name),
        ReplicaError::Unfunded(why) => unfunded(why),
        ReplicaError::Store(error) => error.into(),
        ReplicaError::Random(error) => error.into(),
    }
}

/// The name of a new CVM, if one was given.
pub(crate) fn given_name(name: Option<CvmName>) -> Option<String> {
    name.map(|name| name.to_string())
}
