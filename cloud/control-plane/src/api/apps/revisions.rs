//! `GET /apps/{app_id}/revisions`, one of them, and what differs between two

use axum::Json;
use axum::extract::State;
use cloister_app_compose::members;
use cloister_management_api::{
    Compared, ConfigurationDiff, CvmId, CvmRef, CvmType, PlainError, Revision, RevisionDetail, RevisionDiff,
    RevisionDocument, RevisionId, RevisionPage, RevisionStanding, UserId, UserRef, UserType, WorkspaceId,
    WorkspaceRef, WorkspaceType,
};
use serde_json::{Map, Value};
use utoipa::IntoParams;

use super::own::{NamedRevision, OwnApp, RevisionPath, revision};
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Query;
use crate::api::paging::PageSizes;
use crate::api::responses::Authenticated;
use crate::api::view::time;
use crate::operations::RevisionState;
use crate::store::{Caller, Configuration, RevisionSummary};

const PAGE_SIZES: PageSizes = PageSizes { usual: 50, most: 1000 };
/// What a CVM has now, instead of a revision.
const CURRENT: &str = "current";

members! {
    /// Query of `GET /apps/{app_id}/revisions`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct RevisionsQuery {
        /// Number of the page.
        #[param(required = false, minimum = 1, default = 1)]
        pub page: Option<i64>,
        /// Most revisions of the page.
        #[param(required = false, minimum = 1, maximum = 1000, default = 50)]
        pub page_size: Option<i64>,
    }
}

members! {
    /// Query of `GET /apps/{app_id}/revisions/{revision_id}`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct RevisionQuery {
        /// The exact text of the compose document, whose SHA-256 is the compose hash.
        #[param(required = false, default = false)]
        pub raw_compose_file: bool = false,
    }
}

members! {
    /// Query of `GET /apps/{app_id}/revisions/{revision_id}/diff`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct DiffQuery {
        /// What it is compared with: another revision, or `current` for what its CVM has now.
        #[param(required = false, default = "current")]
        pub against: Option<String>,
    }
}

