//! `GET /attestations/view/{checksum}`

use axum::Json;
use axum::extract::{Path, State};
use cloister_evidence::Quote;
use cloister_management_api::{PlainError, StoredQuote};

use super::{stored, wire};
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::api::view::time;

/// Show a stored quote
///
/// Public.
#[utoipa::path(
    get, path = "/attestations/view/{checksum}", tag = "Attestation", operation_id = "view_quote", security(()),
    params(("checksum" = String, Path, description = "SHA-256 of the quote's bytes, hex")),
    responses(
        (status = 200, description = "The quote", body = StoredQuote),
        (status = 404, description = "No such quote, or not any more", body = PlainError),
    ),
)]
pub(crate) async fn view(
    State(api): State<Api>,
    Path(checksum): Path<String>,
) -> ApiResult<Json<StoredQuote>> {
    let row = stored(&api, &checksum).await?;
    let bytes = wire::bytes(&row);
    let quote = Quote::parse(&bytes).map_err(|error| ApiError::internal(&error))?;
    Ok(Json(StoredQuote {
        quote: wire::parsed(&quote, row.verified != 0),
        checksum: row.checksum,
        can_download: true,
        uploaded_at: time(row.uploaded_at_ms),
    }))
}
