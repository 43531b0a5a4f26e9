//! `POST /oauth/revoke` (RFC 7009)

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use cloister_management_api::{OauthError, OauthRevokeRequest};

use super::token::{Refused, end};
use crate::api::Api;
use crate::api::auth::hash_key;
use crate::api::error::{ApiError, ApiResult};
use crate::api::guard::RequestId;
use crate::api::input::FormOrBody;

/// End what an application may do
///
/// With its access token or its refresh token; both work no longer. Whether there was such a token is not told.
#[utoipa::path(
    post, path = "/oauth/revoke", tag = "Account", operation_id = "revoke_oauth_token",
    request_body(content((OauthRevokeRequest = "application/x-www-form-urlencoded"), (OauthRevokeRequest = "application/json"))),
    security(()),
    responses(
        (status = 200, description = "The token does not work"),
        (status = 400, description = "The request does not fit its schema", body = OauthError),
    ),
)]
pub(crate) async fn revoke(
    State(api): State<Api>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    request: Result<FormOrBody<OauthRevokeRequest>, ApiError>,
) -> ApiResult<Response> {
    let request = match request {
        Ok(FormOrBody(request)) => request,
        Err(error) if error.status() == StatusCode::UNPROCESSABLE_ENTITY => {
            return Ok(Refused::request("token and client_id are needed, each once").into_response());
        }
        Err(error) => return Err(error),
    };
    if let Some(key) = api.store.oauth_key_of_token(&hash_key(&request.token)).await?
        && key.oauth_client == request.client_id
    {
        end(&api, key.id, &request_id).await?;
    }
    Ok(StatusCode::OK.into_response())
}
