//! `POST /auth/device/code`, `/auth/device/token` and `/auth/device/decision`, `GET /auth/device/{user_code}`: a device
//! without a browser is let in by a person at another one (RFC 8628).
//!
//! The device's API key is made of its code, which only the device has: what is kept beforehand is the key's hash, and
//! whoever approves makes that a key. A device whose answer got lost asks again.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use cloister_management_api::{
    DEVICE_CODE_GRANT, DeviceCode, DeviceCodeRequest, DeviceDecision, DeviceDecisionRequest, DeviceRefusal,
    DeviceRefusalDetail, DeviceToken, DeviceTokenRequest, KeyScope, Parsed, PlainError, WaitingDevice,
};
use serde::Serialize;
use zeroize::Zeroizing;

use super::device_codes::{key_of, typed, user_code};
use super::tokens::{allowed, may_make};
use crate::api::Api;
use crate::api::auth::{Auth, hash_key};
use crate::api::error::{ApiError, ApiResult};
use crate::api::guard::keep_body;
use crate::api::input::{Body, FormOrBody};
use crate::api::negotiate::Version;
use crate::api::oauth::step_up;
use crate::api::rate::Left;
use crate::api::responses::Authenticated;
use crate::api::view::time;
use crate::clock::NoRandomness;
use crate::store::{NewApiKey, NewDeviceLogin};

/// Seconds that a device waits for somebody.
const WAITS_S: u32 = 600;
/// Seconds between two questions of a device.
const INTERVAL_S: u32 = 5;
/// Half of it: networks make answers late and questions early.
pub(crate) const SOONEST_QUESTION: Duration = Duration::from_millis(2_500);
/// Devices that begin to wait, whoever they are; so 600 wait at most.
pub(crate) const LOGINS_PER_MINUTE: Option<NonZeroU32> = NonZeroU32::new(60);
/// Codes that a user may try, with keys and on the page: whoever guesses one could let somebody else's device in
/// (RFC 8628 section 5.1).
pub(crate) const LOOKS_PER_MINUTE: Option<NonZeroU32> = NonZeroU32::new(10);
/// How long the key of a device works.
pub(in crate::api) const KEY_DAYS: u32 = 90;
const KEY_S: u32 = KEY_DAYS * 24 * 60 * 60;
const MAX_CLIENT: usize = 100;

/// Begin to wait as a device
///
/// A person goes to `verification_uri_complete` and logs in, or runs `cloister tokens approve`, and lets the device in. The body is
/// JSON or a form.
#[utoipa::path(
    post, path = "/auth/device/code", tag = "Account", operation_id = "begin_device_login",
    request_body(content((DeviceCodeRequest = "application/json"), (DeviceCodeRequest = "application/x-www-form-urlencoded"))),
    security(()),
    responses(
        (status = 200, description = "The codes", body = DeviceCode),
        (status = 400, description = "The request does not fit its schema", body = DeviceRefusal),
        (status = 429, description = "Too many devices begin to wait; repeat the request after `Retry-After`", body = PlainError),
    ),
)]
pub(crate) async fn code(
    State(api): State<Api>,
    request: Result<FormOrBody<DeviceCodeRequest>, ApiError>,
) -> ApiResult<Response> {
    let Some(request) = read(request)? else {
        return Ok(Refusal::InvalidRequest("client_id is missing").into_response());
    };
    let length = request.client_id.chars().count();
    if !(1..=MAX_CLIENT).contains(&length) || request.client_id.contains(char::is_control) {
        let words = "client_id has to be 1 to 100 characters, without control characters";
        return Ok(Refusal::InvalidRequest(words).into_response());
    }
    api.device_logins
        .take(&())
        .map_err(|left| left.error("Too many devices begin to wait; try again later"))?;
    let internal = |error: NoRandomness| ApiError::internal(&error);
    let device_code = Zeroizing::new(hex::encode(api.random.bytes::<32>().map_err(internal)?));
    let user_code = user_code(api.random).map_err(internal)?;
    let (key, key_prefix) = key_of(&device_code)?;
    let now_ms = api.clock.now_ms();
    let new = NewDeviceLogin {
        device_code_hash: &hash_key(&device_code),
        user_code: &user_code,
        client: &request.client_id,
        scope: asked_scope(request.scope.as_deref()),
        key_hash: &hash_key(&key),
        key_prefix: &key_prefix,
        expires_at_ms: now_ms + i64::from(WAITS_S) * 1000,
    };
    let mut change = api.store.upkeep().await?;
    change.insert_device_login(new, now_ms).await?;
    change.commit().await?;
    let page = |query: &str| -> String {
        let mut url = api.public_url.clone();
        url.set_path("/device");
        url.set_query(Some(query).filter(|query| !query.is_empty()));
        url.into()
    };
    Ok(secret(DeviceCode {
        device_code: device_code.to_string(),
        verification_uri: page(""),
        verification_uri_complete: page(&format!("user_code={user_code}")),
        user_code,
        expires_in: WAITS_S,
        interval: INTERVAL_S,
    }))
}

