//! `GET /apps/{app_id}/attestations/tcb-evaluation`

use axum::Json;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use cloister_management_api::{AppTcbEvaluation, InstanceTcbEvaluation, PlainError, TcbUpdate};
use cloister_verifier::{TcbStatus, VerifiedQuote};
use futures_util::{StreamExt, stream};

use super::{AT_A_TIME, visible_cvms};
use crate::api::Api;
use crate::api::attestations::presented;
use crate::api::error::ApiResult;
use crate::store::CvmRow;

/// Evaluate how current an app's platforms are
///
/// Live, against what the hardware's vendor publishes early: fixes that a platform lacks show here months
/// before they count elsewhere. Public like the app's attestations.
#[utoipa::path(
    get, path = "/apps/{app_id}/attestations/tcb-evaluation", tag = "Attestation", operation_id = "evaluate_app_tcb", security(()),
    params(("app_id" = String, Path, description = "App id, hex")),
    responses(
        (status = 200, description = "By CVM", body = AppTcbEvaluation),
        (status = 401, description = "The credential that was sent is not valid", body = PlainError),
        (status = 403, description = "The key is bound to another workspace than the one that is named", body = PlainError),
        (status = 404, description = "No such app, or nothing of it may be seen", body = PlainError),
    ),
)]
pub(crate) async fn tcb_evaluation(
    State(api): State<Api>,
    Path(app_id): Path<String>,
    headers: HeaderMap,
) -> ApiResult<Json<AppTcbEvaluation>> {
    let (app_id, cvms) = visible_cvms(&api, &app_id, &headers).await?;
    let instances = stream::iter(cvms).map(|cvm| instance(&api, cvm)).buffered(AT_A_TIME).collect().await;
    Ok(Json(AppTcbEvaluation { app_id: app_id.to_string(), update: TcbUpdate::Early, instances }))
}

async fn instance(api: &Api, cvm: CvmRow) -> InstanceTcbEvaluation {
    let (evaluated, error) = match evaluate(api, &cvm).await {
        Ok(evaluated) => (Some(evaluated), None),
        Err(reason) => (None, Some(reason)),
    };
    let status = evaluated.as_ref().map(|quote| quote.tcb_status);
    let hex_of = |member: fn(&VerifiedQuote) -> String| evaluated.as_ref().map(member).unwrap_or_default();
    InstanceTcbEvaluation {
        ppid: hex_of(|quote| hex::encode(quote.ppid)),
        device_id: hex_of(|quote| hex::encode(quote.device_id)),
        vm_uuid: Some(cvm.vm_uuid),
        name: Some(cvm.name),
        instance_id: cvm.instance_id,
        status: Some(cvm.status.as_str().to_owned()),
        image_version: Some(cvm.os_image_name),
        evaluation_update: TcbUpdate::Early,
        evaluation_ok: status.map(|status| status == TcbStatus::UpToDate),
        evaluation_status: status.map(|status| status.to_string()),
        error,
    }
}

/// The CVM's quote, of evidence that holds with the data that counts, verified with early data.
async fn evaluate(api: &Api, cvm: &CvmRow) -> Result<VerifiedQuote, String> {
    let presented = presented(api, cvm, &api.evidence_reads).await?;
    if presented.quote.is_none() {
        return Err(presented.verdict().reasons.join("; "));
    }
    let bytes = presented.quote_bytes();
    let key = api.verifier.collateral_key(bytes).map_err(|error| error.to_string())?;
    api.intake.may_ask_early(api.clock.now_ms())?;
    let collateral = api.collateral.early(&key).await.map_err(|error| {
        tracing::warn!(%key, error = &error as &dyn std::error::Error, "no early data about a platform");
        "the vendor's collateral cannot be had now".to_owned()
    })?;
    api.verifier.quote_with(bytes, &collateral, api.clock.now()).map_err(|error| error.to_string())
}
