//! What was used, for the operator's own accounts.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};

use super::Operator;
use crate::error::{GatewayError, Kind};
use crate::gateway::Gateway;
use crate::record::UsageRow;

/// Rows of a page, where nobody says how many.
const USUAL_ROWS: usize = 1000;
/// Most rows of a page.
const MAX_ROWS: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// The number of the first row.
    #[serde(default)]
    since: u64,
    limit: Option<usize>,
    /// Those that a control plane was told and does not take.
    #[serde(default)]
    set_aside: bool,
}

/// Rows in the order in which they were kept.
#[derive(Debug, Serialize)]
pub(super) struct Rows {
    rows: Vec<UsageRow>,
    /// Where the next page begins; the same as it was asked for when there are none.
    next: u64,
}

pub(super) async fn show(
    _: Operator,
    State(gateway): State<Arc<Gateway>>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Rows>, GatewayError> {
    let wrong = || {
        let message = "The query may have 'since' and 'limit', which are numbers, and 'set_aside'";
        GatewayError::new(Kind::InvalidRequest, message)
    };
    let Query(page) = page.map_err(|_| wrong())?;
    let limit = page.limit.unwrap_or(USUAL_ROWS);
    if !(1..=MAX_ROWS).contains(&limit) {
        return Err(GatewayError::parameter("limit", format!("'limit' has to be between 1 and {MAX_ROWS}")));
    }
    let store = gateway.store.clone();
    let read = tokio::task::spawn_blocking(move || {
        if page.set_aside { store.set_aside(page.since, limit) } else { store.usage(page.since, limit) }
    });
    let rows = read.await.map_err(|_| GatewayError::new(Kind::Internal, "The rows could not be read"))?;
    let rows = rows.map_err(|error| {
        tracing::error!(%error, "usage cannot be read");
        GatewayError::new(Kind::Unavailable, "The gateway's records cannot be read at the moment")
    })?;
    let next = rows.last().map_or(page.since, |last| last.number.saturating_add(1));
    Ok(Json(Rows { rows, next }))
}
