//! `POST /cvms/{cvm_id}/start`

use axum::Json;
use axum::extract::State;
use cloister_management_api::Vm;

use super::power;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::negotiate::Version;
use crate::api::responses::{OnCvm, OnPower};
use crate::api::target::Target;
use crate::operations::OperationKind;

/// Start a CVM
///
/// Boots a CVM that is off. Starting a running one changes nothing.
#[utoipa::path(
    post, path = "/cvms/{cvm_id}/start", tag = "CVMs", operation_id = "start_cvm",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses((status = 200, description = "Accepted", body = Vm), OnCvm, OnPower),
)]
pub(crate) async fn start(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Target(cvm): Target,
) -> ApiResult<Json<Vm>> {
    power::request(&api, &caller, version, &cvm, OperationKind::PowerOn, false).await
}