/// What OAuth's own answers say of a body that is not what it should be; `None`. Other failures stay.
fn read<T>(request: Result<FormOrBody<T>, ApiError>) -> ApiResult<Option<T>> {
    match request {
        Ok(FormOrBody(request)) => Ok(Some(request)),
        Err(error) if error.status() == StatusCode::UNPROCESSABLE_ENTITY => Ok(None),
        Err(error) => Err(error),
    }
}

/// An answer with something secret in it (RFC 6749 section 5.1).
fn secret(body: impl Serialize) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

/// Ask whether a device was let in
///
/// The answer is an API key of whoever approved, which works for 90 days. Until somebody decides the answer is 400 with
/// `authorization_pending`.
#[utoipa::path(
    post, path = "/auth/device/token", tag = "Account", operation_id = "end_device_login",
    request_body(content((DeviceTokenRequest = "application/json"), (DeviceTokenRequest = "application/x-www-form-urlencoded"))),
    security(()),
    responses(
        (status = 200, description = "The device's API key", body = DeviceToken),
        (status = 400, description = "Not, or not yet", body = DeviceRefusal),
    ),
)]
pub(crate) async fn token(
    State(api): State<Api>,
    request: Result<FormOrBody<DeviceTokenRequest>, ApiError>,
) -> ApiResult<Response> {
    let Some(request) = read(request)? else {
        return Ok(Refusal::InvalidRequest("device_code and grant_type are needed").into_response());
    };
    if request.grant_type != DEVICE_CODE_GRANT {
        return Ok(Refusal::UnsupportedGrantType.into_response());
    }
    let now_ms = api.clock.now_ms();
    let hash = hash_key(&request.device_code);
    let Some(device) = api.store.asking_device(&hash, now_ms).await? else {
        return Ok(Refusal::ExpiredToken.into_response());
    };
    match device.decision.as_deref() {
        Some("approved") => {
            // Its key may have been ended since.
            let Some(holder) = api.store.caller(&device.key_hash, now_ms).await? else {
                return Ok(Refusal::AccessDenied.into_response());
            };
            let (access_token, _) = key_of(&request.device_code)?;
            let token_type = "bearer".to_owned();
            Ok(secret(DeviceToken { access_token, token_type, expires_in: KEY_S, scope: holder.scope }))
        }
        Some(_) => Ok(Refusal::AccessDenied.into_response()),
        None => Ok(match api.device_questions.take(&hash) {
            Ok(_) => Refusal::AuthorizationPending,
            Err(_) => Refusal::SlowDown,
        }
        .into_response()),
    }
}

