//! `POST /cvms` and `POST /cvms/agentapp`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{ApiVersion, CreateCvmRequest, ErrorBody, ErrorCode, PlainError, Vm};

use super::contract_app;
use super::power::unfunded;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::governance::chain_reads;
use crate::api::input::Body;
use crate::api::negotiate::Version;
use crate::api::placing::placement_error;
use crate::api::provisioning::nothing_opens_it;
use crate::api::responses::Authenticated;
use crate::api::scene::Scene;
use crate::api::view::View;
use crate::operations::{CreateError, CreateRequest};
use crate::store::{Caller, CvmRow, ProvisionRow};

/// Create a CVM from a provision
///
/// Takes a cached provision by its compose hash and starts the CVM; the work goes on after the answer.
/// Follow it with `GET /cvms/{cvm_id}/state?target=running`. Repeating the call returns the same CVM.
///
/// Where a contract decides for the key management service, `app_id` is the application's contract. It has to be
/// registered there and to allow the document on the node's device, in confirmed blocks; `transaction_hash` may name
/// what deployed it.
#[utoipa::path(
    post, path = "/cvms", tag = "CVMs", operation_id = "create_cvm",
    request_body(content = CreateCvmRequest, example = json!({
        "app_id": "cd234a471b72ba2f1ccf0a70fcaba648a5eecd8d",
        "compose_hash": "e14ea3f94504ead2613eda46ed3dc3f29747a2007a7fa6fd560725d6a123f87b",
    })),
    responses(
        (status = 200, description = "Accepted, or already there", body = Vm),
        (status = 400, description = "Contradicts the provision, or its node cannot take it now", body = ErrorBody),
        (status = 409, description = "The name (ERR-01-004) or the app id (ERR-03-007) is taken; or, uncoded, the document was provisioned anew meanwhile: repeat the request", body = ErrorBody),
        (status = 467, description = "The transaction did not make or register the application (ERR-01-007)", body = ErrorBody),
        (status = 468, description = "The application's contract is not there, not registered, or does not allow this (ERR-01-008)", body = ErrorBody),
        (status = 503, description = "The chain cannot be asked; repeat the request after `Retry-After`", body = PlainError),
        (status = 422, description = "No provision with this hash, or it expired; or the request does not fit its schema", body = PlainError),
        (status = 401, description = "No usable credential", body = PlainError),
    ),
)]
pub(crate) async fn create(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Body(request): Body<CreateCvmRequest>,
) -> ApiResult<Json<Vm>> {
    accept(&api, &caller, version, request).await
}

