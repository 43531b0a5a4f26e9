//! Traces: what happened to a request and when, told to a collector of OpenTelemetry. Never what was said.
//!
//! A request is a span of kind server with the attributes of HTTP; each attempt to have it answered is a span of kind client
//! below it, with those of generative AI
//! ([conventions](https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/)).

mod collector;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method};
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{
    Event, Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};

use super::known;
use crate::accounting::Tokens;
use crate::config::TracesConfig;
use crate::gateway::system_now;
use crate::surface::Surface;
use crate::upstream::UpstreamError;
use collector::Collector;

/// What collectors call the gateway, unless `OTEL_SERVICE_NAME` says otherwise.
const SERVICE: &str = "cloister-inference-gateway";
/// The header that names the trace of a request (W3C Trace Context).
const TRACEPARENT: &str = "traceparent";
/// Longest time in which the last spans are sent.
const LAST: Duration = Duration::from_secs(5);
/// Methods by name; the conventions call any other `_OTHER`.
const METHODS: [Method; 6] =
    [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::HEAD, Method::OPTIONS];

/// Why there are no traces.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The file with headers is of no use.
    #[error("{0} holds no JSON object of headers")]
    Headers(PathBuf, #[source] io::Error),
    /// The file with authorities is of no use.
    #[error(transparent)]
    Authorities(#[from] UpstreamError),
    /// There is no client.
    #[error("no HTTP client for the collector")]
    Client(#[from] reqwest::Error),
    /// The settings, or those of `OTEL_…` variables, do not go together.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}

/// Makes spans, and sends them: in batches, from a thread of its own, and from memory of a limited size. What a collector
/// does not take is lost; nothing waits for it.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// The span of a request. It ends with [`Root::end`].
#[derive(Debug)]
pub(crate) struct Root(Box<Span>);

/// An attempt to have a request answered. Times are since the request came in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempted<'a> {
    pub(crate) surface: Surface,
    /// The model, one of the catalogue.
    pub(crate) model: &'a str,
    pub(crate) route: &'a str,
    pub(crate) began: Duration,
    /// When the request went out.
    pub(crate) sent: Option<Duration>,
    /// When the first content came.
    pub(crate) first_content: Option<Duration>,
    pub(crate) ended: Duration,
    /// What is recorded of it.
    pub(crate) status: u16,
    /// Why it failed, in the gateway's own words.
    pub(crate) why: Option<&'static str>,
    /// What it used.
    pub(crate) tokens: Tokens,
    /// Why the choices ended.
    pub(crate) finish_reasons: &'a [String],
}

impl Traces {
    /// Begins to send. Has to be called within a runtime, which outlives it.
    pub fn start(config: &TracesConfig) -> Result<Self, TracesError> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new(config)?)
            .with_endpoint(config.endpoint.as_str())
            .with_protocol(Protocol::HttpBinary)
            .build()?;
        let resource =
            Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let resource = match std::env::var_os("OTEL_SERVICE_NAME").filter(|name| !name.is_empty()) {
            Some(_) => resource,
            None => resource.with_service_name(SERVICE),
        };
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_sampler(Sampler::TraceIdRatioBased(config.sample_ratio))
            .with_batch_exporter(exporter)
            .build();
        let tracer = provider.tracer(SERVICE);
        Ok(Self { provider, tracer })
    }

    /// Begins the span of a request, below the one that its `traceparent` names; `None` for one that is not among the
    /// sampled. `endpoint` is one of the gateway's own paths.
    pub(crate) fn begin(&self, method: &Method, endpoint: &str, headers: &HeaderMap) -> Option<Root> {
        let parent = TraceContextPropagator::new().extract(&TraceParent(headers));
        let method = if METHODS.contains(method) { method.as_str() } else { "_OTHER" };
        let span = self
            .tracer
            .span_builder(format!("{method} {endpoint}"))
            .with_kind(SpanKind::Server)
            .with_start_time(system_now())
            .with_attributes([
                KeyValue::new("http.request.method", method.to_owned()),
                KeyValue::new("http.route", endpoint.to_owned()),
            ])
            .start_with_context(&self.tracer, &parent);
        span.is_recording().then(|| Root(Box::new(span)))
    }

    /// An attempt that is over, of the request of a span, and when that came in.
    pub(crate) fn attempted(&self, parent: &SpanContext, came_in: SystemTime, attempt: &Attempted<'_>) {
        let at = |time: Duration| came_in.checked_add(time).unwrap_or(came_in);
        let operation = operation(attempt.surface);
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", operation),
            KeyValue::new("gen_ai.request.model", attempt.model.to_owned()),
            KeyValue::new("cloister.route", attempt.route.to_owned()),
            KeyValue::new("http.response.status_code", i64::from(attempt.status)),
        ];
        if attempt.tokens != Tokens::default() {
            let count = |tokens| i64::try_from(tokens).unwrap_or(i64::MAX);
            attributes.push(KeyValue::new("gen_ai.usage.input_tokens", count(attempt.tokens.prompt)));
            attributes.push(KeyValue::new("gen_ai.usage.output_tokens", count(attempt.tokens.completion)));
        }
        if !attempt.finish_reasons.is_empty() {
            let reasons: Vec<opentelemetry::StringValue> =
                attempt.finish_reasons.iter().map(|reason| known(reason).into()).collect();
            attributes.push(KeyValue::new(
                "gen_ai.response.finish_reasons",
                opentelemetry::Value::Array(reasons.into()),
            ));
        }
        if attempt.why.is_some() {
            attributes.push(KeyValue::new("error.type", attempt.status.to_string()));
        }
        let times = [("sent", attempt.sent), ("first content", attempt.first_content)];
        let events = times.into_iter().filter_map(|(name, time)| Some((name, at(time?))));
        let mut span = self
            .tracer
            .span_builder(format!("{operation} {}", attempt.model))
            .with_kind(SpanKind::Client)
            .with_start_time(at(attempt.began))
            .with_attributes(attributes)
            .with_events(events.map(|(name, time)| Event::new(name, time, Vec::new(), 0)).collect())
            .start_with_context(&self.tracer, &Context::new().with_remote_span_context(parent.clone()));
        if let Some(why) = attempt.why {
            span.set_status(Status::error(why));
        }
        span.end_with_timestamp(at(attempt.ended));
    }

    /// Sends what is left, and nothing after it.
    pub(crate) async fn close(&self) {
        let provider = self.provider.clone();
        let closed = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(LAST)).await;
        if !matches!(closed, Ok(Ok(()))) {
            tracing::warn!("the last traces were not taken");
        }
    }
}

