//! Figures for the operator: counters, histograms, the log of requests and their traces. Never what was said.

mod access;
mod series;
mod traces;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;

use crate::admission::Control;
use crate::error::{GatewayError, printable};
use crate::gateway::Gateway;
use crate::operator::Operator;
use crate::routing::Health;
use crate::surface::Surface;
use series::{Counter, Durations, Family, line};

pub(crate) use access::{About, Line};
pub(crate) use traces::Attempted;
pub use traces::{RequestSpan, Traces, TracesError};

/// Longest text of a client's that the log has, in characters.
const MAX_SHOWN: usize = 128;
/// Why answers end, where nothing is wrong.
const FINISH_REASONS: [&str; 12] = [
    "stop",
    "length",
    "tool_calls",
    "function_call",
    "content_filter",
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
];

/// What the log has instead of a reason that is none of them: it is an upstream's text, and may say anything.
const ODD: &str = "other";

/// How a request that was admitted ended.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// What it is called in errors and records.
    pub request_id: &'a str,
    /// The surface.
    pub surface: Surface,
    /// Whether it streamed.
    pub is_streaming: bool,
    /// Whether it was encrypted end to end.
    pub is_encrypted: bool,
    /// The model, one of the catalogue.
    pub model: &'a str,
    /// The route that answered or broke.
    pub route: Option<&'a str>,
    /// How many routes were tried.
    pub attempts: usize,
    /// What is recorded: the client's status, 499 when it left, 502 for a broken stream.
    pub status: u16,
    /// Whether it has a receipt.
    pub has_receipt: bool,
    /// From the first byte in until the request went to its last upstream.
    pub before_upstream: Option<Duration>,
    /// From there to the first content.
    pub first_content: Option<Duration>,
    /// From the first byte in to the last byte out.
    pub total: Duration,
    /// Why the choices ended.
    pub finish_reasons: &'a [String],
    /// Who failed and how, in the gateway's own words.
    pub failure: Option<(&'a str, &'a str)>,
}

/// All figures.
#[derive(Debug)]
pub struct Metrics {
    requests: Family<Counter, 3>,
    upstream_responses: Family<Counter, 4>,
    verifications: Family<Counter, 2>,
    receipts: Family<Counter, 3>,
    stream_errors: Family<Counter, 2>,
    responses: Family<Counter, 2>,
    before_upstream: Family<Durations, 2>,
    first_content: Family<Durations, 2>,
    total: Family<Durations, 2>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::new(
                "private_ai_gateway_requests_total",
                "Requests that were admitted.",
                ["endpoint", "mode", "e2ee"],
            ),
            upstream_responses: Family::new(
                "private_ai_gateway_upstream_responses_total",
                "Answers of upstreams, failed attempts among them.",
                ["endpoint", "mode", "status_class", "model_id"],
            ),
            verifications: Family::new(
                "private_ai_gateway_upstream_verifications_total",
                "Requests by whether their upstream was verified.",
                ["result", "required"],
            ),
            receipts: Family::new(
                "private_ai_gateway_receipts_issued_total",
                "Receipts.",
                ["endpoint", "mode", "model_id"],
            ),
            stream_errors: Family::new(
                "private_ai_gateway_stream_errors_total",
                "Streams that broke, by whose fault it was.",
                ["endpoint", "kind"],
            ),
            responses: Family::new(
                "private_ai_gateway_responses_total",
                "Responses to clients.",
                ["endpoint", "status"],
            ),
            before_upstream: Family::new(
                "private_ai_gateway_before_upstream_seconds",
                "Time from the first byte of a request until it went to the upstream that answered.",
                ["endpoint", "mode"],
            ),
            first_content: Family::new(
                "private_ai_gateway_upstream_first_content_seconds",
                "Time from there to the upstream's first content.",
                ["endpoint", "mode"],
            ),
            total: Family::new(
                "private_ai_gateway_request_seconds",
                "Time from the first byte of a request to the last byte of its answer.",
                ["endpoint", "mode"],
            ),
        }
    }
}

