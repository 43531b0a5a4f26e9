//! Which requests are told of, and which trace they belong to: whoever asks may name a trace, and does not choose
//! whether it is told.

use std::hash::{BuildHasher as _, RandomState};

use http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{Link, SpanKind, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample};

/// The header that names the trace of a request (W3C Trace Context).
const TRACEPARENT: &str = "traceparent";
/// Digits of its fields: the version, the trace, the span, the flags.
const FIELDS: [usize; 4] = [2, 32, 16, 2];

/// A share of the traces, by a hash of their ids under a secret of the process. By the id alone, clients could choose ids
/// that are always told, or never.
#[derive(Debug, Clone)]
pub(super) struct SecretShare {
    ratio: f64,
    secret: RandomState,
}

impl SecretShare {
    /// Of 0 to 1.
    pub(super) fn of(ratio: f64) -> Self {
        Self { ratio, secret: RandomState::new() }
    }

    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    fn has(&self, id: TraceId) -> bool {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        let place = (self.secret.hash_one(id.to_bytes()) >> 11) as f64 * STEP;
        place < self.ratio
    }
}

impl ShouldSample for SecretShare {
    fn should_sample(
        &self,
        _parent: Option<&Context>,
        trace_id: TraceId,
        _name: &str,
        _kind: &SpanKind,
        _attributes: &[KeyValue],
        _links: &[Link],
    ) -> SamplingResult {
        let decision =
            if self.has(trace_id) { SamplingDecision::RecordAndSample } else { SamplingDecision::Drop };
        SamplingResult { decision, attributes: Vec::new(), trace_state: TraceState::NONE }
    }
}

/// What a request says that it belongs to.
pub(super) fn parent(headers: &HeaderMap) -> Context {
    TraceContextPropagator::new().extract(&TraceParent(headers))
}

/// Headers of which `traceparent` alone is read: `tracestate` could be of any length, and would be told to the collector.
struct TraceParent<'a>(&'a HeaderMap);

impl Extractor for TraceParent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        if key != TRACEPARENT {
            return None;
        }
        let mut values = self.0.get_all(key).iter();
        let value = values.next()?.to_str().ok().filter(|value| is_well_formed(value))?;
        // Of two, neither can be believed.
        if values.next().is_none() { Some(value) } else { None }
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

/// Whether it has the fields of a `traceparent`, in lower case as the specification says. The propagator is not as strict.
fn is_well_formed(value: &str) -> bool {
    let is_hex = |field: &str| field.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let fields: Vec<&str> = value.splitn(FIELDS.len() + 1, '-').collect();
    // Versions after the first may have more fields.
    let is_long = fields.len() > FIELDS.len();
    fields.len() >= FIELDS.len()
        && fields.iter().zip(FIELDS).all(|(field, digits)| field.len() == digits && is_hex(field))
        && !(is_long && fields.first() == Some(&"00"))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use opentelemetry::trace::TraceContextExt as _;
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn names_a_trace(values: &[&str]) -> bool {
        let name = HeaderName::from_static(TRACEPARENT);
        let headers = values.iter().map(|value| (name.clone(), HeaderValue::from_str(value).unwrap()));
        parent(&headers.collect()).span().span_context().is_valid()
    }

    #[test]
    fn only_a_well_formed_header_names_a_trace() {
        assert!(names_a_trace(&[GOOD]));
        assert!(names_a_trace(&["cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"]));
        for bad in [
            "",
            "00-+1-1-+0",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        ] {
            assert!(!names_a_trace(&[bad]), "{bad}");
        }
        assert!(!names_a_trace(&[GOOD, GOOD]));
    }

    proptest! {
        #[test]
        fn any_header_is_read(value in "[0-9a-f+-]{0,60}") {
            names_a_trace(&[&value]);
        }
    }

    #[test]
    fn a_share_has_about_as_many_as_it_says_and_nobody_knows_which() {
        // Those that are told first, and last, by the id alone.
        let ids: Vec<TraceId> =
            (1..=1000_u128).flat_map(|id| [id, u128::MAX - id]).map(TraceId::from).collect();
        let told = |share: &SecretShare| ids.iter().map(|id| share.has(*id)).collect::<Vec<_>>();
        let count = |told: &[bool]| told.iter().filter(|is| **is).count();
        assert_eq!(count(&told(&SecretShare::of(0.0))), 0);
        assert_eq!(count(&told(&SecretShare::of(1.0))), ids.len());
        let [one, other] = [SecretShare::of(0.5), SecretShare::of(0.5)];
        assert_eq!(told(&one), told(&one));
        assert_ne!(told(&one), told(&other));
        // Ten standard deviations.
        assert!((776..1224).contains(&count(&told(&one))));
    }
}
