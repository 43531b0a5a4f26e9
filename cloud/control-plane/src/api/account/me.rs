//! `GET /auth/me`

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use cloister_management_api::{ApiVersion, WorkspaceId, v20251028, v20260121};
use serde::Serialize;
use utoipa::ToSchema;

use super::workspaces::ROLE;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::negotiate::Version;
use crate::api::responses::Authenticated;
use crate::store::{Caller, WorkspaceRow};

/// The account in the form of the version.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum CurrentUser {
    /// Version 2025-10-28.
    Flat(v20251028::CurrentUser),
    /// Version 2026-01-21 and later.
    Structured(Box<v20260121::CurrentUser>),
}

/// Get the account behind the credential
#[utoipa::path(
    get, path = "/auth/me", tag = "Account", operation_id = "get_current_user",
    responses((status = 200, description = "The account, in the form of the version", body = CurrentUser), Authenticated),
)]
pub(crate) async fn me(
    State(api): State<Arc<Api>>,
    Auth(caller): Auth,
    Version(version): Version,
) -> ApiResult<Json<CurrentUser>> {
    let workspace = api.store.workspace(caller.workspace_id).await?;
    let workspace = workspace.ok_or_else(|| ApiError::not_found("Workspace"))?;
    Ok(Json(if version < ApiVersion::V20260121 {
        CurrentUser::Flat(flat(&caller, workspace))
    } else {
        CurrentUser::Structured(Box::new(structured(&caller, workspace)))
    }))
}

/// Nothing is billed here, so there is no credit.
fn flat(caller: &Caller, workspace: WorkspaceRow) -> v20251028::CurrentUser {
    v20251028::CurrentUser {
        username: caller.username.clone(),
        email: caller.email.clone(),
        credits: 0.0,
        granted_credits: 0.0,
        avatar: String::new(),
        team_name: workspace.name,
        team_tier: workspace.tier,
    }
}

fn structured(caller: &Caller, workspace: WorkspaceRow) -> v20260121::CurrentUser {
    v20260121::CurrentUser {
        user: v20260121::AccountUser {
            username: caller.username.clone(),
            email: caller.email.clone(),
            role: if caller.is_admin() { "admin" } else { "user" }.to_owned(),
            avatar: String::new(),
            email_verified: false,
            totp_enabled: false,
            has_backup_codes: false,
            flag_has_password: false,
        },
        workspace: v20260121::AccountWorkspace {
            id: WorkspaceId(workspace.id),
            name: workspace.name,
            slug: Some(workspace.slug),
            tier: workspace.tier,
            role: ROLE.to_owned(),
            avatar: None,
        },
        credits: v20260121::Credits {
            balance: "0".to_owned(),
            granted_balance: "0".to_owned(),
            is_post_paid: true,
            outstanding_amount: None,
        },
    }
}
