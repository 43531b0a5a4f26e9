//! `GET /apps/{app_id}/usage`

mod csv;

use axum::Json;
use axum::extract::State;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use cloister_app_compose::members;
use cloister_management_api::{AppUsage, Instant, Money, PlainError, UsageRecord};
use cloister_metering::{Record, Window};
use utoipa::IntoParams;

use super::own::OwnApp;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::{Query, within};
use crate::api::responses::Authenticated;
use crate::store::UsageScope;

pub(crate) use csv::MAX_TABLES;

const DEFAULT_LIMIT: u32 = 500;
const MAX_LIMIT: u32 = 5000;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// The window of a request that names none, or one end of it.
const USUAL_MS: i64 = 7 * DAY_MS;
/// Longest window: a year and a month.
const MAX_MS: i64 = 400 * DAY_MS;

members! {
    /// Query of `GET /apps/{app_id}/usage`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct UsageQuery {
        /// Beginning of the window: RFC 3339, or a date or time of day in UTC. Seven days before its end if left out.
        #[param(required = false, value_type = Option<String>, format = DateTime)]
        pub start_date: Option<Instant>,
        /// End of the window; now, or seven days after its beginning, if left out.
        #[param(required = false, value_type = Option<String>, format = DateTime)]
        pub end_date: Option<Instant>,
        /// Most records of the answer.
        #[param(required = false, minimum = 1, maximum = 5000, default = 500)]
        pub limit: Option<i64>,
        /// Records that are left out first.
        #[param(required = false, minimum = 0, default = 0)]
        pub offset: Option<i64>,
        /// `json` or `csv`, before what `Accept` says.
        #[param(required = false)]
        pub format: Option<String>,
    }
}

/// Get what an application used
///
/// One record for each CVM, kind of use and hour, newest hour first; CVMs that were deleted count. Hours that the
/// window reaches into are in it wholly, so that a record is the same in every window. `total` and
/// `total_cost` are about the whole window, of which the page shows a part. As CSV, with `format=csv` or
/// `Accept: text/csv`, the answer holds the whole window and `limit` and `offset` do not count; its rows come CVM by
/// CVM, oldest first.
#[utoipa::path(
    get, path = "/apps/{app_id}/usage", tag = "Billing", operation_id = "get_app_usage",
    params(("app_id" = String, Path, description = "App id, hex"), UsageQuery),
    responses(
        (status = 200, description = "The records", content(
            (AppUsage = "application/json"), (String = "text/csv"),
        )),
        (status = 400, description = "The window ends before it begins", body = PlainError),
        (status = 404, description = "The workspace has, and had, no such app", body = PlainError),
        (status = 429, description = "The workspace reads too many tables at the same time", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn usage(
    State(api): State<Api>,
    Auth(caller): Auth,
    own: OwnApp,
    headers: HeaderMap,
    Query(query): Query<UsageQuery>,
) -> ApiResult<Response> {
    let limit = within("limit", query.limit, DEFAULT_LIMIT, 1..=MAX_LIMIT)?;
    let offset = within("offset", query.offset, 0, 0..=u32::MAX)?;
    let is_csv = wants_csv(query.format.as_deref(), &headers)?;
    let now_ms = api.clock.now_ms();
    let window = window(query.start_date, query.end_date, now_ms)?;
    let scope = UsageScope { workspace_id: caller.workspace_id, app_id: Some(own.app_id) };
    if is_csv {
        return csv::answer(&api, own.app_id, scope, window, now_ms);
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let page = api.store.usage_statement(scope, window, now_ms, limit, offset.into()).await?;
    let usage = AppUsage {
        usage: page.records.iter().map(wire).collect(),
        total: page.total,
        total_cost: Money(page.total_cost),
    };
    Ok(Json(usage).into_response())
}

fn wire(record: &Record) -> UsageRecord {
    UsageRecord {
        instance_id: record.vm_uuid.to_string(),
        project_id: record.workspace_id,
        team_id: record.workspace_id,
        timestamp: record.billing_end(),
        event_type: record.event_type().to_owned(),
        cost: Money(record.cost),
        details: record.details.clone(),
        usage_type: record.usage_type.to_string(),
        billing_start: record.billing_start(),
        billing_end: record.billing_end(),
        duration_minutes: record.minutes,
        billing_key: record.billing_key(),
        billing_hour: record.billing_hour(),
        billing_day: record.billing_day(),
    }
}

/// The window that a request means. A record of a part of an hour would have the key of the whole one's.
pub(in crate::api) fn window(start: Option<Instant>, end: Option<Instant>, now_ms: i64) -> ApiResult<Window> {
    let ms = |at: Option<Instant>| at.map(|at| at.0.as_millisecond());
    let (start_ms, end_ms) = match (ms(start), ms(end)) {
        (None, None) => (now_ms.saturating_sub(USUAL_MS), now_ms),
        (Some(start_ms), None) => (start_ms, start_ms.saturating_add(USUAL_MS)),
        (None, Some(end_ms)) => (end_ms.saturating_sub(USUAL_MS), end_ms),
        (Some(start_ms), Some(end_ms)) => (start_ms, end_ms),
    };
    if end_ms < start_ms {
        let text = "end_date lies before start_date; exchange them";
        return Err(ApiError::plain(StatusCode::BAD_REQUEST, text));
    }
    if end_ms.saturating_sub(start_ms) > MAX_MS {
        let text = "The window should have at most 400 days; ask for its parts one after the other";
        return Err(ApiError::fault(&["query", "start_date"], "window_too_long", text));
    }
    Ok(Window { start_ms, end_ms }.whole_hours())
}

/// Whether the answer is a table. What is named first in `Accept` wins.
fn wants_csv(format: Option<&str>, headers: &HeaderMap) -> ApiResult<bool> {
    match format {
        Some("csv") => return Ok(true),
        Some("json") => return Ok(false),
        Some(_) => {
            return Err(ApiError::fault(&["query", "format"], "enum", "Input should be 'json' or 'csv'"));
        }
        None => {}
    }
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut types = accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
    let first = types
        .find(|kind| ["text/csv", "application/json", "*/*"].contains(&kind.to_ascii_lowercase().as_str()));
    Ok(first.is_some_and(|kind| kind.eq_ignore_ascii_case("text/csv")))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn what_accept_names_first_counts_and_the_format_before_it() {
        let wants = |format, accept: &str| {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_str(accept).unwrap())]);
            wants_csv(format, &headers).map_err(|error| error.status().as_u16())
        };
        for (format, accept, expected) in [
            (None, "", Ok(false)),
            (None, "text/csv", Ok(true)),
            (None, "TEXT/CSV;q=0.9, */*", Ok(true)),
            (None, "application/json, text/csv", Ok(false)),
            (None, "text/html, */*;q=0.1", Ok(false)),
            (Some("csv"), "application/json", Ok(true)),
            (Some("json"), "text/csv", Ok(false)),
            (Some("xml"), "text/csv", Err(422)),
            (Some(""), "", Err(422)),
        ] {
            assert_eq!(wants(format, accept), expected, "{format:?} {accept}");
        }
    }
}
