//! `GET /attestations/recent`

use axum::Json;
use axum::extract::State;
use cloister_app_compose::members;
use cloister_management_api::{RecentQuote, ValidationError};
use utoipa::IntoParams;

use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::input::{Query, within};
use crate::api::view::time;

const DEFAULT_LIMIT: u32 = 20;
const MAX_LIMIT: u32 = 100;

members! {
    /// Query of `GET /attestations/recent`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct RecentQuery {
        /// Quotes to leave out first.
        #[param(required = false, minimum = 0, default = 0)]
        pub skip: Option<i64>,
        /// Most quotes.
        #[param(required = false, minimum = 1, maximum = 100, default = 20)]
        pub limit: Option<i64>,
    }
}

/// List recently verified quotes
///
/// Public; newest first.
#[utoipa::path(
    get, path = "/attestations/recent", tag = "Attestation", operation_id = "list_recent_quotes", security(()),
    params(RecentQuery),
    responses(
        (status = 200, description = "The quotes", body = Vec<RecentQuote>),
        (status = 422, description = "The request does not fit its schema", body = ValidationError),
    ),
)]
pub(crate) async fn recent(
    State(api): State<Api>,
    Query(query): Query<RecentQuery>,
) -> ApiResult<Json<Vec<RecentQuote>>> {
    let skip = within("skip", query.skip, 0, 0..=u32::MAX)?;
    let limit = within("limit", query.limit, DEFAULT_LIMIT, 1..=MAX_LIMIT)?;
    let rows = api.store.recent_quotes(limit.into(), skip.into()).await?;
    let wire = |row: crate::store::RecentQuoteRow| RecentQuote {
        checksum: row.checksum,
        verified: row.verified,
        created_at: time(row.uploaded_at_ms),
    };
    Ok(Json(rows.into_iter().map(wire).collect()))
}