impl Root {
    /// Names the span, for those below it.
    pub(crate) fn context(&self) -> SpanContext {
        self.0.span_context().clone()
    }

    /// What the log calls the trace: 32 hex digits.
    pub(crate) fn trace_id(&self) -> String {
        self.0.span_context().trace_id().to_string()
    }

    /// The response is over; the client took so many bytes of it.
    pub(crate) fn end(mut self, request_id: &str, status: u16, bytes: u64, is_whole: bool) {
        self.0.set_attributes([
            KeyValue::new("cloister.request_id", request_id.to_owned()),
            KeyValue::new("http.response.status_code", i64::from(status)),
            KeyValue::new("http.response.body.size", i64::try_from(bytes).unwrap_or(i64::MAX)),
            KeyValue::new("cloister.response.is_whole", is_whole),
        ]);
        if status >= 500 {
            self.0.set_attribute(KeyValue::new("error.type", status.to_string()));
            self.0.set_status(Status::error(""));
        }
        self.0.end_with_timestamp(system_now());
    }
}

/// What conventions call what a surface does.
const fn operation(surface: Surface) -> &'static str {
    match surface {
        Surface::Chat | Surface::Responses | Surface::Messages => "chat",
        Surface::Completions => "text_completion",
        Surface::Embeddings => "embeddings",
    }
}

/// Headers of which `traceparent` alone is read: `tracestate` could be of any length, and would be told to the collector.
struct TraceParent<'a>(&'a HeaderMap);

impl Extractor for TraceParent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        if key == TRACEPARENT { self.0.get(key)?.to_str().ok() } else { None }
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}
