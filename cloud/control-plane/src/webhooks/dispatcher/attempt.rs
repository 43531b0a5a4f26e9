//! One attempt: the request is made, and what came of it is told.

use std::time::Duration;

use cloister_outbound::{Answer, Refused, SendError};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::lanes::Verdict;
use super::request::Composer;
use super::{Moment, Note, Shared};
use crate::store::{AttemptResult, TakenDelivery};
use crate::webhooks::schedule::{self, Ended, Next, TIMEOUT};

/// A request that is not answered by then makes way for others.
const SLOW: Duration = Duration::from_millis(500);
/// What the client is given beyond its own limit, before it is left alone.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether a name is unknown or leads inside is not told apart: it would say which names there are inside.
const NOT_PUBLIC: &str = "not sent: the URL's host must have addresses, and public ones only; check the name and \
     what is published about it";

/// An attempt that was made.
pub(super) struct Made {
    pub(super) result: AttemptResult,
    pub(super) verdict: Verdict,
}

impl Shared {
    /// Makes an attempt.
    pub(super) async fn attempt(&self, taken: &TakenDelivery, note: impl AsyncFnOnce(Note)) -> Made {
        let began = Instant::now();
        self.reached(Moment::Taken);
        let (ended, error) = self.ask(taken, note).await;
        self.reached(Moment::Answered);
        let ended_at_ms = self.options.clock.now_ms();
        let next = schedule::after(taken.attempts, ended);
        let (status, due_at_ms) = match next {
            Next::Delivered => ("success", None),
            Next::Again(wait) => ("pending", Some(ended_at_ms.saturating_add(millis(wait)))),
            Next::GivenUp | Next::Gone => ("failed", None),
        };
        let is_delivered = next == Next::Delivered;
        debug!(webhook_id = taken.webhook_id, delivery = taken.id, ?next, "an attempt was made");
        let response_status = match ended {
            Ended::Answered { status, .. } => status.into(),
            Ended::Unanswered => 0,
        };
        let result = AttemptResult {
            delivery: taken.id,
            number: taken.number,
            ended_at_ms,
            outcome: if is_delivered { "success" } else { "failed" },
            status,
            due_at_ms,
            response_status,
            error_message: error,
            duration_ms: millis(began.elapsed()),
            gone: (next == Next::Gone).then_some(taken.webhook_id),
        };
        Made { result, verdict: if is_delivered { Verdict::Well } else { Verdict::Ill } }
    }

    /// Makes the request; how it ended, and what is said about it.
    async fn ask(&self, taken: &TakenDelivery, note: impl AsyncFnOnce(Note)) -> (Ended, String) {
        let options = &self.options;
        let composer = Composer {
            secrets: &options.secrets,
            token_key: &options.token_key,
            public_url: &options.public_url,
        };
        let request = match composer.request(taken, options.clock.now_ms()) {
            Ok(request) => request,
            Err(error) => {
                let webhook_id = taken.webhook_id;
                warn!(webhook_id, error = &error as &dyn std::error::Error, "no request can be made");
                return (Ended::Unanswered, error.to_string());
            }
        };
        let answer = options.post.post(&request.url, request.headers, request.body, TIMEOUT);
        let mut answer = std::pin::pin!(tokio::time::timeout(TIMEOUT + PATIENCE, answer));
        let answer = if let Ok(answer) = tokio::time::timeout(SLOW, &mut answer).await {
            answer
        } else {
            note(Note::IsSlow { webhook_id: taken.webhook_id, delivery: taken.id }).await;
            answer.await
        };
        match answer {
            Ok(Ok(Answer { status, retry_after, .. })) => {
                (Ended::Answered { status, retry_after }, in_words(status))
            }
            Ok(Err(SendError::Refused(Refused::Address | Refused::Unknown))) => {
                (Ended::Unanswered, NOT_PUBLIC.to_owned())
            }
            Ok(Err(error)) => (Ended::Unanswered, error.to_string()),
            Err(_) => (Ended::Unanswered, "timed out".to_owned()),
        }
    }
}

/// What is said about an answer. Nothing of what the receiver wrote: it may be anything.
fn in_words(status: u16) -> String {
    match status {
        200..=299 => String::new(),
        300..=399 => format!(
            "the receiver answered {status}; redirects are not followed: give the webhook the URL that it leads to"
        ),
        410 => "the receiver answered 410; the webhook was disabled: enable it when it is to be told again"
            .to_owned(),
        _ => format!("the receiver answered {status}"),
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
