//! `POST /apps/{app_id}/rollouts/{rollout_id}/pause`, `/resume` and `/abort`

use axum::Json;
use cloister_management_api::{AbortRolloutRequest, PlainError, Rollout};
use utoipa::IntoResponses;

use super::NamedRollout;
use crate::api::apps::own::RolloutPath;
use crate::api::error::ApiResult;
use crate::api::input::OptionalBody;
use crate::api::responses::Authenticated;
use crate::rollouts::RolloutEvent;

/// Failures of every operation that moves a rollout.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "describes responses, is never made")]
enum OnMove {
    /// It has ended, or is ending
    #[response(status = 400)]
    Over(PlainError),
    /// No such app or rollout in the workspace
    #[response(status = 404)]
    Missing(PlainError),
}

/// Pause a rollout
///
/// Nothing new begins; what was begun ends.
#[utoipa::path(
    post, path = "/apps/{app_id}/rollouts/{rollout_id}/pause", tag = "Apps", operation_id = "pause_rollout",
    params(RolloutPath),
    responses((status = 200, description = "The rollout", body = Rollout), OnMove, Authenticated),
)]
pub(crate) async fn pause(rollout: NamedRollout) -> ApiResult<Json<Rollout>> {
    rollout.steer(RolloutEvent::Pause, Some("paused")).await
}

/// Resume a rollout
///
/// It goes on where it stopped; CVMs that could not be changed are tried again.
#[utoipa::path(
    post, path = "/apps/{app_id}/rollouts/{rollout_id}/resume", tag = "Apps", operation_id = "resume_rollout",
    params(RolloutPath),
    responses((status = 200, description = "The rollout", body = Rollout), OnMove, Authenticated),
)]
pub(crate) async fn resume(rollout: NamedRollout) -> ApiResult<Json<Rollout>> {
    rollout.steer(RolloutEvent::Resume, None).await
}

/// End a rollout
///
/// Nothing new begins, and what was begun ends. CVMs keep what they have, or with `roll_back` those that were
/// changed go back one after the other.
#[utoipa::path(
    post, path = "/apps/{app_id}/rollouts/{rollout_id}/abort", tag = "Apps", operation_id = "abort_rollout",
    params(RolloutPath), request_body = Option<AbortRolloutRequest>,
    responses((status = 200, description = "The rollout", body = Rollout), OnMove, Authenticated),
)]
pub(crate) async fn abort(
    rollout: NamedRollout,
    OptionalBody(request): OptionalBody<AbortRolloutRequest>,
) -> ApiResult<Json<Rollout>> {
    let rolls_back = request.unwrap_or_default().roll_back;
    let event = if rolls_back { RolloutEvent::AbortAndRollBack } else { RolloutEvent::Abort };
    rollout.steer(event, Some("ended")).await
}
