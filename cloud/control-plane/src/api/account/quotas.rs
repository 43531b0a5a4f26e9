//! `GET /workspaces/{slug}/quotas`

use axum::Json;
use axum::extract::{Path, State};
use cloister_management_api::{PlainError, Quota, Quotas, ReservedGpus, WorkspaceQuotas};

use super::workspaces::find;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::responses::Authenticated;

/// Get what a workspace may use
///
/// -1 stands for no limit: what nodes have free is the only one.
#[utoipa::path(
    get, path = "/workspaces/{slug}/quotas", tag = "Account", operation_id = "get_workspace_quotas",
    params(("slug" = String, Path, description = "Name in URLs, or id")),
    responses(
        (status = 200, description = "The quotas", body = WorkspaceQuotas),
        (status = 404, description = "The user is not a member of such a workspace", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn quotas(
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(slug): Path<String>,
) -> ApiResult<Json<WorkspaceQuotas>> {
    let workspace = find(&api, &caller, &slug).await?;
    Ok(Json(WorkspaceQuotas {
        team_slug: workspace.slug,
        tier: workspace.tier,
        quotas: Quotas {
            vm_slots: Quota::UNLIMITED,
            vcpu: Quota::UNLIMITED,
            memory_mb: Quota::UNLIMITED,
            disk_gb: Quota::UNLIMITED,
        },
        reserved_nodes: Quota::NONE,
        reserved_gpu: ReservedGpus { gpus: Quota::NONE, in_use: 0, misconfigured: 0 },
        as_of: api.clock.now(),
    }))
}
