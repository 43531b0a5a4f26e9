//! The management API over HTTP: requests to calls of the other modules, rows to wire types.
//!
//! A request passes, from the outside: `guard` (id, log, figures, bodies of failures), a bound on
//! panics and time, `auth`, `negotiate`, `idempotency`, and one file per operation.

mod access;
mod account;
mod admin;
mod approvals;
mod apps;
mod attestations;
mod audit;
mod auth;
mod billing;
mod boxed_handler;
mod catalogue;
mod changes;
mod channel_log;
mod conditional;
mod cvms;
mod deprecation;
mod development_pccs;
mod document;
mod error;
mod governance;
mod gpu_wish;
mod guard;
mod health;
mod idempotency;
mod images;
mod inference;
mod input;
mod kms;
mod logs;
mod metrics;
mod negotiate;
mod oauth;
mod page;
mod paging;
mod people;
mod placing;
mod provisioning;
mod rate;
mod responses;
mod routes;
mod scene;
mod signed_url;
mod sizes;
mod slots;
mod ssh_key;
mod target;
#[cfg(test)]
mod tests;
mod view;
mod webhooks;

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use headers::{ETag, HeaderMapExt as _};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

use crate::App;
use slots::Slots;

pub use document::document;
pub use oauth::{Client as OauthClient, InvalidClient};

const PREFIX: &str = "/api/v1";
/// Largest body of a request, uploads of images aside.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Clients give up after 30 s; what takes longer is an operation.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(25);

/// What handlers work with; clones are the same.
///
/// The parts are behind a trait object because its type says that threads may share it. The compiler proves that of the
/// future of every handler, and would walk through all that an application holds each time.
#[derive(Clone)]
pub(crate) struct Api(Arc<dyn Deref<Target = ApiParts> + Send + Sync>);

impl Deref for Api {
    type Target = ApiParts;

    fn deref(&self) -> &ApiParts {
        &self.0
    }
}

/// The application, and what only the API needs.
pub(crate) struct ApiParts {
    app: Arc<App>,
    stop: CancellationToken,
    metrics: metrics::Metrics,
    key_uses: auth::KeyUses,
    /// Requests by API key.
    key_rates: rate::Rates<i64>,
    /// Questions of devices that wait, by the hash of their code.
    device_questions: rate::Rates<String>,
    /// Devices that begin to wait, all together.
    device_logins: rate::Rates<()>,
    /// Looks at devices that wait, and decisions on them, by workspace.
    device_looks: rate::Rates<i64>,
    /// Guesses at passwords and codes, by address.
    guesses: rate::Rates<IpAddr>,
    /// Streams of states by user.
    streams: Slots,
    /// Logs that are being read by CVM.
    log_reads: Slots,
    /// API keys that are made, by workspace.
    key_creations: rate::Rates<i64>,
    /// Requests for inference that begin, by API key.
    inference_requests: rate::Rates<i64>,
    directory: scene::Directory,
    uploads: Semaphore,
    /// Guest images that are being added.
    image_intakes: Semaphore,
    /// Uploads by workspace.
    own_uploads: Slots,
    intake: attestations::Intake,
    /// Evidence that is being asked for by anybody, by CVM.
    evidence_reads: Slots,
    /// The same of members of the CVM's workspace: strangers do not keep them from it.
    own_evidence_reads: Slots,
    /// Diagnoses of domains, by workspace.
    diagnoses: Slots,
    /// Questions to chains, by workspace.
    chain_reads: Slots,
    /// Commits of prepared changes, by change.
    commits: Slots,
    /// Looks at prepared changes, by change.
    approval_looks: Slots,
    /// Addresses of webhooks that are being checked, by workspace.
    webhook_checks: Slots,
    /// Streams of events, by workspace.
    webhook_streams: Slots,
    /// Tests, repetitions and replays of webhooks, by workspace.
    webhook_sends: rate::Rates<i64>,
    /// Tables of usage that are being read, by workspace.
    usage_tables: Slots,
    /// Exports of audit logs, by chain.
    audit_exports: Slots,
}

impl Deref for ApiParts {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}

