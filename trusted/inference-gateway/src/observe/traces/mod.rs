//! Traces: what happened to a request and when, told to a collector of OpenTelemetry. Never what was said.
//!
//! A request is a span of kind server with the attributes of HTTP; each attempt to have it answered is a span of kind client
//! below it, with those of generative AI
//! ([conventions](https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/)).

mod collector;
mod counted;
mod sampling;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, Method};
use opentelemetry::trace::{
    Event, Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};

use super::known;
use crate::accounting::Tokens;
use crate::config::{ProviderKind, TracesConfig};
use crate::gateway::system_now;
use crate::surface::Surface;
use crate::upstream::UpstreamError;
use collector::Collector;
use counted::Counted;
pub(crate) use counted::Spans;
use sampling::SecretShare;

/// What collectors call the gateway, unless `OTEL_SERVICE_NAME` says otherwise.
const SERVICE: &str = "cloister-inference-gateway";
/// Longest time in which the last spans are sent.
const LAST: Duration = Duration::from_secs(5);
/// Methods by name; the conventions call any other `_OTHER`.
const METHODS: [Method; 9] = [
    Method::CONNECT,
    Method::DELETE,
    Method::GET,
    Method::HEAD,
    Method::OPTIONS,
    Method::PATCH,
    Method::POST,
    Method::PUT,
    Method::TRACE,
];

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
    spans: Arc<Spans>,
}

/// The span of a request, for those below it.
#[derive(Debug, Clone)]
pub struct RequestSpan {
    context: SpanContext,
    /// When it began, by the machine's clock, which is read once: it may be set meanwhile.
    at: SystemTime,
    /// The same moment.
    since: Instant,
    /// The status that a failure of the answer is recorded with.
    failure: Arc<OnceLock<u16>>,
}

impl RequestSpan {
    /// The answer failed, as it is recorded with a status: that of the response may have said otherwise before.
    pub(crate) fn note_failure(&self, status: u16) {
        // There is one outcome.
        let _ = self.failure.set(status);
    }

    /// A moment by the machine's clock, as of the beginning.
    fn time(&self, moment: Instant) -> SystemTime {
        self.at.checked_add(moment.saturating_duration_since(self.since)).unwrap_or(self.at)
    }
}

/// The span of a request itself. It ends with [`Root::end`].
#[derive(Debug)]
pub(crate) struct Root {
    span: Box<Span>,
    pub(crate) request: RequestSpan,
    spans: Arc<Spans>,
}

/// An attempt to have a request answered. Times are since the request came in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempted<'a> {
    pub(crate) surface: Surface,
    /// The model, one of the catalogue.
    pub(crate) model: &'a str,
    pub(crate) route: &'a str,
    pub(crate) provider: ProviderKind,
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
        // The variable holds against `service.name` among `OTEL_RESOURCE_ATTRIBUTES`, which the SDK does not see to.
        let name = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
        let resource = resource.with_service_name(name.unwrap_or_else(|| SERVICE.to_owned()));
        let spans = Arc::<Spans>::default();
        let provider = SdkTracerProvider::builder()
            .with_resource(resource.build())
            .with_sampler(SecretShare::of(config.sample_ratio))
            .with_batch_exporter(Counted::new(exporter, Arc::clone(&spans)))
            .build();
        let tracer = provider.tracer(SERVICE);
        Ok(Self { provider, tracer, spans })
    }

    /// What became of the spans.
    pub(crate) fn spans(&self) -> &Spans {
        &self.spans
    }

    /// Begins the span of a request, below the one that its `traceparent` names; `None` for one that is not among the
    /// sampled. `endpoint` is one of the gateway's own paths, if it is any.
    pub(crate) fn begin(&self, method: &Method, endpoint: Option<&str>, headers: &HeaderMap) -> Option<Root> {
        let known = METHODS.contains(method).then_some(method.as_str());
        let name =
            [Some(known.unwrap_or("HTTP")), endpoint].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let method = KeyValue::new("http.request.method", known.unwrap_or("_OTHER").to_owned());
        let route = endpoint.map(|endpoint| KeyValue::new("http.route", endpoint.to_owned()));
        let (at, since) = (system_now(), Instant::now());
        let span = self
            .tracer
            .span_builder(name)
            .with_kind(SpanKind::Server)
            .with_start_time(at)
            .with_attributes([method].into_iter().chain(route))
            .start_with_context(&self.tracer, &sampling::parent(headers));
        span.is_recording().then(|| Root {
            request: RequestSpan { context: span.span_context().clone(), at, since, failure: Arc::default() },
            span: Box::new(span),
            spans: Arc::clone(&self.spans),
        })
    }

    /// An attempt that is over, of the request of a span, and when that came in.
    pub(crate) fn attempted(&self, parent: &RequestSpan, came_in: Instant, attempt: &Attempted<'_>) {
        let at = |time: Duration| parent.time(came_in.checked_add(time).unwrap_or(came_in));
        let operation = operation(attempt.surface);
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", operation),
            KeyValue::new("gen_ai.provider.name", provider(attempt.provider)),
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
            .start_with_context(
                &self.tracer,
                &Context::new().with_remote_span_context(parent.context.clone()),
            );
        if let Some(why) = attempt.why {
            span.set_status(Status::error(why));
        }
        self.spans.note_end();
        span.end_with_timestamp(at(attempt.ended));
    }

    /// Sends what is left, and nothing after it.
    pub(crate) async fn close(&self) {
        let provider = self.provider.clone();
        let closed = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(LAST)).await;
        let lost = self.spans.ended().saturating_sub(self.spans.taken());
        if lost > 0 || !matches!(closed, Ok(Ok(()))) {
            tracing::warn!(lost, "the collector did not take all spans since the start");
        }
    }
}

impl Root {
    /// What the log calls the trace: 32 hex digits.
    pub(crate) fn trace_id(&self) -> String {
        self.request.context.trace_id().to_string()
    }

    /// The response is over; the client took so many bytes of it.
    pub(crate) fn end(mut self, request_id: &str, status: u16, bytes: u64, is_whole: bool) {
        self.span.set_attributes([
            KeyValue::new("cloister.request_id", request_id.to_owned()),
            KeyValue::new("http.response.status_code", i64::from(status)),
            KeyValue::new("http.response.body.size", i64::try_from(bytes).unwrap_or(i64::MAX)),
            KeyValue::new("cloister.response.is_whole", is_whole),
        ]);
        // What a client did wrong is no error of the server, also where it is found out after a good beginning.
        let broken = self.request.failure.get().copied().filter(|error| status < 400 && *error >= 500);
        if let Some(error) = broken.or((status >= 500).then_some(status)) {
            self.span.set_attribute(KeyValue::new("error.type", error.to_string()));
            self.span.set_status(Status::error(""));
        }
        self.spans.note_end();
        self.span.end_with_timestamp(self.request.time(Instant::now()));
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

/// What conventions call those who speak like an upstream.
const fn provider(kind: ProviderKind) -> &'static str {
    match kind {
        ProviderKind::OpenaiCompatible | ProviderKind::AciService => "openai",
        ProviderKind::Anthropic => "anthropic",
    }
}
