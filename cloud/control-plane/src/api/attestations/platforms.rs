//! `GET /attestations/ppids` and `GET /attestations/device_ids`

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use cloister_management_api::PlatformListState;

use crate::api::Api;
use crate::api::auth::Admin;
use crate::api::error::ApiResult;
use crate::api::responses::ForAdmins;
use crate::store::DeviceRow;

/// List platform identities
///
/// Public. Every platform that a node of this installation was seen to be, proved by a quote of a CVM on it.
#[utoipa::path(
    get, path = "/attestations/ppids", tag = "Attestation", operation_id = "list_ppids", security(()),
    responses((status = 200, description = "PPIDs, hex", body = Vec<String>)),
)]
pub(crate) async fn ppids(State(api): State<Api>) -> ApiResult<Json<BTreeSet<String>>> {
    of_all(&api, |device| device.ppid).await
}

/// List device identities
///
/// Public. The same platforms by the SHA-256 of their identities.
#[utoipa::path(
    get, path = "/attestations/device_ids", tag = "Attestation", operation_id = "list_device_ids", security(()),
    responses((status = 200, description = "Device ids, hex", body = Vec<String>)),
)]
pub(crate) async fn device_ids(State(api): State<Api>) -> ApiResult<Json<BTreeSet<String>>> {
    of_all(&api, |device| device.device_id).await
}

async fn of_all(api: &Api, member: fn(DeviceRow) -> String) -> ApiResult<Json<BTreeSet<String>>> {
    Ok(Json(api.store.devices().await?.into_iter().map(member).collect()))
}

/// Show the state of the list of registered platforms
#[utoipa::path(
    get, path = "/admin/platform-list", tag = "Administration", operation_id = "admin_get_platform_list",
    responses((status = 200, description = "What is known about the list", body = PlatformListState), ForAdmins),
)]
pub(crate) async fn platform_list(State(api): State<Api>, _: Admin) -> Json<PlatformListState> {
    Json(api.proof_of_cloud.state())
}
