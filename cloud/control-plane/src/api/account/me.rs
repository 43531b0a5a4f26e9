//! `GET /auth/me`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{ApiVersion, WorkspaceId, amount_text, v20251028, v20260121};
use rust_decimal::prelude::ToPrimitive;
use serde::Serialize;
use utoipa::ToSchema;

use super::workspaces::ROLE;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::negotiate::Version;
use crate::api::responses::Authenticated;
use crate::store::{Caller, Funds, PersonRow, WorkspaceRow};

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
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
) -> ApiResult<Json<CurrentUser>> {
    let workspace = api.store.workspace(caller.workspace_id).await?;
    let workspace = workspace.ok_or_else(|| ApiError::not_found("Workspace"))?;
    let funds = api.store.funds(caller.workspace_id, api.clock.now_ms()).await?;
    Ok(Json(if version < ApiVersion::V20260121 {
        CurrentUser::Flat(flat(&caller, workspace, &funds))
    } else {
        let person = api.store.person(caller.user_id).await?.ok_or_else(|| ApiError::not_found("User"))?;
        CurrentUser::Structured(Box::new(structured(&caller, &person, workspace, &funds)))
    }))
}

/// This version has floats for money.
fn flat(caller: &Caller, workspace: WorkspaceRow, funds: &Funds) -> v20251028::CurrentUser {
    v20251028::CurrentUser {
        username: caller.username.clone(),
        email: caller.email.clone(),
        credits: funds.balance().to_f64().unwrap_or_default(),
        granted_credits: funds.granted_balance().to_f64().unwrap_or_default(),
        avatar: String::new(),
        team_name: workspace.name,
        team_tier: workspace.tier,
    }
}

fn structured(
    caller: &Caller,
    person: &PersonRow,
    workspace: WorkspaceRow,
    funds: &Funds,
) -> v20260121::CurrentUser {
    v20260121::CurrentUser {
        user: v20260121::AccountUser {
            username: caller.username.clone(),
            email: caller.email.clone(),
            role: if caller.is_admin() { "admin" } else { "user" }.to_owned(),
            avatar: String::new(),
            email_verified: false,
            totp_enabled: person.has_second_factor > 0,
            has_backup_codes: person.backup_codes > 0,
            flag_has_password: person.has_password > 0,
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
            balance: amount_text(funds.balance()),
            granted_balance: amount_text(funds.granted_balance()),
            is_post_paid: !funds.is_prepaid,
            outstanding_amount: Some(amount_text(funds.outstanding())),
        },
    }
}
