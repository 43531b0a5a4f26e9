//! `POST /cvms/{cvm_id}/is-allowed`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{CvmIsAllowed, CvmIsAllowedRequest, DeviceId, PlainError};

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::governance::{Subject, chain_reads, device, wrong_chain};
use crate::api::input::OptionalBody;
use crate::api::negotiate::Version;
use crate::api::responses::OnCvm;
use crate::api::target::Target;
use crate::api::view::vm_id;
use crate::governance::{self, Governance, Question};

/// Check whether a CVM may run what it runs
///
/// Asks the application's contract as it is now, or looks at the owners' approvals, about the CVM's document on its
/// node's device, or about what the request names instead. What could not be asked is told in `error`; nothing is
/// allowed then.
#[utoipa::path(
    post, path = "/cvms/{cvm_id}/is-allowed", tag = "CVMs", operation_id = "is_cvm_allowed",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = Option<CvmIsAllowedRequest>,
    responses(
        (status = 200, description = "What those who decide say, or why they could not be asked", body = CvmIsAllowed),
        (status = 429, description = "The workspace asks too often at the same time", body = PlainError),
        OnCvm,
    ),
)]
pub(crate) async fn is_allowed(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Target(cvm): Target,
    OptionalBody(request): OptionalBody<CvmIsAllowedRequest>,
) -> ApiResult<Json<CvmIsAllowed>> {
    let _turn = chain_reads(&api, &caller)?;
    let request = request.unwrap_or_default();
    let governance = governance::of_cvm(&api, &cvm).await?;
    let devices_matter = matches!(governance, Governance::Contract(_));
    let subject = Subject { app_id: cvm.app_id, governance };
    let compose_hash = request.compose_hash.and_then(|hash| hash.0).unwrap_or(cvm.compose_hash);
    let named = request.device_id.and_then(|device| device.0);
    let own_node = (named.is_none() && devices_matter).then_some(cvm.node_id);
    let found = device(&api, request.node_id.or(own_node), named).await?;
    let device_id = found.clone().unwrap_or(named.map(|DeviceId(bytes)| bytes));
    let question = Question { compose_hash, device_id };
    let allowance = match found.err().or_else(|| wrong_chain(&subject, request.chain_id)) {
        Some(why) => subject.refuse(&question, &why),
        None => subject.ask_one(&api, question).await,
    };
    Ok(Json(CvmIsAllowed { cvm_id: vm_id(cvm.id, version), allowance }))
}
