//! `GET /workspace/audit/export` and `/admin/audit/export`

use axum::BoxError;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use cloister_app_compose::members;
use cloister_management_api::PlainError;
use futures_util::stream;
use utoipa::IntoParams;

use crate::api::Api;
use crate::api::auth::{Admin, Auth};
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::input::Query;
use crate::api::responses::{Authenticated, ForAdmins};
use crate::api::slots::Slot;
use crate::audit::INSTALLATION;

/// Records that are read at once, and so the most that are held in memory.
const AT_ONCE: i64 = 200;

members! {
    /// Query of an export of audit records.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct ExportQuery {
        /// Only records behind this number, to continue an export that was kept.
        #[param(required = false, minimum = 0, default = 0)]
        pub after: Option<i64>,
    }
}

/// Export the audit log
///
/// All records of the workspace from the first to the one that is the last when the export begins, one JSON document in
/// each line, oldest first. An export that breaks off is told from a whole one by the head.
#[utoipa::path(
    get, path = "/workspace/audit/export", tag = "Audit", operation_id = "export_audit", params(ExportQuery),
    responses(
        (status = 200, description = "The records, one `AuditRecord` in each line", body = String, content_type = "application/x-ndjson"),
        (status = 429, description = "Two exports of the workspace are under way", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn own(
    State(api): State<Api>,
    Auth(caller): Auth,
    Query(query): Query<ExportQuery>,
) -> ApiResult<Response> {
    export(api, caller.workspace_id, query).await
}

/// Export the installation's audit log
#[utoipa::path(
    get, path = "/admin/audit/export", tag = "Administration", operation_id = "admin_export_audit",
    params(ExportQuery),
    responses(
        (status = 200, description = "The records, one `AuditRecord` in each line", body = String, content_type = "application/x-ndjson"),
        (status = 429, description = "Two exports are under way", body = PlainError),
        ForAdmins,
    ),
)]
pub(crate) async fn of_installation(
    State(api): State<Api>,
    _: Admin,
    Query(query): Query<ExportQuery>,
) -> ApiResult<Response> {
    export(api, INSTALLATION, query).await
}

/// An export on its way.
struct Export {
    api: Api,
    chain: i64,
    /// The last record that was read.
    after: i64,
    until: i64,
    _slot: Slot,
}

async fn export(api: Api, chain: i64, query: ExportQuery) -> ApiResult<Response> {
    let after = query.after.unwrap_or(0);
    if after < 0 {
        let message = "Input should be greater than or equal to 0";
        return Err(ApiError::fault(&["query", "after"], "greater_than_equal", message));
    }
    let slot = api.audit_exports.take(chain).ok_or_else(|| {
        let text = "Two exports are under way; wait for one to end";
        ApiError::plain(StatusCode::TOO_MANY_REQUESTS, text).retry_after(RETRY_AFTER_S)
    })?;
    let (until, _) = api.store.audit_head(chain).await?;
    let begun = Export { api, chain, after, until, _slot: slot };
    // Read when the reader took what was before: a slow one costs a few records of memory and no connection.
    let body = Body::from_stream(stream::try_unfold(begun, |mut export| async move {
        Ok::<_, BoxError>(export.next().await?.map(|lines| (lines, export)))
    }));
    Ok(([(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")], body).into_response())
}

impl Export {
    /// The next lines. What cannot be continued breaks off: it must not look like the whole log.
    async fn next(&mut self) -> Result<Option<Bytes>, BoxError> {
        if self.after >= self.until {
            return Ok(None);
        }
        if self.api.stop.is_cancelled() {
            return Err("the service ends".into());
        }
        let records = self.api.store.audit_stretch(self.chain, self.after, self.until, AT_ONCE).await?;
        let Some(last) = records.last() else { return Ok(None) };
        self.after = last.sequence;
        let mut lines = Vec::new();
        for record in &records {
            serde_json::to_writer(&mut lines, record)?;
            lines.push(b'\n');
        }
        Ok(Some(lines.into()))
    }
}