const fn mode(is_streaming: bool) -> &'static str {
    if is_streaming { "stream" } else { "buffered" }
}

const fn word(is: bool) -> &'static str {
    if is { "true" } else { "false" }
}

const fn class(status: u16) -> &'static str {
    match status {
        100..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        500..600 => "5xx",
        _ => "other",
    }
}

impl Metrics {
    /// An upstream answered, or failed with what is recorded as `status`.
    pub fn upstream_answered(&self, surface: Surface, is_streaming: bool, status: u16, model: &str) {
        let labels = [surface.path(), mode(is_streaming), class(status), model];
        self.upstream_responses.of(labels).add(1);
    }

    /// A request went to an upstream that was verified, or not.
    pub fn verified(&self, is_verified: bool, is_required: bool) {
        let result = if is_verified { "verified" } else { "failed" };
        self.verifications.of([result, word(is_required)]).add(1);
    }

    /// A request that was admitted is over. Counts it, and logs it if something was wrong with it.
    pub fn finished(&self, outcome: &Outcome<'_>) {
        let (endpoint, mode) = (outcome.surface.path(), mode(outcome.is_streaming));
        self.requests.of([endpoint, mode, word(outcome.is_encrypted)]).add(1);
        if outcome.has_receipt {
            self.receipts.of([endpoint, mode, outcome.model]).add(1);
        }
        if let (true, Some((source, _))) = (outcome.is_streaming, outcome.failure) {
            self.stream_errors.of([endpoint, source]).add(1);
        }
        for (family, time) in
            [(&self.before_upstream, outcome.before_upstream), (&self.first_content, outcome.first_content)]
        {
            if let Some(time) = time {
                family.of([endpoint, mode]).add(time);
            }
        }
        self.total.of([endpoint, mode]).add(outcome.total);
        let reasons: Vec<&str> = outcome.finish_reasons.iter().map(|reason| known(reason)).collect();
        if outcome.failure.is_some() || reasons.contains(&ODD) {
            let (source, why) = outcome.failure.unwrap_or(("upstream", "the answer ended for an odd reason"));
            tracing::warn!(
                request_id = outcome.request_id,
                endpoint,
                mode,
                model = shown(outcome.model),
                route = shown(outcome.route.unwrap_or("none")),
                attempts = outcome.attempts,
                status = outcome.status,
                first_content_ms = outcome.first_content.map(|time| time.as_millis()),
                total_ms = outcome.total.as_millis(),
                finish_reasons = reasons.join(","),
                source,
                why,
                "a request failed"
            );
        }
    }

    /// A response went to a client, or as much of it as the client took.
    pub(crate) fn responded(&self, endpoint: &str, status: u16) {
        self.responses.of([endpoint, &status.to_string()]).add(1);
    }

    /// All figures as text.
    fn write(&self, out: &mut String) {
        self.requests.write(out);
        self.upstream_responses.write(out);
        self.verifications.write(out);
        self.receipts.write(out);
        self.stream_errors.write(out);
        self.responses.write(out);
        self.before_upstream.write(out);
        self.first_content.write(out);
        self.total.write(out);
    }
}

/// Why an answer ended, fit for a log.
fn known(reason: &str) -> &'static str {
    FINISH_REASONS.into_iter().find(|known| *known == reason).unwrap_or(ODD)
}

/// What somebody else wrote, fit for a log.
pub(crate) fn shown(text: &str) -> String {
    printable(text, MAX_SHOWN)
}

/// The endpoint for the operator.
pub fn routes() -> Router<Arc<Gateway>> {
    Router::new().route("/v1/metrics", get(for_operator))
}

/// The same for a listener that only the operator reaches: it asks for no token.
pub fn open_routes(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/metrics", get(for_anybody))
        .route("/v1/metrics", get(for_anybody))
        .with_state(gateway)
}

