//! `GET /workspaces`, `/workspaces/{slug}` and `/workspaces/{slug}/nodes`

use axum::Json;
use axum::extract::{Path, State};
use cloister_app_compose::members;
use cloister_management_api::{CursorPage, NodeRef, Page, Pagination, PlainError, Workspace, WorkspaceId};
use utoipa::IntoParams;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::{Query, within};
use crate::api::responses::Authenticated;
use crate::api::view::{node_ref, time};
use crate::store::{Caller, WorkspaceRow};

/// The only role of members so far.
pub(super) const ROLE: &str = "owner";
const DEFAULT_PAGE_SIZE: u32 = 30;
const MAX_PAGE_SIZE: u32 = 100;

members! {
    /// A page by number.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct PageQuery {
        /// Number of the page.
        #[param(required = false, minimum = 1, default = 1)]
        pub page: Option<i64>,
        /// Most items of the page.
        #[param(required = false, minimum = 1, maximum = 100, default = 30)]
        pub page_size: Option<i64>,
    }
}

impl PageQuery {
    /// Number and size of the page, checked.
    pub(crate) fn checked(&self) -> ApiResult<(u32, u32)> {
        let page = within("page", self.page, 1, 1..=u32::MAX)?;
        Ok((page, within("page_size", self.page_size, DEFAULT_PAGE_SIZE, 1..=MAX_PAGE_SIZE)?))
    }
}

/// List workspaces
///
/// The workspaces that the user is a member of.
#[utoipa::path(
    get, path = "/workspaces", tag = "Account", operation_id = "list_workspaces",
    responses((status = 200, description = "The workspaces", body = CursorPage<Workspace>), Authenticated),
)]
pub(crate) async fn list(
    State(api): State<Api>,
    Auth(caller): Auth,
) -> ApiResult<Json<CursorPage<Workspace>>> {
    let rows = api.store.workspaces_of(caller.user_id).await?;
    let total = i64::try_from(rows.len()).ok();
    let data = rows.into_iter().map(|row| wire(&caller, row)).collect();
    Ok(Json(CursorPage { data, pagination: Pagination { has_more: false, next_cursor: None, total } }))
}

/// Get a workspace
#[utoipa::path(
    get, path = "/workspaces/{slug}", tag = "Account", operation_id = "get_workspace",
    params(("slug" = String, Path, description = "Name in URLs, or id")),
    responses(
        (status = 200, description = "The workspace", body = Workspace),
        (status = 404, description = "The user is not a member of such a workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn get(
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(slug): Path<String>,
) -> ApiResult<Json<Workspace>> {
    find(&api, &caller, &slug).await.map(|row| Json(wire(&caller, row)))
}

/// List the nodes of a workspace
///
/// The nodes that the workspace can use.
#[utoipa::path(
    get, path = "/workspaces/{slug}/nodes", tag = "Account", operation_id = "list_workspace_nodes",
    params(("slug" = String, Path, description = "Name in URLs, or id"), PageQuery),
    responses(
        (status = 200, description = "A page of nodes", body = Page<NodeRef>),
        (status = 404, description = "The user is not a member of such a workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn nodes(
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(slug): Path<String>,
    Query(query): Query<PageQuery>,
) -> ApiResult<Json<Page<NodeRef>>> {
    find(&api, &caller, &slug).await?;
    let (page, size) = query.checked()?;
    let nodes = api.fleet.standings().await?;
    Ok(Json(Page::of_all(nodes.iter().map(node_ref).collect(), page, size)))
}

/// Nothing tells a workspace of others from one that does not exist.
pub(super) async fn find(api: &Api, caller: &Caller, slug: &str) -> ApiResult<WorkspaceRow> {
    let id = slug.parse::<WorkspaceId>().ok().map(|id| id.0);
    let mut rows = api.store.workspaces_of(caller.user_id).await?.into_iter();
    rows.find(|row| row.slug == slug || Some(row.id) == id).ok_or_else(|| ApiError::not_found("Workspace"))
}

fn wire(caller: &Caller, row: WorkspaceRow) -> Workspace {
    Workspace {
        id: WorkspaceId(row.id),
        name: row.name,
        slug: Some(row.slug),
        tier: row.tier,
        role: ROLE.to_owned(),
        is_default: row.id == caller.workspace_id,
        created_at: time(row.created_at_ms),
    }
}
