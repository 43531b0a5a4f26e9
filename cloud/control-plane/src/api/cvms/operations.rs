//! `GET /cvms/{cvm_id}/operations`

mod cursor;

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use cloister_app_compose::members;
use cloister_management_api::{Instant, Operation, OperationEvent, OperationPage};
use utoipa::IntoParams;
use uuid::Uuid;

use self::cursor::Cursors;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::input::{Query, within};
use crate::api::responses::OnCvm;
use crate::api::target::Target;
use crate::api::view::time;
pub(crate) use crate::operations::sanitised;
use crate::operations::{OperationKind, Step};
use crate::store::{CvmRow, EventRow, OperationFilter, OperationRow};

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 500;

members! {
    /// Query of `GET /cvms/{cvm_id}/operations`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct OperationsQuery {
        /// `next_cursor` of the page before.
        #[param(required = false)]
        pub cursor: Option<String>,
        /// Most operations of the page.
        #[param(required = false, minimum = 1, maximum = 500, default = 50)]
        pub limit: Option<i64>,
        /// Only operations that began at this time or later; UTC unless it has an offset.
        #[param(required = false, value_type = Option<String>, format = DateTime)]
        pub start_time: Option<Instant>,
        /// Only operations that began at this time or earlier.
        #[param(required = false, value_type = Option<String>, format = DateTime)]
        pub end_time: Option<Instant>,
        /// Only operations of these kinds, such as `power_on`; repeat the parameter for several.
        #[param(required = false)]
        pub operation_types: Option<Vec<String>>,
    }
}

/// List the operations of a CVM
///
/// Newest first. Every operation has its events, grouped by their correlation id, and the compose hash of the
/// revision that it brings, if any. The total is exact without a filter; with one, it is counted up to 1000
/// operations of each kind.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/operations", tag = "Operations", operation_id = "list_cvm_operations",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"), OperationsQuery),
    responses((status = 200, description = "A page of operations", body = OperationPage), OnCvm),
)]
pub(crate) async fn operations(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    Query(query): Query<OperationsQuery>,
) -> ApiResult<Json<OperationPage>> {
    let limit = within("limit", query.limit, DEFAULT_LIMIT, 1..=MAX_LIMIT)?;
    let cursors = Cursors::new(&api.log_url_key, cvm.id);
    let after = query.cursor.as_deref().map(|text| cursors.read(text)).transpose()?;
    let kinds: Option<Vec<OperationKind>> =
        query.operation_types.map(|names| names.iter().filter_map(|name| name.parse().ok()).collect());
    if kinds.as_ref().is_some_and(Vec::is_empty) {
        return Ok(Json(OperationPage { items: Vec::new(), next_cursor: None, total: 0 }));
    }
    let filter = OperationFilter {
        start_ms: query.start_time.map(|at| at.0.as_millisecond()),
        end_ms: query.end_time.map(|at| at.0.as_millisecond()),
        kinds: kinds.unwrap_or_default(),
        after,
    };
    // One more than asked for tells whether there is a next page.
    let mut rows = api.store.list_operations(cvm.id, &filter, i64::from(limit) + 1).await?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let next_cursor = (rows.len() > limit)
        .then(|| rows.get(limit - 1).map(|last| cursors.write(last.started_at_ms, last.correlation_id)))
        .flatten();
    rows.truncate(limit);
    let total = if filter.is_open() {
        cvm.operation_count
    } else {
        api.store.count_operations(cvm.id, &filter).await?
    };
    let ids: Vec<_> = rows.iter().map(|row| row.correlation_id).collect();
    let mut events: HashMap<Uuid, Vec<EventRow>> = HashMap::new();
    for event in api.store.events_of(&ids).await? {
        events.entry(event.correlation_id).or_default().push(event);
    }
    let show = |row: OperationRow| {
        let events = events.remove(&row.correlation_id).unwrap_or_default();
        show(&cvm, row, events, caller.is_admin())
    };
    let items = rows.into_iter().map(show).collect();
    Ok(Json(OperationPage { items, next_cursor, total }))
}

fn show(cvm: &CvmRow, row: OperationRow, events: Vec<EventRow>, is_admin: bool) -> Operation {
    let rules = row.rules();
    Operation {
        correlation_id: row.correlation_id,
        operation_type: row.kind.to_string(),
        target_state: rules.target.map_or("deleted", crate::operations::CvmStatus::as_str).to_owned(),
        triggered_by: row.triggered_by,
        triggered_by_username: Some(row.triggered_by_username),
        triggered_by_email: Some(row.triggered_by_email),
        started_at: time(row.started_at_ms),
        completed_at: row.completed_at_ms.map(time),
        duration_ms: row.completed_at_ms.map(|end_ms| end_ms - row.started_at_ms),
        status: row.status.to_string(),
        error_message: row.failure.map(|text| if is_admin { text } else { sanitised(&text) }),
        sub_operations: rules.steps.iter().copied().map(Step::as_str).map(str::to_owned).collect(),
        events: events
            .into_iter()
            .map(|event| OperationEvent {
                event_type: event.event_type,
                timestamp: time(event.at_ms),
                state: event.state,
            })
            .collect(),
        instance_name: cvm.name.clone(),
        compose_hash: row.compose_hash.and_then(|hash| hash.parse().ok()),
    }
}
