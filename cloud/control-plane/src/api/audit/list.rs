//! `GET /workspace/audit` and `/admin/audit`

use axum::Json;
use axum::extract::State;
use cloister_app_compose::members;
use cloister_management_api::{AuditPage, Instant, TokenId};
use utoipa::IntoParams;

use crate::api::Api;
use crate::api::auth::{Admin, Auth};
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::{Query, within};
use crate::api::responses::{Authenticated, ForAdmins};
use crate::audit::INSTALLATION;
use crate::store::{AuditActorFilter, AuditFilter};

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 500;
/// Longest text of a filter.
const MAX_TEXT: usize = 300;
/// What actors without a name are called.
const KINDS: [&str; 5] = ["key", "commit_token", "system", "person", "stranger"];

members! {
    /// Query of a list of audit records.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct AuditQuery {
        /// `next_cursor` of the page before.
        #[param(required = false)]
        pub cursor: Option<String>,
        /// Most records of the page.
        #[param(required = false, minimum = 1, maximum = 500, default = 50)]
        pub limit: Option<i64>,
        /// Only records of this actor: a login name, the id of an API key, a part of the system such as
        /// `scheduled delete`, or `key`, `person`, `commit_token`, `system` or `stranger` for all of a kind.
        #[param(required = false)]
        pub actor: Option<String>,
        /// Only records of this operation, such as `delete_cvm`.
        #[param(required = false)]
        pub operation: Option<String>,
        /// Only records about what has this id: of a CVM its UUID.
        #[param(required = false)]
        pub target: Option<String>,
        /// Only records of this time or later; UTC unless it has an offset.
        #[param(required = false, value_type = Option<String>, format = DateTime)]
        pub start_time: Option<Instant>,
        /// Only records of this time or earlier.
        #[param(required = false, value_type = Option<String>, format = DateTime)]
        pub end_time: Option<Instant>,
    }
}

/// List the audit log
///
/// Who changed what in the workspace, newest first. Every change leaves one record, in the transaction of the change.
#[utoipa::path(
    get, path = "/workspace/audit", tag = "Audit", operation_id = "list_audit", params(AuditQuery),
    responses((status = 200, description = "A page of records", body = AuditPage), Authenticated),
)]
pub(crate) async fn own(
    State(api): State<Api>,
    Auth(caller): Auth,
    Query(query): Query<AuditQuery>,
) -> ApiResult<Json<AuditPage>> {
    page(&api, caller.workspace_id, query).await
}

/// List the installation's audit log
///
/// Who administered the installation, newest first.
#[utoipa::path(
    get, path = "/admin/audit", tag = "Administration", operation_id = "admin_list_audit", params(AuditQuery),
    responses((status = 200, description = "A page of records", body = AuditPage), ForAdmins),
)]
pub(crate) async fn of_installation(
    State(api): State<Api>,
    _: Admin,
    Query(query): Query<AuditQuery>,
) -> ApiResult<Json<AuditPage>> {
    page(&api, INSTALLATION, query).await
}

async fn page(api: &Api, chain: i64, query: AuditQuery) -> ApiResult<Json<AuditPage>> {
    let limit = within("limit", query.limit, DEFAULT_LIMIT, 1..=MAX_LIMIT)?;
    let filter = AuditFilter {
        before: query.cursor.as_deref().map(place).transpose()?,
        actor: text("actor", query.actor)?.map(actor),
        operation: text("operation", query.operation)?,
        target: text("target", query.target)?,
        from_ms: query.start_time.map(|at| at.0.as_millisecond()),
        to_ms: query.end_time.map(|at| at.0.as_millisecond()),
    };
    // One more than asked for tells whether there is a next page.
    let mut items = api.store.audit_page(chain, &filter, i64::from(limit) + 1).await?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next_cursor = items.last().filter(|_| has_more).map(|last| last.sequence.to_string());
    Ok(Json(AuditPage { items, next_cursor }))
}

/// A cursor is the number of a record, which is no secret: it leads nowhere but into the reader's own chain.
fn place(cursor: &str) -> ApiResult<i64> {
    cursor.parse().ok().filter(|place| *place > 0).ok_or_else(|| {
        let message = "Input should be next_cursor of an earlier answer";
        ApiError::fault(&["query", "cursor"], "value_error", message)
    })
}

fn text(name: &str, value: Option<String>) -> ApiResult<Option<String>> {
    match value {
        Some(value) if value.len() > MAX_TEXT || value.contains('\0') => {
            let message = format!("String should have at most {MAX_TEXT} bytes, none of them zero");
            Err(ApiError::fault(&["query", name], "string_length", message))
        }
        value => Ok(value.filter(|value| !value.is_empty())),
    }
}

fn actor(text: String) -> AuditActorFilter {
    match text.parse::<TokenId>() {
        Ok(TokenId(key)) => AuditActorFilter::Key(key),
        Err(_) if KINDS.contains(&text.as_str()) => AuditActorFilter::Kind(text),
        Err(_) => AuditActorFilter::Name(text),
    }
}
