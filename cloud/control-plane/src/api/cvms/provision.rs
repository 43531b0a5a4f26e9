//! `POST /cvms/provision`

use axum::Json;
use axum::extract::State;
use cloister_app_compose::Additions;
use cloister_management_api::{ErrorBody, ErrorCode, PlainError, ProvisionAppRequest, ProvisionResponse};

use super::ssh_keys::provisioned;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::kms::Selection;
use crate::api::placing::Wish;
use crate::api::provisioning::{self, AppIdWish, compose_error};
use crate::api::responses::Authenticated;

/// Provision an app
///
/// Checks a configuration, chooses node, OS image and identity for it, and keeps it for 14 days under its
/// compose hash. Nothing is reserved or started: create the CVM with `POST /cvms`.
///
/// Where a contract decides for the key management service, `app_id` is null unless the request names a contract that
/// exists: deploy one at `kms_info.kms_contract_address` that allows `compose_hash` on `device_id`, and create the CVM
/// with its address. Production images are chosen then unless the request says otherwise.
#[utoipa::path(
    post, path = "/cvms/provision", tag = "CVMs", operation_id = "provision_app",
    request_body(content = ProvisionAppRequest, example = json!({
        "name": "my-app-01",
        "compose_file": {"name": "", "docker_compose_file": "services:\n  web:\n    image: nginx:stable\n"},
    })),
    responses(
        (status = 200, description = "Kept; create the CVM with this hash and app id", body = ProvisionResponse),
        (status = 400, description = "Invalid configuration (ERR-01-00x), or nothing matches it (ERR-02-…)", body = ErrorBody),
        (status = 409, description = "A CVM of the workspace has this name (ERR-01-004)", body = ErrorBody),
        (status = 503, description = "The key management service does not answer; repeat the request after `Retry-After`", body = PlainError),
        (status = 413, description = "The body has more than 1 MiB", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn provision(
    State(api): State<Api>,
    Auth(caller): Auth,
    Body(request): Body<ProvisionAppRequest>,
) -> ApiResult<Json<ProvisionResponse>> {
    check(&request)?;
    let additions = Additions {
        name: request.name.as_str(),
        env_keys: &request.env_keys,
        secure_time: request.secure_time,
        storage_fs: request.storage_fs,
    };
    let compose = request.compose_file.prepare(&additions).map_err(compose_error)?;
    let selection = Selection {
        kind: request.kms,
        id: request.kms_id.as_deref(),
        contract: request.kms_contract.as_deref(),
    };
    let kms = provisioning::kms_of(&api, &compose, selection)?;
    let (app_id, nonce) = (request.app_id.map(|id| id.0), request.nonce.map(u64::from));
    let draft = provisioning::Draft {
        app_id: AppIdWish::of(app_id, nonce, kms.as_deref())?,
        kms,
        compose,
        encrypted_env: request.encrypted_env.clone().and_then(|env| env.0),
        wish: Wish::of(&request)?,
        name: request.name.to_string(),
        listed: request.listed,
        user_config: provisioned(request.user_config, &request.ssh_authorized_keys)?,
    };
    provisioning::provision(&api, &caller, draft).await.map(Json)
}

/// What is well formed but cannot be had here.
fn check(request: &ProvisionAppRequest) -> ApiResult<()> {
    if !request.ports.is_empty() {
        let message = "ports of the host are not forwarded; services are reached through the ingress";
        return Err(
            ApiError::explained(ErrorCode::InvalidParameter, message).about("ports", request.ports.len())
        );
    }
    match &request.user_config {
        Some(text) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() => {
            Err(ApiError::explained(ErrorCode::InvalidParameter, "user_config is not JSON text"))
        }
        _ => Ok(()),
    }
}
