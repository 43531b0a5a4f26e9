//! `GET /attestations/collateral/{checksum}`

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header::{CACHE_CONTROL, ETAG, VARY};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use cloister_management_api::{PlainError, QuoteCollateral};

use super::{stored, wire};
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};

pub(super) const FOR_A_DAY: &str = "public, max-age=86400";
const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// Get what a stored quote was verified with
///
/// Public. Enough, with the quote and the vendor's root certificate, to verify it again without network.
#[utoipa::path(
    get, path = "/attestations/collateral/{checksum}", tag = "Attestation", operation_id = "get_quote_collateral", security(()),
    params(("checksum" = String, Path, description = "SHA-256 of the quote's bytes, hex")),
    responses(
        (status = 200, description = "The collateral", body = QuoteCollateral),
        (status = 400, description = "The quote was not verified with any", body = PlainError),
        (status = 404, description = "No such quote, or not any more", body = PlainError),
    ),
)]
pub(crate) async fn collateral(State(api): State<Api>, Path(checksum): Path<String>) -> ApiResult<Response> {
    let row = stored(&api, &checksum).await?;
    let collateral = wire::collateral(&api, &row).await?.ok_or_else(|| {
        ApiError::plain(StatusCode::BAD_REQUEST, "The quote could not be used: it was not verified")
    })?;
    let caching = [
        (CACHE_CONTROL, FOR_A_DAY.to_owned()),
        (CDN_CACHE_CONTROL, FOR_A_DAY.to_owned()),
        (VARY, "Accept-Encoding".to_owned()),
        (ETAG, format!("\"{}\"", row.checksum)),
    ];
    Ok((caching, Json(collateral)).into_response())
}
