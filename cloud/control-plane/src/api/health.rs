//! `/healthz`, `/readyz` and `/errors`

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_management_api::ErrorCode;
use serde_json::{Value, json};

use super::Api;
use super::error::{ApiError, ApiResult};

/// The process answers.
pub(crate) async fn healthz() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// The process can do its work: the database answers and no shutdown has begun.
pub(crate) async fn readyz(State(api): State<Api>) -> ApiResult<Json<Value>> {
    let unready = |why| ApiError::plain(StatusCode::SERVICE_UNAVAILABLE, why);
    if api.stop.is_cancelled() {
        return Err(unready("shutting down"));
    }
    match api.store.ping().await {
        Ok(()) => Ok(Json(json!({"status": "ready"}))),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "not ready");
            Err(unready("the database does not answer"))
        }
    }
}

/// What a code of the catalogue means; coded failures link here.
pub(crate) async fn error_page(Path(code): Path<String>) -> ApiResult<Json<Value>> {
    let known = ErrorCode::ALL.iter().find(|known| known.as_str() == code);
    let code = known.ok_or_else(|| ApiError::not_found("Error code"))?;
    Ok(Json(json!({
        "error_code": code.as_str(),
        "status": code.status(),
        "meaning": code.title(),
        "likely_causes": code.cause(),
        "what_to_do": code.remedy(),
    })))
}
