//! When an attempt is repeated: the published schedule, as a function.

use std::time::Duration;

/// Limit of an attempt, everything together.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// Waits between the attempts.
const WAITS: [Duration; 3] = [Duration::from_mins(1), Duration::from_mins(10), Duration::from_hours(1)];
/// The longest wait that a receiver may ask for.
const LONGEST: Duration = Duration::from_hours(1);

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// With an answer.
    Answered {
        status: u16,
        /// How long the receiver asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// Without one.
    Unanswered,
}

/// What becomes of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The receiver has it.
    Delivered,
    /// It is tried again after a while.
    Again(Duration),
    /// It is given up.
    GivenUp,
    /// It is given up, and nothing is sent to the receiver any more: it said so.
    Gone,
}

/// What becomes of a delivery after an attempt, the `attempts`th one of it.
pub(super) fn after(attempts: i64, ended: Ended) -> Next {
    let wait = || usize::try_from(attempts - 1).ok().and_then(|index| WAITS.get(index)).copied();
    match ended {
        Ended::Answered { status: 200..=299, .. } => Next::Delivered,
        Ended::Answered { status: 410, .. } => Next::Gone,
        Ended::Answered { status: 429 | 503, retry_after } => wait().map_or(Next::GivenUp, |wait| {
            Next::Again(wait.max(retry_after.unwrap_or_default().min(LONGEST)))
        }),
        Ended::Answered { .. } | Ended::Unanswered => wait().map_or(Next::GivenUp, Next::Again),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn answered(status: u16) -> Ended {
        Ended::Answered { status, retry_after: None }
    }

    #[test]
    fn there_are_four_attempts_at_published_times() {
        for ended in [Ended::Unanswered, answered(500), answered(302), answered(404), answered(199)] {
            let all: Vec<_> = (1..=4).map(|attempts| after(attempts, ended)).collect();
            let minutes = |count| Next::Again(Duration::from_mins(count));
            assert_eq!(all, [minutes(1), minutes(10), minutes(60), Next::GivenUp], "{ended:?}");
        }
    }

    #[test]
    fn every_2xx_is_success_and_410_the_end() {
        for attempts in 1..=4 {
            assert!((200..300).all(|status| after(attempts, answered(status)) == Next::Delivered));
            assert_eq!(after(attempts, answered(410)), Next::Gone);
        }
    }

    #[test]
    fn a_receiver_may_ask_for_more_time_but_not_for_less_nor_for_ever() {
        let asked = |status, seconds| {
            let retry_after = Some(Duration::from_secs(seconds));
            after(1, Ended::Answered { status, retry_after })
        };
        let seconds = |count| Next::Again(Duration::from_secs(count));
        for status in [429, 503] {
            assert_eq!(asked(status, 5), seconds(60));
            assert_eq!(asked(status, 300), seconds(300));
            assert_eq!(asked(status, u64::MAX), seconds(3600));
        }
        assert_eq!(asked(500, 300), seconds(60), "others may not");
        let retry_after = Some(Duration::from_secs(5));
        assert_eq!(after(4, Ended::Answered { status: 503, retry_after }), Next::GivenUp);
    }
}
