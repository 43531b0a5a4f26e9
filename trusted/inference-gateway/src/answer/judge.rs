//! What an upstream's failure means: for the walk, for the route's health, and for the record.

use http::StatusCode;

use crate::format::UpstreamFault;
use crate::format::fault::{declares_quota, is_about_route, is_exhausted, is_quota, is_refusal, names_media};

/// What becomes of a request after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The next route is tried.
    Next,
    /// The failure is the client's answer: any other route would say the same.
    Answer,
}

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Judgement {
    /// For the walk.
    pub(super) then: Then,
    /// Whether the upstream is merely busy, so that it may be asked again soon.
    pub(super) is_busy: bool,
    /// Whether it counts against the route.
    pub(super) is_fault_of_route: bool,
    /// What is recorded.
    pub(super) recorded: u16,
}

/// Judges an answer with a status that is no success, by what the upstream says and what it was sent.
///
/// | Answer | The walk | The route |
/// |---|---|---|
/// | the operator's account is empty | goes on | at fault, where that is declared: words can repeat a prompt |
/// | a refusal that is declared: of a context's length, or by a policy | ends | not at fault |
/// | 401, 402, 408, 429, 5xx, or no error at all | goes on | at fault |
/// | 403, 404 | goes on | at fault, where it says nothing, or that it does not know the key or the model |
/// | the same about a picture that the request refers to | ends | not at fault |
/// | any other 4xx | ends | not at fault |
pub(super) fn judge(status: StatusCode, fault: &UpstreamFault, request: &[u8]) -> Judgement {
    let is_refused = is_refusal(fault);
    let quota = !is_refused && is_quota(fault);
    let is_busy = !quota
        && !is_refused
        && (status == StatusCode::TOO_MANY_REQUESTS || (status.is_server_error() && is_exhausted(fault)));
    let is_own_trouble = !status.is_client_error() || matches!(status.as_u16(), 401..=404 | 408 | 429);
    let (then, is_fault_of_route) = if quota {
        (Then::Next, declares_quota(fault) || is_own_trouble)
    } else if is_own_trouble && !is_refused && !names_media(fault, request) {
        (Then::Next, !matches!(status.as_u16(), 403 | 404) || is_about_route(fault))
    } else {
        (Then::Answer, false)
    };
    let recorded = match (quota, is_busy) {
        (true, _) => 402,
        (false, true) => 429,
        (false, false) => status.as_u16(),
    };
    Judgement { then, is_busy, is_fault_of_route, recorded }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] =
        br#"{"messages":[{"content":[{"image_url":{"url":"https://pictures.example/cat.png"}}]}]}"#;

    fn judged(status: u16, message: &str, kind: Option<&str>) -> (Then, bool, bool, u16) {
        let fault = UpstreamFault { message: message.to_owned(), kind: kind.map(str::to_owned), param: None };
        let judged = judge(StatusCode::from_u16(status).unwrap(), &fault, REQUEST);
        (judged.then, judged.is_busy, judged.is_fault_of_route, judged.recorded)
    }

    #[test]
    fn the_table() {
        for status in [401, 402, 403, 404, 408, 500, 502, 503, 504, 304, 307] {
            assert_eq!(judged(status, "", None), (Then::Next, false, true, status), "{status}");
        }
        assert_eq!(judged(429, "", None), (Then::Next, true, true, 429));
        for status in [400, 405, 409, 413, 415, 422] {
            assert_eq!(judged(status, "", None), (Then::Answer, false, false, status), "{status}");
        }
    }

    #[test]
    fn what_upstreams_say_counts() {
        let exhausted = judged(503, "all targets exhausted", None);
        assert_eq!(exhausted, (Then::Next, true, true, 429));
        for status in [400, 429, 403] {
            let (then, busy, _, recorded) = judged(status, "", Some("insufficient_quota"));
            assert_eq!((then, busy, recorded), (Then::Next, false, 402), "{status}");
        }
        // Words alone move the request on, but a prompt must not be able to shut a route.
        assert_eq!(judged(400, "You exceeded your current quota", None), (Then::Next, false, false, 402));
        for status in [400, 404, 500] {
            let fetched = judged(status, "could not fetch https://pictures.example/cat.png", None);
            assert_eq!(fetched, (Then::Answer, false, false, status), "{status}");
        }
        // A client can bring these about by what it says or refers to.
        for (kind, is_fault) in [(None, false), (Some("moderation"), false), (Some("model_not_found"), true)]
        {
            assert_eq!(judged(404, "no such prompt", kind), (Then::Next, false, is_fault, 404), "{kind:?}");
            assert_eq!(judged(403, "flagged", kind), (Then::Next, false, is_fault, 403), "{kind:?}");
        }
        assert_eq!(judged(500, "could not fetch https://other.example/", None).0, Then::Next);
        // No other upstream is asked for what one refused, whatever it calls that.
        for kind in ["context_length_exceeded", "content_filter", "content_policy_violation"] {
            for status in [400, 403, 404, 413, 422, 429, 500, 503] {
                // Words can repeat a prompt.
                let refused = judged(status, "you exceeded your current quota", Some(kind));
                assert_eq!(refused, (Then::Answer, false, false, status), "{status} {kind}");
            }
        }
    }
}