impl Api {
    fn new(app: Arc<App>, stop: CancellationToken) -> Self {
        // The box is what derefs to them.
        let parts = Box::new(ApiParts {
            key_rates: rate::Rates::per_minute(app.requests_per_minute, &app.clock),
            device_questions: rate::Rates::every(account::devices::SOONEST_QUESTION, &app.clock),
            device_logins: rate::Rates::per_minute(account::devices::LOGINS_PER_MINUTE, &app.clock),
            device_looks: rate::Rates::per_minute(account::devices::LOOKS_PER_MINUTE, &app.clock),
            key_creations: rate::Rates::per_minute(account::tokens::MADE_PER_MINUTE, &app.clock),
            inference_requests: rate::Rates::per_minute(
                app.inference.as_ref().and_then(|inference| inference.requests_per_minute),
                &app.clock,
            ),
            webhook_sends: rate::Rates::per_minute(webhooks::SENT_PER_MINUTE, &app.clock),
            guesses: rate::Rates::per_minute(people::GUESSES_PER_MINUTE, &app.clock),
            app,
            stop,
            metrics: metrics::Metrics::default(),
            key_uses: auth::KeyUses::default(),
            streams: Slots::new(cvms::state::MAX_STREAMS),
            log_reads: Slots::new(logs::MAX_READS),
            directory: scene::Directory::default(),
            uploads: Semaphore::new(images::MAX_UPLOADS),
            image_intakes: Semaphore::new(admin::os_images::MAX_INTAKES),
            own_uploads: Slots::new(images::MAX_OWN_UPLOADS),
            intake: attestations::Intake::default(),
            evidence_reads: Slots::new(attestations::MAX_READS),
            own_evidence_reads: Slots::new(attestations::MAX_READS),
            diagnoses: Slots::new(cvms::domain::MAX_DIAGNOSES),
            chain_reads: Slots::new(governance::MAX_CHAIN_READS),
            commits: Slots::new(approvals::MAX_COMMITS),
            approval_looks: Slots::new(approvals::MAX_LOOKS),
            webhook_checks: Slots::new(webhooks::MAX_CHECKS),
            webhook_streams: Slots::new(webhooks::MAX_STREAMS),
            usage_tables: Slots::new(apps::usage::MAX_TABLES),
            audit_exports: Slots::new(audit::MAX_EXPORTS),
        });
        Self(Arc::new(parts))
    }
}

/// The whole HTTP surface; streams end when `stop` is cancelled.
pub fn router(app: Arc<App>, stop: CancellationToken) -> Router {
    surface(Api::new(app, stop))
}

/// The description of the interface and its tag, made once: anybody may ask for it at any rate.
static DESCRIPTION: LazyLock<(Bytes, Option<ETag>)> = LazyLock::new(|| {
    let text = serde_json::to_vec(&document()).unwrap_or_default();
    let tag = conditional::tag(&text);
    (text.into(), tag)
});

async fn description() -> Response {
    let (text, tag) = &*DESCRIPTION;
    let form = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "public, no-cache")];
    let mut response = (form, text.clone()).into_response();
    if let Some(tag) = tag {
        response.headers_mut().typed_insert(tag.clone());
    }
    response
}

fn surface(api: Api) -> Router {
    let openapi = get(description).layer(from_fn(conditional::tagged));
    let routes = Router::new()
        .nest(PREFIX, described(&api))
        .merge(unlisted(&api))
        .route("/openapi.json", openapi.clone())
        .route("/api/v1/openapi.json", openapi);
    guarded(routes, api)
}

/// What every request passes, whatever it asks for.
fn guarded(routes: Router<Api>, api: Api) -> Router {
    routes
        .fallback(async || StatusCode::NOT_FOUND)
        .layer(CatchPanicLayer::new())
        .layer(from_fn_with_state(api.clone(), guard::guard))
        .with_state(api)
}

/// What is not part of the described interface.
fn unlisted(api: &Api) -> Router<Api> {
    let metrics = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route_layer(from_fn_with_state(api.clone(), auth::authenticate));
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/errors/{code}", get(health::error_page))
        .route(deprecation::PATH, get(deprecation::page))
        .merge(development_pccs::router())
        .merge(page::router())
        .merge(people::router())
        .merge(oauth::router())
        .merge(metrics)
        .merge(inference::router(api))
        .route_layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, REQUEST_TIMEOUT))
}

/// What lasts no longer than a time, and has its effect once under a name of the client's.
fn once(routes: Router<Api>, api: &Api, time: Duration) -> Router<Api> {
    let timely = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, time);
    routes
        .route_layer(timely)
        .route_layer(from_fn_with_state(api.clone(), idempotency::once))
        // Once more: what is read before a request runs has its limit, too.
        .route_layer(timely)
}

/// What a key is needed for.
fn for_keys(routes: Router<Api>, api: &Api) -> Router<Api> {
    routes
        .route_layer(from_fn_with_state(api.clone(), negotiate::negotiate))
        .route_layer(from_fn_with_state(api.clone(), auth::authenticate))
}

/// The operations of the described interface behind their layers.
fn described(api: &Api) -> Router<Api> {
    let timely = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, REQUEST_TIMEOUT);
    let operations = &*routes::ROUTERS;
    let own = once(operations.protected.clone(), api, REQUEST_TIMEOUT);
    let own = for_keys(own.merge(operations.protected_streams.clone()), api);
    let public = operations
        .public
        .clone()
        .route_layer(timely)
        .merge(operations.public_streams.clone())
        .route_layer(from_fn_with_state(api.clone(), negotiate::negotiate))
        .route_layer(from_fn_with_state(api.clone(), access::by_token));
    own.merge(public).layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}
