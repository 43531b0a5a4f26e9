//! The answer 465: what has to be allowed, and how to go on.

use cloister_management_api::ErrorCode;
use serde_json::{Value, json};

use super::matter::{Matter, status_json};
use super::owners::explain;
use crate::api::Api;
use crate::api::changes::request_error;
use crate::api::error::{ApiError, ApiResult, RETRY_AFTER_S};
use crate::api::view::time;
use crate::governance::{
    CommitUrls, Governance, Preparation, PrepareError, PreparedRequest, Standing, Tokens, Waiting, prepare_in,
};
use crate::operations::RequestError;
use crate::store::{Caller, PreparedKind};

/// Keeps a change until it is allowed; the answer to who asked for it.
pub(super) async fn prepare(
    api: &Api,
    caller: &Caller,
    matter: &Matter,
    standing: Standing,
    request: &PreparedRequest,
) -> ApiResult<ApiError> {
    let preparation = Preparation {
        cvm: &matter.cvm,
        request,
        governance: &matter.governance,
        compose_hash: matter.question.compose_hash,
        device_id: device(matter)?,
        standing,
        caller,
    };
    let mut change = api.store.change().await?;
    let waiting = prepare_in(&mut change, Tokens(&api.log_url_key), &preparation, api.clock.now_ms()).await;
    let waiting = waiting.map_err(|error| match error {
        PrepareError::Gone => request_error(RequestError::NotFound),
        PrepareError::TooMany(_) => ApiError::explained(ErrorCode::QuotaExceeded, error.to_string()),
        PrepareError::Store(error) => error.into(),
        PrepareError::Emit(error) => ApiError::internal(&error),
        PrepareError::Json(error) => ApiError::internal(&error),
    })?;
    change.commit().await?;
    explain(api, matter, with_token(api, matter, standing, request.kind(), waiting)).await
}

/// The device that has to be allowed. Owners without a contract do not decide about devices.
fn device(matter: &Matter) -> ApiResult<Option<[u8; 32]>> {
    match (matter.question.device_id, &matter.governance) {
        (None, Governance::Contract(_)) => Err(unknown_device()),
        (device_id, _) => Ok(device_id),
    }
}

/// The owner of a contract can only allow a device that they are told.
fn unknown_device() -> ApiError {
    let text = "The node has not proved yet which device it is, so that nobody can allow it; try again when its \
                evidence was verified";
    ApiError::plain(axum::http::StatusCode::SERVICE_UNAVAILABLE, text).retry_after(RETRY_AFTER_S)
}

fn with_token(
    api: &Api,
    matter: &Matter,
    standing: Standing,
    kind: PreparedKind,
    waiting: Waiting,
) -> ApiError {
    let urls = CommitUrls::new(&api.public_url, kind, matter.cvm.vm_uuid, waiting.token);
    let message = if Matter::is_allowed(standing) {
        "the change is allowed and only prepared; commit it to have it carried out".to_owned()
    } else {
        format!("{}; the change waits for that, and nothing was changed", matter.missing_in_words(standing))
    };
    let mut error = facts(api, matter, message)
        .about("commit_token", waiting.token.to_string())
        .about("commit_url", urls.page.as_str())
        .about("api_commit_url", urls.api.as_str())
        .about("onchain_status", status_json(standing));
    for text in matter.suggestions(standing) {
        error = error.suggest(text);
    }
    let until = time(waiting.expires_at_ms);
    error
        .suggest(format!("Then commit until {until}: open commit_url, or POST to api_commit_url"))
        .link(urls.page, "Commit the change")
}

/// What is missing for a change that is not kept.
pub(super) async fn without_token(api: &Api, matter: &Matter, standing: Standing) -> ApiResult<ApiError> {
    let message = matter.missing_in_words(standing);
    let error = facts(api, matter, message).about("onchain_status", status_json(standing));
    explain(api, matter, error).await
}

fn facts(api: &Api, matter: &Matter, message: String) -> ApiError {
    let kms = matter.cvm.kms_id.and_then(|id| api.kmses.get(id)).map(|kms| kms.info());
    ApiError::explained(ErrorCode::HashRegistrationRequired, message)
        .about("compose_hash", matter.question.compose_hash.to_string())
        .about("app_id", matter.cvm.app_id.to_string())
        .about("device_id", matter.question.device_id.map(hex::encode).unwrap_or_default())
        .about("kms_info", kms.map_or(Value::Null, |info| json!(info)))
}
