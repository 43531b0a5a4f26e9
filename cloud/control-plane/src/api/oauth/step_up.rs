//! `POST /auth/step-up`: a person shows again that it is that person, for what a stolen token must not do.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use cloister_management_api::{PlainError, StepUpRequest, SteppedUp};

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::guard::RequestId;
use crate::api::input::Body;
use crate::api::people::{Refusal, Target, presented, take};
use crate::api::responses::Authenticated;
use crate::api::view::time;
use crate::store::Caller;

/// How long it counts.
const STEP_UP_MS: i64 = 5 * 60 * 1000;

/// What to do, for whoever did not.
const NEEDED: &str = "This needs a code of your authenticator: send it to POST /api/v1/auth/step-up, then repeat the \
                      request within five minutes";

/// The same for what everybody may do who has no second factor, as the holder of an API key may: what outlives the hour of
/// an access token.
pub(crate) async fn unless_without_second_factor(api: &Api, caller: &Caller) -> ApiResult<()> {
    match required(api, caller).await {
        Err(error) if error.status() == StatusCode::FORBIDDEN => Ok(()),
        other => other,
    }
}

/// Refuses the token of a person that was not accompanied by a code a short time ago. API keys are not asked: they
/// belong to machines, and who makes them decides what they may.
pub(crate) async fn required(api: &Api, caller: &Caller) -> ApiResult<()> {
    if caller.oauth_client.is_none() {
        return Ok(());
    }
    let person = api.store.person(caller.user_id).await?;
    if person.is_none_or(|person| person.has_second_factor == 0) {
        return Err(ApiError::forbidden(
            "This needs a second factor, which your account has not; set one up on the page /account",
        ));
    }
    let now_ms = api.clock.now_ms();
    if caller.stepped_up_at_ms.is_some_and(|at_ms| (0..STEP_UP_MS).contains(&(now_ms - at_ms))) {
        return Ok(());
    }
    Err(ApiError::plain(StatusCode::PRECONDITION_REQUIRED, NEEDED))
}

/// Step up
///
/// With a code of the authenticator, or a backup code, the token of this request may do for five minutes what a stolen
/// one must not: reveal secrets of webhooks, make API keys or give them more time, let devices in, and make users and
/// links for passwords. Only tokens of people need it. Renewing the token ends it.
#[utoipa::path(
    post, path = "/auth/step-up", tag = "Account", operation_id = "step_up",
    request_body(content = StepUpRequest, example = json!({"totp_code": "287082"})),
    responses(
        (status = 200, description = "Until when it counts", body = SteppedUp),
        (status = 400, description = "The credential is an API key, which needs none", body = PlainError),
        (status = 403, description = "The account has no second factor, or the code is wrong", body = PlainError),
        (status = 429, description = "Too many codes were wrong; repeat the request after `Retry-After`", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn step_up(
    State(api): State<Api>,
    Auth(caller): Auth,
    Extension(RequestId(request_id)): Extension<RequestId>,
    Body(request): Body<StepUpRequest>,
) -> ApiResult<Json<SteppedUp>> {
    if caller.oauth_client.is_none() {
        let words = "API keys need no step-up; it is for tokens that applications have from people";
        return Err(ApiError::plain(StatusCode::BAD_REQUEST, words));
    }
    let wrong = || ApiError::forbidden("The code is wrong, too old, or was used before");
    let person = api.store.person(caller.user_id).await?.ok_or_else(wrong)?;
    let target = Target::code(person.id);
    target.take(&api).await?.map_err(|refusal| match refusal {
        Refusal::Wait(wait_s) => {
            let error = ApiError::plain(StatusCode::TOO_MANY_REQUESTS, "Too many codes were wrong; wait");
            error.retry_after(u32::try_from(wait_s).unwrap_or(u32::MAX))
        }
        Refusal::Wrong | Refusal::Busy => wrong(),
    })?;
    let presented = match presented(&api, &person, &request.totp_code).await? {
        Ok(Some(presented)) => Some(presented),
        Ok(None) => {
            return Err(ApiError::forbidden(
                "Your account has no second factor; set one up on the page /account",
            ));
        }
        Err(_) => None,
    };
    let now_ms = api.clock.now_ms();
    if let Some(presented) = presented {
        let mut change = api.store.change().await?;
        if take(&mut change, person.id, Some(presented)).await? {
            target.was_right(&mut change).await?;
            change.step_up(caller.api_key_id, now_ms).await?;
            change.commit().await?;
            return Ok(Json(SteppedUp { until: time(now_ms + STEP_UP_MS) }));
        }
    }
    target.was_wrong(&api, Some(person.id), Some(request_id.to_string())).await?;
    Err(wrong())
}
