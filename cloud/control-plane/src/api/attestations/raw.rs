//! `GET /attestations/raw/{checksum}`

use axum::extract::{Path, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use cloister_management_api::PlainError;

use super::collateral::FOR_A_DAY;
use super::{stored, wire};
use crate::api::Api;
use crate::api::error::ApiResult;

/// Download a stored quote
///
/// Public. The bytes whose SHA-256 is the checksum.
#[utoipa::path(
    get, path = "/attestations/raw/{checksum}", tag = "Attestation", operation_id = "download_quote", security(()),
    params(("checksum" = String, Path, description = "SHA-256 of the quote's bytes, hex")),
    responses(
        (status = 200, description = "The quote", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 404, description = "No such quote, or not any more", body = PlainError),
    ),
)]
pub(crate) async fn raw(State(api): State<Api>, Path(checksum): Path<String>) -> ApiResult<Response> {
    let row = stored(&api, &checksum).await?;
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename={}.bin", row.checksum)),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (CACHE_CONTROL, FOR_A_DAY.to_owned()),
        (ETAG, format!("\"{}\"", row.checksum)),
    ];
    Ok((headers, wire::bytes(&row)).into_response())
}
