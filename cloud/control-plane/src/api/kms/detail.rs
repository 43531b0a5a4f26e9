//! `GET /kms/{kms_id}`

use axum::Json;
use axum::extract::{Path, State};
use cloister_management_api::{KmsRecord, PlainError};

use super::{named, record};
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::negotiate::Version;
use crate::api::responses::Authenticated;

/// Get a key management service
#[utoipa::path(
    get, path = "/kms/{kms_id}", tag = "KMS", operation_id = "get_kms_info",
    params(("kms_id" = String, Path, description = "Id, slug, or a kind (`phala`, `ethereum`, `base`) for the first one of it")),
    responses(
        (status = 200, description = "The service in the form of the version", body = KmsRecord),
        (status = 404, description = "There is no such service", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn detail(
    State(api): State<Api>,
    Version(version): Version,
    Path(kms_id): Path<String>,
) -> ApiResult<Json<KmsRecord>> {
    Ok(Json(record(&api.kmses, named(&api, &kms_id)?, version)))
}
