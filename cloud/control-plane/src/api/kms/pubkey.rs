//! `GET /kms/{kms_id}/pubkey/{app_id}`

use axum::Json;
use axum::extract::{Path, State};
use cloister_management_api::{KmsPubkey, PlainError};

use super::{call_error, named_for};
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::responses::Authenticated;

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
    State(api): State<Api>,
    Path((kms_id, app_id)): Path<(String, String)>,
) -> ApiResult<Json<KmsPubkey>> {
    let kms = named_for(&api, &kms_id, Some(&app_id), None).await?;
    let app_id = super::app_id(&app_id)?;
    let key = kms.env_public_key(app_id).await.map_err(|error| call_error(&error))?;
    let (public_key, signature) = (hex::encode(&key.public_key), hex::encode(&key.signature));
    Ok(Json(KmsPubkey { public_key, signature }))
}
