//! `GET /kms/{kms_id}/pubkey/{app_id}`

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_app_compose::AppId;
use cloister_management_api::{KmsPubkey, PlainError};

use super::{call_error, named};
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::api::responses::Authenticated;
use crate::kms::{Kms, OFF_CHAIN};

/// Get the key to seal an application's environment to
///
/// The signature leads to the root of the key management service. Verify it before you seal: this service
/// only passes the key on.
#[utoipa::path(
    get, path = "/kms/{kms_id}/pubkey/{app_id}", tag = "KMS", operation_id = "get_app_env_encrypt_pubkey",
    params(
        ("kms_id" = String, Path, description = "Id, slug, or a kind (`phala`, `ethereum`, `base`) for that of the application's CVMs, else the first one of the kind"),
        ("app_id" = String, Path, description = "Application, with or without `0x` or `app_`"),
    ),
    responses(
        (status = 200, description = "The key and the root's signature", body = KmsPubkey),
        (status = 400, description = "That is no app id", body = PlainError),
        (status = 404, description = "There is no such service", body = PlainError),
        (status = 503, description = "The service does not answer; repeat the request after `Retry-After`", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn pubkey(
    State(api): State<Arc<Api>>,
    Path((kms_id, app_id)): Path<(String, String)>,
) -> ApiResult<Json<KmsPubkey>> {
    let named = named(&api, &kms_id)?;
    let digits = app_id.strip_prefix("app_").unwrap_or(&app_id);
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    let app_id: AppId = digits
        .parse()
        .map_err(|_| ApiError::plain(StatusCode::BAD_REQUEST, "app_id must have 40 hex digits"))?;
    let is_kind = named.kind().eq_ignore_ascii_case(&kms_id);
    let kms = if is_kind { of_app(&api, app_id, &kms_id).await? } else { None };
    let kms = kms.unwrap_or(named);
    let key = kms.env_public_key(app_id).await.map_err(|error| call_error(&error))?;
    let (public_key, signature) = (hex::encode(&key.public_key), hex::encode(&key.signature));
    Ok(Json(KmsPubkey { public_key, signature }))
}

/// The service that an application's CVMs have their keys from. Clients that change an environment name the
/// kind only, and not all of them know another than that without a contract.
async fn of_app<'a>(api: &'a Api, app_id: AppId, kind: &str) -> ApiResult<Option<&'a Arc<Kms>>> {
    let cvms = api.store.cvms_of_app(app_id).await?;
    let is_meant = |kms: &&Arc<Kms>| [OFF_CHAIN, kms.kind()].iter().any(|one| one.eq_ignore_ascii_case(kind));
    Ok(cvms.iter().filter_map(|cvm| api.kmses.get(cvm.kms_id?)).find(is_meant))
}
