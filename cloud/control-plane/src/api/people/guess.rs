//! Guesses at passwords and codes: counted before anything is compared, so that many at once are worth no more.

use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use zeroize::Zeroizing;

use super::form::From;
use super::markup::Page;
use super::session::recorded;
use crate::api::Api;
use crate::api::auth::hash_key;
use crate::api::error::{ApiError, ApiResult};
use crate::people::{PasswordError, Presented};
use crate::store::{Change, PersonRow, StoreError};

/// Why somebody is told nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is not right; nobody is told what of it.
    Wrong,
    /// Too many guesses; the next one is allowed after so many seconds.
    Wait(i64),
    /// Too many passwords are being checked.
    Busy,
}

impl Refusal {
    /// The page again, with what to do.
    pub(super) fn page(self, page: Page, wrong: &str) -> Response {
        let (status, words) = match self {
            Self::Wrong => (StatusCode::FORBIDDEN, wrong.to_owned()),
            Self::Wait(wait_s) => {
                let words =
                    format!("Too many attempts were wrong. The next one is possible in {wait_s} seconds.");
                (StatusCode::TOO_MANY_REQUESTS, words)
            }
            Self::Busy => {
                let words = "Too many people log in at this moment. Try again in a few seconds.";
                (StatusCode::SERVICE_UNAVAILABLE, words.to_owned())
            }
        };
        let mut response = page.refused(status, words).into_response();
        let wait_s = match self {
            Self::Wrong => return response,
            Self::Wait(wait_s) => wait_s,
            Self::Busy => i64::from(crate::api::error::RETRY_AFTER_S),
        };
        response.headers_mut().insert(RETRY_AFTER, wait_s.into());
        response
    }
}

/// The refusal of an address from which too many guesses come.
pub(super) fn too_often(api: &Api, From(address): From) -> Option<Refusal> {
    let left = api.guesses.take(&address?).err()?;
    Some(Refusal::Wait(left.retry_after_s().into()))
}

/// What is guessed at.
#[derive(Debug, Clone)]
pub(super) struct Target(String);

impl Target {
    /// The account with a login name, whether or not there is one.
    pub(super) fn login(username: &str) -> Self {
        Self(hash_key(&format!("login {username}")))
    }

    /// The second factor of a user.
    pub(super) fn code(user_id: i64) -> Self {
        Self(hash_key(&format!("code {user_id}")))
    }

    /// Counts a guess.
    pub(super) async fn take(&self, api: &Api) -> ApiResult<Result<(), Refusal>> {
        let now_ms = api.clock.now_ms();
        let mut change = api.store.upkeep().await?;
        let taken = change.take_guess(&self.0, now_ms).await?;
        change.commit().await?;
        // Rounded up: who waits for less is refused again.
        Ok(taken.map_err(|not_before_ms| Refusal::Wait((not_before_ms - now_ms + 999) / 1000)))
    }

    /// Notes that it was wrong. If there is such a user, that leaves a record; it takes as long if there is none.
    pub(super) async fn was_wrong(
        &self,
        api: &Api,
        user_id: Option<i64>,
        request_id: Option<String>,
    ) -> ApiResult<()> {
        let now_ms = api.clock.now_ms();
        let note = async {
            let mut change = api.store.change().await?;
            change.note_wrong_guess(&self.0, now_ms).await?;
            change.commit().await
        };
        if let Some(id) = user_id {
            recorded(api, crate::audit::stranger(), "refuse_log_in", id, request_id, note).await?;
        } else {
            note.await?;
        }
        Ok(())
    }

    /// Forgets what was wrong before.
    pub(super) async fn was_right(&self, change: &mut Change) -> Result<(), StoreError> {
        change.forget_guesses(&self.0).await
    }
}

/// Whether a password is that of a user. Of a user without one, and of nobody, none is.
pub(super) async fn is_password(
    api: &Api,
    user_id: Option<i64>,
    password: Zeroizing<String>,
) -> ApiResult<Result<bool, Refusal>> {
    let phc = match user_id {
        Some(id) => api.store.password(id).await?,
        None => None,
    };
    match api.people.is_password(password, phc).await {
        Ok(is_right) => Ok(Ok(is_right)),
        Err(PasswordError::Busy) => Ok(Err(Refusal::Busy)),
        Err(error) => Err(ApiError::internal(&error)),
    }
}

/// What of the second factor of a user somebody typed: `Ok(None)` where the user has none, `Err` where it cannot be right.
pub(super) async fn presented(
    api: &Api,
    row: &PersonRow,
    typed: &str,
) -> ApiResult<Result<Option<Presented>, Refusal>> {
    let factor = api.store.second_factor(row.id).await?.filter(|factor| factor.confirmed_at_ms.is_some());
    let Some(factor) = factor else { return Ok(Ok(None)) };
    let presented = api.people.presented(row.id, &factor.sealed_secret, typed, api.clock.now_ms());
    Ok(presented?.map(Some).ok_or(Refusal::Wrong))
}

/// Uses it up, in the change that it is presented for; whether it was not used before.
pub(super) async fn take(
    change: &mut Change,
    user_id: i64,
    presented: Option<Presented>,
) -> Result<bool, StoreError> {
    match presented {
        None => Ok(true),
        Some(Presented::Step(step)) => change.take_step(user_id, step).await,
        Some(Presented::Backup(hash)) => change.take_backup_code(user_id, &hash).await,
    }
}
