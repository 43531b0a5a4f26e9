//! `POST /apps/{app_id}/is-allowed` and `POST /apps/{app_id}/cvms/is-allowed`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{
    AppCvmsIsAllowed, AppIsAllowedRequest, CvmIsAllowed, IsAllowed, PlainError, VmId,
};

use super::own::OwnApp;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::governance::{Subject, chain_reads, device, wrong_chain};
use crate::api::input::Body;
use crate::api::negotiate::Version;
use crate::api::responses::Authenticated;
use crate::api::view::vm_id;
use crate::governance::{Governance, Question};
use crate::store::AskedCvm;

/// Check whether an application may run a document on a device
///
/// Asks the application's contract as it is now, or looks at the owners' approvals. What could not be asked is told
/// in `error`; nothing is allowed then. With neither `node_id` nor `device_id` only the document is asked about.
#[utoipa::path(
    post, path = "/apps/{app_id}/is-allowed", tag = "Apps", operation_id = "is_app_allowed",
    params(("app_id" = String, Path, description = "App id, with or without `0x` or `app_`")),
    request_body = AppIsAllowedRequest,
    responses(
        (status = 200, description = "What those who decide say, or why they could not be asked", body = IsAllowed),
        (status = 404, description = "The workspace has no such application", body = PlainError),
        (status = 429, description = "The workspace asks too often at the same time", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn is_allowed(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
    Body(request): Body<AppIsAllowedRequest>,
) -> ApiResult<Json<IsAllowed>> {
    let _turn = chain_reads(&api, &caller)?;
    let subject = Subject::of_app(&api, &caller, app.app_id).await?;
    let named = request.device_id.and_then(|device| device.0);
    let mut question =
        Question { compose_hash: request.compose_hash.0, device_id: named.map(|device| device.0) };
    let fault = match device(&api, request.node_id, named).await? {
        Ok(device_id) => {
            question.device_id = device_id;
            wrong_chain(&subject, request.chain_id)
        }
        Err(why) => Some(why),
    };
    Ok(Json(match fault {
        Some(why) => subject.refuse(&question, &why),
        None => subject.ask_one(&api, question).await,
    }))
}

/// Check whether the CVMs of an application may run what they run
///
/// Every CVM of the workspace, at most 10,000, in few questions to the chain. Those whose node has not proved which
/// device it is are skipped, and so are all of an application that nobody decides about.
#[utoipa::path(
    post, path = "/apps/{app_id}/cvms/is-allowed", tag = "Apps", operation_id = "are_app_cvms_allowed",
    params(("app_id" = String, Path, description = "App id, with or without `0x` or `app_`")),
    responses(
        (status = 200, description = "What those who decide say about each CVM, or why they could not be asked", body = AppCvmsIsAllowed),
        (status = 404, description = "The workspace has no such application", body = PlainError),
        (status = 429, description = "The workspace asks too often at the same time", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn cvms_are_allowed(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    app: OwnApp,
) -> ApiResult<Json<AppCvmsIsAllowed>> {
    let _turn = chain_reads(&api, &caller)?;
    let subject = Subject::of_app(&api, &caller, app.app_id).await?;
    let cvms = api.store.asked_cvms(app.app_id, caller.workspace_id).await?;
    let question = |cvm: &AskedCvm| match subject.governance {
        Governance::Workspace => None,
        // Owners without a contract allow documents, wherever they run.
        Governance::Owners | Governance::Unknown => {
            Some(Question { compose_hash: cvm.compose_hash, device_id: cvm.device_id })
        }
        Governance::Contract(contract) => {
            let decides = cvm.kms_id.and_then(|id| api.kmses.get(id)?.contract()) == Some(contract);
            let device_id = cvm.device_id.filter(|_| decides)?;
            Some(Question { compose_hash: cvm.compose_hash, device_id: Some(device_id) })
        }
    };
    let (mut ids, mut questions, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    for cvm in &cvms {
        match question(cvm) {
            Some(question) => {
                ids.push(vm_id(cvm.id, version));
                questions.push(question);
            }
            None => skipped.push(vm_id(cvm.id, version)),
        }
    }
    let allowances = if questions.is_empty() { Vec::new() } else { subject.ask(&api, &questions).await };
    let is_onchain = matches!(subject.governance, Governance::Contract(_));
    Ok(Json(counted(is_onchain, ids, allowances, skipped)))
}

fn counted(
    is_onchain: bool,
    ids: Vec<VmId>,
    allowances: Vec<IsAllowed>,
    skipped_cvm_ids: Vec<VmId>,
) -> AppCvmsIsAllowed {
    let count =
        |is_so: fn(&IsAllowed) -> bool| allowances.iter().filter(|allowance| is_so(allowance)).count();
    AppCvmsIsAllowed {
        is_onchain,
        total: allowances.len(),
        allowed_count: count(|allowance| allowance.is_allowed),
        denied_count: count(|allowance| !allowance.is_allowed && allowance.error.is_none()),
        error_count: count(|allowance| allowance.error.is_some()),
        results: ids
            .into_iter()
            .zip(allowances)
            .map(|(cvm_id, allowance)| CvmIsAllowed { cvm_id, allowance })
            .collect(),
        skipped_cvm_ids,
    }
}
