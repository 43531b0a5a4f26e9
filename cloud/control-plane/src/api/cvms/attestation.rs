//! `GET /cvms/{cvm_id}/attestation`

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use cloister_management_api::CvmAttestation;

use crate::api::Api;
use crate::api::attestations::{Presented, presented};
use crate::api::error::ApiResult;
use crate::api::responses::OnCvm;
use crate::api::target::Target;
use crate::api::view::Shown;

/// Get a CVM's evidence
///
/// Asks the guest for evidence over fresh bytes. A CVM that does not answer is described with
/// `is_online: false` and a reason. `verification` is the operator's own verdict; whoever relies on the
/// CVM verifies its evidence by themselves.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/attestation", tag = "Attestation", operation_id = "get_cvm_attestation",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses((status = 200, description = "The evidence", body = CvmAttestation), OnCvm),
)]
pub(crate) async fn attestation(
    State(api): State<Api>,
    Target(cvm): Target,
) -> ApiResult<Json<CvmAttestation>> {
    let (presented, error) = match presented(&api, &cvm, &api.own_evidence_reads).await {
        Ok(presented) => (Some(presented), None),
        Err(reason) => (None, Some(reason)),
    };
    let shown = Shown::of(&cvm.app_compose);
    Ok(Json(CvmAttestation {
        name: Some(cvm.name.clone()),
        is_online: presented.is_some(),
        is_public: shown.public_tcbinfo,
        error,
        app_certificates: presented.as_ref().and_then(Presented::certificates),
        tcb_info: presented.as_ref().and_then(|presented| presented.tcb_info(&cvm)),
        compose_file: shown.docker_compose_file.map(Cow::into_owned),
        verification: presented.map(|presented| presented.verdict()),
    }))
}
