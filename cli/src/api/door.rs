//! A server before there is a key for it: a device asks to be let in (RFC 8628).

use std::time::Duration;

use cloister_management_api::{DEVICE_CODE_GRANT, DeviceCode, DeviceRefusal, DeviceToken, KeyScope};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use super::client::{ANSWER_TIMEOUT, document_of, http_client, limited, unreachable};
use super::{BaseUrl, error_body};
use crate::failure::{Exit, Failure};

/// What a server says to a device that asks whether it was let in.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Somebody let it in; this is its key.
    Key(DeviceToken),
    /// Nobody has decided yet.
    NotYet,
    /// It asks too often.
    SlowDown,
    /// The server was not reached, or is busy.
    Silence,
}

/// A server without a key for it.
#[derive(Debug)]
pub(crate) struct Door {
    http: reqwest::Client,
    server: BaseUrl,
}

impl Door {
    /// Nothing is sent yet.
    pub(crate) fn new(server: BaseUrl) -> Result<Self, Failure> {
        Ok(Self { http: http_client(server.url())?, server })
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Response, reqwest::Error> {
        let url = self.server.join(&["auth", "device", path]);
        self.http.post(url).timeout(ANSWER_TIMEOUT).json(body).send().await
    }

    /// Begins to wait, under a name that the person sees who decides.
    pub(crate) async fn knock(&self, name: &str, scope: KeyScope) -> Result<DeviceCode, Failure> {
        let body = json!({ "client_id": name, "scope": scope });
        let answer = self.post("code", &body).await.map_err(|error| unreachable(&self.server, error))?;
        super::read(&document_of(&self.server, answer).await?)
    }

    /// Asks whether somebody has decided. Fails where nobody will any more.
    pub(crate) async fn ask(&self, device_code: &str) -> Result<Answer, Failure> {
        let body = json!({ "device_code": device_code, "grant_type": DEVICE_CODE_GRANT });
        let Ok(answer) = self.post("token", &body).await else { return Ok(Answer::Silence) };
        let status = answer.status();
        let Ok(bytes) = limited(answer).await else { return Ok(Answer::Silence) };
        if status.is_success() {
            let document = serde_json::from_slice(&bytes).unwrap_or_default();
            return Ok(Answer::Key(super::read(&document)?));
        }
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Ok(Answer::Silence);
        }
        let refusal = serde_json::from_slice::<DeviceRefusal>(&bytes);
        match refusal.as_ref().map(|refusal| refusal.error.as_str()) {
            Ok("authorization_pending") => Ok(Answer::NotYet),
            Ok("slow_down") => Ok(Answer::SlowDown),
            Ok("access_denied") => Err(Failure::new(Exit::Unauthorised, "somebody refused to let you in")),
            Ok("expired_token") => Err(expired()),
            _ => Err(error_body::failure(status, &bytes, None)),
        }
    }
}

/// Nobody decided in time.
pub(crate) fn expired() -> Failure {
    Failure::new(Exit::TimedOut, "nobody let you in before the code expired").hint("repeat the command")
}

/// Seconds between two questions, as the server wants them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace(Duration);

impl Pace {
    const SHORTEST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_mins(1);
    /// What a server adds that is asked too often (RFC 8628 section 3.5).
    const STEP: Duration = Duration::from_secs(5);

    /// As often as a server allows, within bounds.
    pub(crate) fn of(interval_s: u32) -> Self {
        Self(Duration::from_secs(interval_s.into()).clamp(Self::SHORTEST, Self::LONGEST))
    }

    /// Until the next question.
    pub(crate) const fn pause(self) -> Duration {
        self.0
    }

    /// After an answer.
    pub(crate) fn after(self, answer: &Answer) -> Self {
        let pause = match answer {
            Answer::Key(_) | Answer::NotYet => self.0,
            Answer::SlowDown => self.0 + Self::STEP,
            Answer::Silence => self.0 * 2,
        };
        Self(pause.min(Self::LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_come_as_often_as_the_server_wants_them() {
        assert_eq!(Pace::of(5).after(&Answer::NotYet), Pace::of(5));
        assert_eq!(Pace::of(5).after(&Answer::SlowDown), Pace::of(10));
        assert_eq!(Pace::of(5).after(&Answer::Silence), Pace::of(10));
        assert_eq!(Pace::of(0).pause(), Duration::from_secs(1));
        assert_eq!(Pace::of(u32::MAX).after(&Answer::SlowDown).pause(), Duration::from_mins(1));
    }
}
