//! `GET /kms/phala/next_app_id`

use axum::Json;
use axum::extract::State;
use cloister_app_compose::{AppId, members};
use cloister_management_api::{NextAppId, NextAppIds};
use utoipa::IntoParams;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::{Query, within};
use crate::api::responses::Authenticated;

/// Nonces that are looked at beyond those asked for: some may be in use, because requests can bring their
/// own.
const MAX_IN_USE: usize = 100;

members! {
    /// Query of `GET /kms/phala/next_app_id`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct NextAppIdQuery {
        /// How many.
        #[param(required = false, minimum = 1, maximum = 20, default = 1)]
        pub counts: Option<i64>,
    }
}

/// Get the app ids that the workspace gets next
///
/// Nothing is reserved: a provision that names no app id takes the first of them.
#[utoipa::path(
    get, path = "/kms/phala/next_app_id", tag = "KMS", operation_id = "get_next_app_id",
    params(NextAppIdQuery),
    responses((status = 200, description = "App ids with their nonces", body = NextAppIds), Authenticated),
)]
pub(crate) async fn next_app_id(
    State(api): State<Api>,
    Auth(caller): Auth,
    Query(parameters): Query<NextAppIdQuery>,
) -> ApiResult<Json<NextAppIds>> {
    let counts = within("counts", parameters.counts, 1, 1..=20)?;
    let counts = usize::try_from(counts).unwrap_or(1);
    let workspace = api.store.workspace(caller.workspace_id).await?;
    let workspace = workspace.ok_or_else(ApiError::unexpected)?;
    let wallet: AppId = workspace.wallet.parse().map_err(|_| ApiError::unexpected())?;
    let next = u64::try_from(workspace.next_app_nonce).map_err(|_| ApiError::unexpected())?;
    let mut app_ids = Vec::with_capacity(counts);
    for nonce in (next..).take(counts + MAX_IN_USE) {
        let app_id = AppId::from_wallet(wallet.as_bytes(), nonce);
        if api.store.cvms_of_app(app_id).await?.is_empty() {
            app_ids.push(NextAppId { app_id, nonce });
        }
        if app_ids.len() == counts {
            return Ok(Json(NextAppIds { app_ids }));
        }
    }
    tracing::error!(workspace_id = caller.workspace_id, "the workspace's wallet gives no free app id");
    Err(ApiError::unexpected())
}