/// List an application's revisions
///
/// Every configuration that CVMs of the application were given, newest first, of deleted CVMs too. A change
/// that was accepted and not applied is not among them.
#[utoipa::path(
    get, path = "/apps/{app_id}/revisions", tag = "Apps", operation_id = "list_app_revisions",
    params(("app_id" = String, Path, description = "App id, hex"), RevisionsQuery),
    responses(
        (status = 200, description = "A page of revisions", body = RevisionPage),
        (status = 404, description = "No such app in the workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn list(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
    Query(query): Query<RevisionsQuery>,
) -> ApiResult<Json<RevisionPage>> {
    let paging = PAGE_SIZES.read(query.page, query.page_size)?;
    let (app_id, workspace_id) = (app.app_id, caller.workspace_id);
    let total = api.store.count_revisions_of_app(app_id, workspace_id).await?;
    let rows = api.store.revision_summaries(app_id, workspace_id, paging.limit(), paging.offset()).await?;
    let workspace = workspace(&api, &caller).await?;
    let revisions = rows.into_iter().map(|row| wire(row, workspace.as_ref())).collect();
    let total_pages = paging.pages(total);
    Ok(Json(RevisionPage { revisions, total, page: paging.page, page_size: paging.page_size, total_pages }))
}

/// Get a revision
///
/// With its compose document and what else it holds. The sealed environment of a CVM that was deleted was
/// removed with it.
#[utoipa::path(
    get, path = "/apps/{app_id}/revisions/{revision_id}", tag = "Apps", operation_id = "get_app_revision",
    params(RevisionPath, RevisionQuery),
    responses(
        (status = 200, description = "The revision", body = RevisionDetail),
        (status = 404, description = "No such app or revision in the workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn detail(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
    NamedRevision(id): NamedRevision,
    Query(query): Query<RevisionQuery>,
) -> ApiResult<Json<RevisionDetail>> {
    let row = revision(&api, &caller, app.app_id, &id).await?;
    let summary = api.store.revision_summary(app.app_id, caller.workspace_id, row.id).await?;
    let summary = summary.ok_or_else(|| ApiError::not_found("Revision"))?;
    let configuration = row.configuration;
    let compose_file = if query.raw_compose_file {
        RevisionDocument::Text(configuration.app_compose)
    } else {
        let members = serde_json::from_str(&configuration.app_compose);
        RevisionDocument::Members(members.map_err(|error| ApiError::internal(&error))?)
    };
    Ok(Json(RevisionDetail {
        revision: wire(summary, workspace(&api, &caller).await?.as_ref()),
        compose_file,
        encrypted_env: configuration.encrypted_env.unwrap_or_default(),
        user_config: configuration.user_config.unwrap_or_default(),
        os_image: configuration.os_image_name,
        instance_type: configuration.instance_type,
        vcpu: configuration.vcpu,
        memory: configuration.memory_mb,
        disk_size: configuration.disk_gb,
    }))
}

/// Compare a revision
///
/// What changes when the revision takes the place of another one, or of what its CVM has now: in plain words
/// and structured, programs line by line. What is sealed is only said to be replaced.
#[utoipa::path(
    get, path = "/apps/{app_id}/revisions/{revision_id}/diff", tag = "Apps", operation_id = "diff_app_revision",
    params(RevisionPath, DiffQuery),
    responses(
        (status = 200, description = "The differences", body = RevisionDiff),
        (status = 400, description = "No CVM is left to compare with", body = PlainError),
        (status = 404, description = "No such app or revision in the workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn diff(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
    NamedRevision(id): NamedRevision,
    Query(query): Query<DiffQuery>,
) -> ApiResult<Json<RevisionDiff>> {
    let after = revision(&api, &caller, app.app_id, &id).await?;
    let against = query.against.as_deref().filter(|text| !text.is_empty()).unwrap_or(CURRENT);
    let (before_id, before) = if against == CURRENT {
        let own = app.cvms.iter().find(|cvm| cvm.id == after.cvm_id);
        let cvm = own.or(app.cvms.first()).ok_or_else(no_cvm)?;
        (cvm.revision_id, cvm.configuration())
    } else {
        let row = revision(&api, &caller, app.app_id, against).await?;
        (Some(row.id), row.configuration)
    };
    let after_id = RevisionId(after.id);
    let diff = compared(before, after.configuration).await?;
    let summary = diff.to_words();
    Ok(Json(RevisionDiff { before: before_id.map(RevisionId), after: after_id, summary, diff }))
}

fn no_cvm() -> ApiError {
    let text = "No CVM of the app is left to compare with; name a revision in against";
    ApiError::plain(axum::http::StatusCode::BAD_REQUEST, text)
}

/// What differs between two configurations.
pub(crate) async fn compared(before: Configuration, after: Configuration) -> ApiResult<ConfigurationDiff> {
    // Comparing long programs is work; it must not hold up other requests.
    let compared = tokio::task::spawn_blocking(move || compare(&before, &after)).await;
    compared.map_err(|error| ApiError::internal(&error))
}

fn compare(before: &Configuration, after: &Configuration) -> ConfigurationDiff {
    let document = |side: &Configuration| -> Map<String, Value> {
        serde_json::from_str(&side.app_compose).unwrap_or_default()
    };
    let other = |side: &Configuration| {
        [
            ("image", Some(side.os_image_name.clone())),
            ("image hash", Some(side.os_image_hash.to_string())),
            ("instance type", side.instance_type.clone()),
            ("virtual CPUs", Some(side.vcpu.to_string())),
            ("memory", Some(format!("{} MB", side.memory_mb))),
            ("disk", Some(format!("{} GB", side.disk_gb))),
            ("GPUs", Some(side.gpus.0.join(", ")).filter(|gpus| !gpus.is_empty())),
            ("user_config", side.user_config.clone()),
        ]
    };
    let (old, new) = (document(before), document(after));
    let (old_other, new_other) = (other(before), other(after));
    ConfigurationDiff::between(
        &Compared {
            compose_hash: before.compose_hash,
            document: &old,
            encrypted_env: before.encrypted_env.as_deref(),
            other: &old_other,
        },
        &Compared {
            compose_hash: after.compose_hash,
            document: &new,
            encrypted_env: after.encrypted_env.as_deref(),
            other: &new_other,
        },
    )
}

async fn workspace(api: &Api, caller: &Caller) -> ApiResult<Option<WorkspaceRef>> {
    let row = api.store.workspace(caller.workspace_id).await?;
    Ok(row.map(|row| WorkspaceRef {
        object_type: WorkspaceType::Value,
        id: WorkspaceId(row.id),
        name: row.name,
        slug: Some(row.slug),
        avatar_url: None,
    }))
}

/// A user as others see them.
pub(super) fn user(id: i64, username: String) -> UserRef {
    UserRef { object_type: UserType::Value, id: Some(UserId(id)), username: Some(username), avatar_url: None }
}

fn wire(row: RevisionSummary, workspace: Option<&WorkspaceRef>) -> Revision {
    Revision {
        revision_id: RevisionId(row.id),
        app_id: row.app_id,
        vm_uuid: row.vm_uuid,
        compose_hash: row.compose_hash,
        created_at: time(row.created_at_ms),
        trace_id: row.correlation_id,
        operation_type: row.operation_type,
        triggered_by: Some(user(row.triggered_by, row.username)),
        cvm: Some(CvmRef {
            object_type: CvmType::Value,
            id: Some(CvmId(row.cvm_id)),
            vm_uuid: row.vm_uuid,
            app_id: Some(row.app_id),
            name: Some(row.cvm_name),
        }),
        workspace: workspace.cloned(),
        state: match row.state {
            RevisionState::RolledBack => RevisionStanding::RolledBack,
            _ if row.is_current != 0 => RevisionStanding::Current,
            _ => RevisionStanding::Superseded,
        },
    }
}
