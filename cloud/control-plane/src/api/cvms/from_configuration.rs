//! `POST /cvms/pubkey/from_cvm_configuration` and `POST /cvms/from_cvm_configuration`

use axum::Json;
use axum::extract::State;
use cloister_app_compose::{Additions, AppCompose};
use cloister_management_api::{
    CreateCvmRequest, ErrorBody, ErrorCode, LegacyCvmConfiguration, LegacyCvmPubkey, Parsed, PlainError,
    ProvisionResponse, SealedEnv, Vm,
};
use serde_json::Value;

use super::create;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::kms::Selection;
use crate::api::negotiate::Version;
use crate::api::placing::Wish;
use crate::api::provisioning::{self, AppIdWish, compose_error};
use crate::api::responses::Authenticated;
use crate::store::Caller;

/// Bytes of a sealed environment without a variable: the seal (public key, nonce, tag) and `{"env":[]}`.
const EMPTY_ENV_BYTES: usize = 32 + 12 + 16 + 10;
const INSTEAD: &str = "use POST /api/v1/cvms/provision and POST /api/v1/cvms instead, as phala deploy does";

/// Get the key to seal the environment of a configuration to
///
/// For clients that do not know `POST /cvms/provision`, which is to be preferred: this provisions, too. Create the CVM
/// with the same configuration, the sealed environment, the key and `app_id_salt` within 14 days.
#[utoipa::path(
    post, path = "/cvms/pubkey/from_cvm_configuration", tag = "CVMs", operation_id = "get_cvm_configuration_pubkey",
    request_body = LegacyCvmConfiguration,
    responses(
        (status = 200, description = "The key", body = LegacyCvmPubkey),
        (status = 400, description = "Invalid configuration (ERR-01-00x), or nothing matches it, such as no key management service (ERR-02-…)", body = ErrorBody),
        (status = 409, description = "A CVM of the workspace has this name (ERR-01-004)", body = ErrorBody),
        (status = 503, description = "The key management service does not answer; repeat the request after `Retry-After`", body = PlainError),
        (status = 413, description = "The body has more than 1 MiB", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn pubkey(
    State(api): State<Api>,
    Auth(caller): Auth,
    Body(request): Body<LegacyCvmConfiguration>,
) -> ApiResult<Json<LegacyCvmPubkey>> {
    let (_, provision) = provisioned(&api, &caller, &request, true).await?;
    let app_env_encrypt_pubkey = provision.app_env_encrypt_pubkey.ok_or_else(ApiError::unexpected)?;
    let app_id_salt = provision.compose_hash.to_string();
    Ok(Json(LegacyCvmPubkey { app_env_encrypt_pubkey, app_id_salt }))
}

/// Create a CVM from a configuration
///
/// For clients that do not know `POST /cvms`, which is to be preferred. The work goes on after the answer.
#[utoipa::path(
    post, path = "/cvms/from_cvm_configuration", tag = "CVMs", operation_id = "create_cvm_from_configuration",
    request_body = LegacyCvmConfiguration,
    responses(
        (status = 200, description = "Accepted", body = Vm),
        (status = 400, description = "Invalid configuration (ERR-01-00x), another one than the environment was sealed for, or nothing matches it (ERR-02-…)", body = ErrorBody),
        (status = 409, description = "A CVM of the workspace has this name (ERR-01-004)", body = ErrorBody),
        (status = 503, description = "The key management service does not answer; repeat the request after `Retry-After`", body = PlainError),
        (status = 413, description = "The body has more than 1 MiB", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn create(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Body(request): Body<LegacyCvmConfiguration>,
) -> ApiResult<Json<Vm>> {
    let (compose, provision) = provisioned(&api, &caller, &request, false).await?;
    let app_id = provision.app_id.ok_or_else(ApiError::unexpected)?;
    check_seal(&request, &provision)?;
    if let Some(env) = request.encrypted_env.as_ref().and_then(|env| env.0.as_ref()) {
        check_names(&compose, env)?;
    }
    let create = CreateCvmRequest {
        app_id: Parsed(app_id),
        compose_hash: Parsed(provision.compose_hash),
        encrypted_env: request.encrypted_env,
        kms_id: None,
        contract_address: None,
        deployer_address: None,
        transaction_hash: None,
        env_keys: None,
    };
    create::accept(&api, &caller, version, create).await
}

/// The document of a configuration, and where it will run. The same document has the same application, also the
/// second time. Without a service for its keys it is refused if its key is asked for, before anything is kept.
async fn provisioned(
    api: &Api,
    caller: &Caller,
    request: &LegacyCvmConfiguration,
    asks_for_key: bool,
) -> ApiResult<(AppCompose, ProvisionResponse)> {
    let additions =
        Additions { name: request.name.as_str(), env_keys: &request.env_keys, ..Additions::default() };
    let compose = request.compose_manifest.prepare(&additions).map_err(compose_error)?;
    check_registry_login(&compose)?;
    let kms = provisioning::kms_of(api, &compose, Selection::default())?;
    if asks_for_key && kms.is_none() {
        let message = "this installation has no key management service for the document, so no environment can be \
                       sealed; create the CVM without encrypted_env";
        return Err(ApiError::explained(ErrorCode::NoMatchingKms, message));
    }
    if kms.as_ref().is_some_and(|kms| kms.contract().is_some()) {
        let message = format!("a contract decides for the key management service; {INSTEAD}");
        return Err(ApiError::explained(ErrorCode::IncompatibleParameters, message));
    }
    let draft = provisioning::Draft {
        kms,
        compose: compose.clone(),
        encrypted_env: None,
        wish: Wish {
            vcpu: request.vcpu,
            memory_mb: request.memory,
            disk_gb: request.disk_size,
            image: request.image.clone(),
            node_id: request.teepod_id,
            ..Wish::default()
        },
        app_id: AppIdWish::Next,
        name: request.name.to_string(),
        listed: request.listed,
        user_config: None,
    };
    Ok((compose, provisioning::provision(api, caller, draft).await?))
}

/// Older documents have a place for a login of a registry. Everybody may read a document.
fn check_registry_login(compose: &AppCompose) -> ApiResult<()> {
    let login = compose.document().get("docker_config").and_then(Value::as_object);
    let has = |member: &str| {
        login
            .and_then(|login| login.get(member))
            .is_some_and(|value| value.as_str() != Some("") && !value.is_null())
    };
    if ["username", "password"].into_iter().any(has) {
        let message = "compose_manifest.docker_config would be readable by everybody; leave username and password \
                       empty, and put them into the sealed environment for a pre-launch script that logs in";
        return Err(ApiError::explained(ErrorCode::InvalidParameter, message));
    }
    Ok(())
}

/// Refuses an environment that was sealed for something else, which the guest could not open.
fn check_seal(request: &LegacyCvmConfiguration, provision: &ProvisionResponse) -> ApiResult<()> {
    let hash = provision.compose_hash.to_string();
    let key = provision.app_env_encrypt_pubkey.as_deref().unwrap_or_default();
    for (member, said, is) in [
        ("app_id_salt", &request.app_id_salt, hash.as_str()),
        ("app_env_encrypt_pubkey", &request.app_env_encrypt_pubkey, key),
    ] {
        if said.as_deref().is_some_and(|said| !said.is_empty() && !said.eq_ignore_ascii_case(is)) {
            let message = "the configuration is not the one that the key was asked for; ask \
                           POST /api/v1/cvms/pubkey/from_cvm_configuration again and seal the environment to that key";
            return Err(ApiError::explained(ErrorCode::IncompatibleParameters, message).about(member, is));
        }
    }
    Ok(())
}

/// Refuses variables of which none would reach the application: nothing in the request names them.
fn check_names(compose: &AppCompose, env: &SealedEnv) -> ApiResult<()> {
    if env.as_hex().len() / 2 > EMPTY_ENV_BYTES && compose.members().allowed_envs.is_empty() {
        let message = format!(
            "encrypted_env has variables, but the document allows none of them; name them in env_keys or in \
             compose_manifest.allowed_envs, or {INSTEAD}"
        );
        return Err(ApiError::explained(ErrorCode::IncompatibleParameters, message));
    }
    Ok(())
}