/// Look at a device that waits
#[utoipa::path(
    get, path = "/auth/device/{user_code}", tag = "Account", operation_id = "get_waiting_device",
    params(("user_code" = String, Path, description = "What the device shows")),
    responses(
        (status = 200, description = "The device", body = WaitingDevice),
        (status = 404, description = "No device that waits shows this", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn waiting(
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(text): Path<String>,
) -> ApiResult<Json<WaitingDevice>> {
    may_look(&api, caller.user_id).map_err(too_often)?;
    let user_code = typed(&text);
    let device = api.store.waiting_device(&user_code, api.clock.now_ms()).await?.ok_or_else(missing)?;
    Ok(Json(WaitingDevice {
        user_code,
        client_id: device.client,
        scope: device.scope,
        expires_at: time(device.expires_at_ms),
    }))
}

/// Let a device in, or not
///
/// Approved, it gets an API key of the workspace of this request, for 90 days.
#[utoipa::path(
    post, path = "/auth/device/decision", tag = "Account", operation_id = "decide_device_login",
    request_body(content = DeviceDecisionRequest, example = json!({"user_code": "BCDF-GHJK", "approve": true})),
    responses(
        (status = 200, description = "What was decided", body = DeviceDecision),
        (status = 400, description = "The workspace has too many keys (ERR-05-001)", body = cloister_management_api::ErrorBody),
        (status = 403, description = "A scope beyond that of the key of this request", body = PlainError),
        (status = 404, description = "No device that waits shows this", body = PlainError),
        (status = 428, description = "A person's token needs a step-up: `POST /auth/step-up`", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn decide(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Body(request): Body<DeviceDecisionRequest>,
) -> ApiResult<Json<DeviceDecision>> {
    if request.approve {
        step_up::unless_without_second_factor(&api, &caller).await?;
    }
    may_look(&api, caller.user_id).map_err(too_often)?;
    let user_code = typed(&request.user_code);
    let device = api.store.waiting_device(&user_code, api.clock.now_ms()).await?.ok_or_else(missing)?;
    let usual = if KeyScope::Deploy.includes(device.scope) { device.scope } else { KeyScope::Deploy };
    let scope = allowed(&caller, request.scope.map_or(usual, |Parsed(wanted)| wanted))?;
    if request.approve {
        may_make(&api, caller.workspace_id).await?;
    }
    let version = version.as_str();
    let holder = Holder {
        user_id: caller.user_id,
        workspace_id: caller.workspace_id,
        scope,
        default_version: version,
    };
    if !settle(&api, &user_code, request.approve.then_some(holder)).await? {
        return Err(missing());
    }
    let scope = request.approve.then_some(scope);
    Ok(Json(DeviceDecision { client_id: device.client, approved: request.approve, scope }))
}

/// Whose key a device gets.
#[derive(Debug, Clone, Copy)]
pub(in crate::api) struct Holder<'a> {
    pub(in crate::api) user_id: i64,
    pub(in crate::api) workspace_id: i64,
    pub(in crate::api) scope: KeyScope,
    pub(in crate::api) default_version: &'a str,
}

/// Lets the device that shows a code in, or refuses it; whether one still waited that shows it.
pub(in crate::api) async fn settle(
    api: &Api,
    user_code: &str,
    holder: Option<Holder<'_>>,
) -> ApiResult<bool> {
    let now_ms = api.clock.now_ms();
    let mut change = api.store.change().await?;
    let decision = if holder.is_some() { "approved" } else { "denied" };
    let Some(device) = change.decide_device(user_code, decision, now_ms).await? else { return Ok(false) };
    if let Some(Holder { user_id, workspace_id, scope, default_version }) = holder {
        let new = NewApiKey {
            user_id,
            workspace_id,
            name: device.client,
            key_hash: device.key_hash,
            key_prefix: device.key_prefix,
            scope,
            default_version: default_version.to_owned(),
            expires_at_ms: Some(now_ms + i64::from(KEY_S) * 1000),
        };
        change.insert_api_key(&new, now_ms).await?;
    }
    change.commit().await?;
    Ok(true)
}

/// What a device asks for that does not say it in our words.
fn asked_scope(text: Option<&str>) -> KeyScope {
    text.and_then(|text| text.parse().ok()).unwrap_or(KeyScope::Deploy)
}

/// Counts that a user tries a code.
pub(in crate::api) fn may_look(api: &Api, user_id: i64) -> Result<(), Left> {
    api.device_looks.take(&user_id).map(drop)
}

fn too_often(left: Left) -> ApiError {
    left.error("You try too many codes; try again later")
}

fn missing() -> ApiError {
    ApiError::plain(
        StatusCode::NOT_FOUND,
        "No device that waits shows this code; it may have waited too long, or somebody decided already",
    )
}

/// Why a device gets nothing, or not yet (RFC 8628 section 3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    AuthorizationPending,
    SlowDown,
    ExpiredToken,
    AccessDenied,
    UnsupportedGrantType,
    /// What is wrong with it.
    InvalidRequest(&'static str),
}

impl Refusal {
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::AuthorizationPending => ("authorization_pending", "Nobody has decided yet; ask again"),
            Self::SlowDown => ("slow_down", "Ask less often: every five seconds"),
            Self::ExpiredToken => ("expired_token", "The code is unknown or waited too long; begin anew"),
            Self::AccessDenied => ("access_denied", "Somebody refused to let the device in"),
            Self::InvalidRequest(words) => ("invalid_request", words),
            Self::UnsupportedGrantType => (
                "unsupported_grant_type",
                "grant_type has to be urn:ietf:params:oauth:grant-type:device_code",
            ),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (error, error_description) = self.words();
        let (error, error_description) = (error.to_owned(), error_description.to_owned());
        let detail =
            DeviceRefusalDetail { error: error.clone(), error_description: error_description.clone() };
        let body = Json(DeviceRefusal { error, error_description, detail });
        let mut response = (StatusCode::BAD_REQUEST, body).into_response();
        keep_body(&mut response);
        response
    }
}
