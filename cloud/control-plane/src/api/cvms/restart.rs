//! `POST /cvms/{cvm_id}/restart`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{RestartRequest, Vm};

use super::power;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::input::OptionalBody;
use crate::api::negotiate::Version;
use crate::api::responses::{OnCvm, OnPower};
use crate::api::target::Target;
use crate::operations::OperationKind;

/// Restart a CVM
///
/// Shuts the guest down in order, or with `force` takes its power away, and boots it again.
#[utoipa::path(
    post, path = "/cvms/{cvm_id}/restart", tag = "CVMs", operation_id = "restart_cvm",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = Option<RestartRequest>,
    responses((status = 200, description = "Accepted", body = Vm), OnCvm, OnPower),
)]
pub(crate) async fn restart(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Target(cvm): Target,
    OptionalBody(body): OptionalBody<RestartRequest>,
) -> ApiResult<Json<Vm>> {
    let force = body.unwrap_or_default().force;
    power::request(&api, &caller, version, &cvm, OperationKind::Restart, force).await
}