async fn for_operator(_: Operator, State(gateway): State<Arc<Gateway>>) -> Result<Response, GatewayError> {
    Ok(figures(&gateway))
}

async fn for_anybody(State(gateway): State<Arc<Gateway>>) -> Response {
    figures(&gateway)
}

fn figures(gateway: &Gateway) -> Response {
    let mut text = String::with_capacity(16 << 10);
    gateway.metrics.write(&mut text);
    for (name, help, value) in [
        (
            "private_ai_gateway_requests_in_flight",
            "Requests that are being answered.",
            gateway.requests.len(),
        ),
        (
            "private_ai_gateway_body_memory_free_bytes",
            "Memory that is left for bodies of requests.",
            gateway.bodies.left(),
        ),
        (
            "private_ai_gateway_configuration_healthy",
            "1: the file holds as it is; 0: it is of no use, or some of it needs a restart.",
            usize::from(gateway.office.is_file_good()),
        ),
        (
            "private_ai_gateway_records_healthy",
            "1: requests are recorded; 0: they cannot be, and none is begun.",
            usize::from(gateway.store.trouble().is_none()),
        ),
        (
            "private_ai_gateway_records_pending_bytes",
            "Memory of records that are written and not in the database yet.",
            gateway.store.pending_bytes(),
        ),
        (
            "private_ai_gateway_records_waiting",
            "Requests that are over and that the disk does not take.",
            gateway.arrears.waiting(),
        ),
    ] {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} gauge\n"));
        line(name, "", value, &mut text);
    }
    if let Some(spans) = gateway.traces.as_ref().map(Traces::spans) {
        // Those that have ended are read last: they are never fewer.
        let (taken, refused) = (spans.taken(), spans.refused());
        for (name, help, value) in [
            (
                "private_ai_gateway_spans_ended_total",
                "Spans that the collector of traces is to be told; those that nobody took yet wait, or were lost.",
                spans.ended(),
            ),
            ("private_ai_gateway_spans_taken_total", "Spans that the collector took.", taken),
            (
                "private_ai_gateway_spans_refused_total",
                "Spans that were sent to the collector and that it did not take.",
                refused,
            ),
        ] {
            text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} counter\n"));
            line(name, "", value, &mut text);
        }
    }
    if let Control::ControlPlane(control_plane) = &gateway.control {
        let name = "private_ai_gateway_untold_cost";
        text.push_str(&format!(
            "# HELP {name} What was spent and the control plane was not told.\n# TYPE {name} gauge\n"
        ));
        line(name, "", control_plane.untold().normalize(), &mut text);
        let name = "private_ai_gateway_rows_set_aside";
        text.push_str(&format!(
            "# HELP {name} Usage rows that the control plane does not take.\n# TYPE {name} gauge\n"
        ));
        // A store that cannot be read has no figure, rather than a good one.
        if let Ok(count) = gateway.store.set_aside_count() {
            line(name, "", count, &mut text);
        }
    }
    let name = "private_ai_gateway_route_healthy";
    text.push_str(&format!(
        "# HELP {name} 1: requests go there; 0.5: one, to see; 0: none.\n# TYPE {name} gauge\n"
    ));
    for model in gateway.live().catalogue.models() {
        for route in &model.routes {
            let value = match route.breaker.health() {
                Health::Healthy => "1",
                Health::Probing => "0.5",
                Health::Resting => "0",
            };
            line(name, &format!("route=\"{}\"", series::escaped(&route.id)), value, &mut text);
        }
    }
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, content_type)], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_reasons_the_log_has_known_ones_only() {
        for reason in FINISH_REASONS {
            assert_eq!(known(reason), reason);
        }
        for reason in ["", "Stop", "stop\nfake line", "the prompt said: secret"] {
            assert_eq!(known(reason), ODD, "{reason}");
        }
    }
}