/// Create the CVM of an agent from a provision
///
/// The same as `POST /cvms`, for provisions of `POST /cvms/provision/agentapp`.
#[utoipa::path(
    post, path = "/cvms/agentapp", tag = "CVMs", operation_id = "create_agent_cvm",
    request_body = CreateCvmRequest,
    responses(
        (status = 200, description = "Accepted, or already there", body = Vm),
        (status = 400, description = "Contradicts the provision, or its node cannot take it now", body = ErrorBody),
        (status = 409, description = "The name (ERR-01-004) or the app id (ERR-03-007) is taken; or, uncoded, the document was provisioned anew meanwhile: repeat the request", body = ErrorBody),
        (status = 467, description = "The transaction did not make or register the application (ERR-01-007)", body = ErrorBody),
        (status = 468, description = "The application's contract is not there, not registered, or does not allow this (ERR-01-008)", body = ErrorBody),
        (status = 503, description = "The chain cannot be asked; repeat the request after `Retry-After`", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn create_agentapp(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Body(request): Body<CreateCvmRequest>,
) -> ApiResult<Json<Vm>> {
    accept(&api, &caller, version, request).await
}

/// What the creations from a provision share.
pub(super) async fn accept(
    api: &Api,
    caller: &Caller,
    version: ApiVersion,
    request: CreateCvmRequest,
) -> ApiResult<Json<Vm>> {
    let (app_id, compose_hash) = (request.app_id.0, request.compose_hash.0);
    let provision = api.store.provision(caller.workspace_id, compose_hash, api.clock.now_ms()).await?;
    let Some(provision) = provision else {
        return match api.lifecycle.made_before(caller, app_id, compose_hash).await {
            Ok(Some(cvm)) => shown(api, version, &cvm).await,
            Ok(None) | Err(CreateError::AppIdInUse(_)) => Err(create_error(CreateError::ProvisionNotFound)),
            Err(error) => Err(create_error(error)),
        };
    };
    check_provision(api, &provision, &request)?;
    let contract = provision.kms_id.and_then(|id| api.kmses.get(id)?.contract());
    if let Some(contract) = contract {
        let made = api.lifecycle.made_before(caller, app_id, compose_hash).await.map_err(create_error)?;
        if let Some(cvm) = made {
            return shown(api, version, &cvm).await;
        }
        let _turn = chain_reads(api, caller)?;
        contract_app::check(api, &provision, contract, &request).await?;
    }
    let create = CreateRequest {
        compose_hash,
        app_id,
        is_allowed_by_contract: contract.is_some(),
        encrypted_env: request.encrypted_env.and_then(|env| env.0),
        scheduled_delete_at_ms: None,
    };
    let cvm = api.lifecycle.create_from(caller, create, Some(&provision)).await.map_err(create_error)?;
    shown(api, version, &cvm).await
}

/// Refuses what contradicts the provision.
fn check_provision(api: &Api, provision: &ProvisionRow, request: &CreateCvmRequest) -> ApiResult<()> {
    check_kms(api, provision, request.kms_id.as_deref())?;
    let brings_env = request.encrypted_env.as_ref().is_some_and(|env| env.0.is_some());
    if brings_env && provision.kms_id.is_none() {
        return Err(nothing_opens_it());
    }
    let allowed: Vec<String> = serde_json::from_str(&provision.env_keys).unwrap_or_default();
    match request.env_keys.iter().flatten().find(|key| !allowed.contains(key)) {
        None => Ok(()),
        Some(key) => {
            let message = "env_keys names a variable that the compose document does not allow";
            Err(ApiError::explained(ErrorCode::InvalidParameter, message).about("env_keys", key.as_str()))
        }
    }
}

async fn shown(api: &Api, version: ApiVersion, cvm: &CvmRow) -> ApiResult<Json<Vm>> {
    let scene = Scene::of(api, std::slice::from_ref(cvm)).await?;
    Ok(Json(View::new(api, &scene, cvm).vm(version)))
}

/// The service is the one of the provision: applications are known to one only.
fn check_kms(api: &Api, provision: &ProvisionRow, named: Option<&str>) -> ApiResult<()> {
    let Some(named) = named.filter(|text| !text.is_empty()) else { return Ok(()) };
    match api.kmses.find(named) {
        None => Err(ApiError::coded(ErrorCode::NoMatchingKms).about("kms_id", named)),
        Some(kms) if provision.kms_id.is_some_and(|id| id != kms.id()) => {
            let message = "kms_id is not the key management service of the provision; provision again";
            Err(ApiError::explained(ErrorCode::IncompatibleParameters, message).about("kms_id", named))
        }
        Some(_) => Ok(()),
    }
}

pub(super) fn create_error(error: CreateError) -> ApiError {
    match error {
        // Not coded: no code of the catalogue says this.
        CreateError::ProvisionNotFound => ApiError::plain(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Provision data not found or expired; provision again",
        ),
        // Not coded either: it passes.
        CreateError::BeingRemoved | CreateError::ProvisionChanged => {
            ApiError::plain(StatusCode::CONFLICT, error.to_string()).retry_after(RETRY_AFTER_S)
        }
        CreateError::AppIdMismatch { .. } => {
            ApiError::explained(ErrorCode::IncompatibleParameters, error.to_string())
        }
        CreateError::AppIdInUse(id) => ApiError::coded(ErrorCode::AppIdTaken).about("app_id", id.to_string()),
        CreateError::AppElsewhere(id) => {
            ApiError::explained(ErrorCode::AppIdTaken, error.to_string()).about("app_id", id.to_string())
        }
        CreateError::NameTaken(name) => ApiError::coded(ErrorCode::NameTaken).about("name", name),
        CreateError::Placement(error) => placement_error(&error),
        CreateError::Unfunded(why) => unfunded(why),
        CreateError::Store(error) => error.into(),
        CreateError::Random(error) => error.into(),
    }
}
