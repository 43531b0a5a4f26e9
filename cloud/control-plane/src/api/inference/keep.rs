//! `POST /internal/inference/consult/keep`: requests that are still under way.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use cloister_management_api::WorkspaceId;
use serde::{Deserialize, Serialize};

use super::{check_name, fault, read};
use crate::api::Api;
use crate::api::error::ApiResult;

/// Most requests of one call.
const MAX_REQUESTS: usize = 1000;

#[derive(Debug, Deserialize)]
pub(super) struct UnderWay {
    requests: Vec<Lasting>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lasting {
    request_id: String,
    /// Who pays, as the leave said.
    #[serde(default)]
    user_id: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Kept {
    /// For how many something is set aside.
    kept: usize,
}

/// What is set aside for these requests stays for another hour.
pub(super) async fn keep(State(api): State<Api>, body: Bytes) -> ApiResult<Json<Kept>> {
    let UnderWay { requests } = read(&body)?;
    if requests.len() > MAX_REQUESTS {
        return fault("requests", "Input should have at most 1000 entries");
    }
    let (now_ms, mut kept) = (api.clock.now_ms(), 0);
    let mut change = api.store.upkeep().await?;
    for request in &requests {
        check_name("requestId", Some(&request.request_id))?;
        // A user that is no workspace has nothing set aside.
        let user = request.user_id.as_ref().and_then(|user| user.parse::<WorkspaceId>().ok());
        if let Some(WorkspaceId(workspace_id)) = user
            && change.renew(workspace_id, &request.request_id, now_ms).await?
        {
            kept += 1;
        }
    }
    change.commit().await?;
    Ok(Json(Kept { kept }))
}
