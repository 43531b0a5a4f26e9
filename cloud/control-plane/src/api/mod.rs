//! The management API over HTTP: requests to calls of the other modules, rows to wire types.
//!
//! A request passes, from the outside: `guard` (id, log, figures, bodies of failures), a bound on
//! panics and time, `auth`, `negotiate`, and one file per operation.

mod account;
mod admin;
mod approvals;
mod apps;
mod attestations;
mod auth;
mod catalogue;
mod changes;
mod channel_log;
mod cvms;
mod development_pccs;
mod document;
mod error;
mod governance;
mod gpu_wish;
mod guard;
mod health;
mod images;
mod input;
mod kms;
mod logs;
mod metrics;
mod negotiate;
mod paging;
mod placing;
mod provisioning;
mod responses;
mod scene;
mod signed_url;
mod sizes;
mod slots;
mod ssh_key;
mod target;
#[cfg(test)]
mod tests;
mod view;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::App;
use slots::Slots;

pub use document::document;

const PREFIX: &str = "/api/v1";
/// Largest body of a request, uploads of images aside.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Clients give up after 30 s; what takes longer is an operation.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(25);

/// What handlers work with: the application and what only the API needs.
pub(crate) struct Api {
    app: Arc<App>,
    stop: CancellationToken,
    metrics: metrics::Metrics,
    key_uses: auth::KeyUses,
    /// Streams of states by user.
    streams: Slots,
    /// Logs that are being read by CVM.
    log_reads: Slots,
    creation_rate: account::tokens::CreationRate,
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
}

impl Deref for Api {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}

impl Api {
    fn new(app: Arc<App>, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            app,
            stop,
            metrics: metrics::Metrics::default(),
            key_uses: auth::KeyUses::default(),
            streams: Slots::new(cvms::state::MAX_STREAMS),
            log_reads: Slots::new(logs::MAX_READS),
            creation_rate: account::tokens::CreationRate::default(),
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
        })
    }
}

/// The whole HTTP surface; streams end when `stop` is cancelled.
pub fn router(app: Arc<App>, stop: CancellationToken) -> Router {
    surface(Api::new(app, stop))
}

fn surface(api: Arc<Api>) -> Router {
    // Written once: anybody may ask for it at any rate.
    let text = Bytes::from(serde_json::to_vec(&document()).unwrap_or_default());
    let openapi = get(async move || ([(CONTENT_TYPE, "application/json")], text));
    let routes = Router::new()
        .nest(PREFIX, described(&api))
        .merge(unlisted(&api))
        .route("/openapi.json", openapi.clone())
        .route("/api/v1/openapi.json", openapi);
    guarded(routes, api)
}

/// What every request passes, whatever it asks for.
fn guarded(routes: Router<Arc<Api>>, api: Arc<Api>) -> Router {
    routes
        .fallback(async || StatusCode::NOT_FOUND)
        .layer(CatchPanicLayer::new())
        .layer(from_fn_with_state(Arc::clone(&api), guard::guard))
        .with_state(api)
}

/// What is not part of the described interface.
fn unlisted(api: &Arc<Api>) -> Router<Arc<Api>> {
    let metrics = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route_layer(from_fn_with_state(Arc::clone(api), auth::authenticate));
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/errors/{code}", get(health::error_page))
        .merge(development_pccs::router())
        .merge(approvals::page::router())
        .merge(metrics)
        .route_layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, REQUEST_TIMEOUT))
}

/// The operations of the described interface behind their layers.
fn described(api: &Arc<Api>) -> Router<Arc<Api>> {
    let timely = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, REQUEST_TIMEOUT);
    let own = Router::from(protected())
        .route_layer(timely)
        .merge(Router::from(protected_streams()))
        .route_layer(from_fn(negotiate::negotiate))
        .route_layer(from_fn_with_state(Arc::clone(api), auth::authenticate));
    let public = Router::from(public())
        .route_layer(timely)
        .merge(Router::from(public_streams()))
        .route_layer(from_fn(negotiate::negotiate));
    own.merge(public).layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}

/// Every operation of the described interface.
fn operations() -> OpenApiRouter<Arc<Api>> {
    let all = protected().merge(protected_streams()).merge(public()).merge(public_streams());
    OpenApiRouter::new().nest(PREFIX, all)
}

fn protected() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .merge(cvm_routes())
        .merge(replica_routes())
        .merge(app_routes())
        .merge(rollout_routes())
        .merge(account_routes())
        .merge(ssh_key_routes())
        .merge(kms_routes())
        .merge(governance_routes())
        .merge(admin_routes())
}

/// These last longer than any time limit.
fn protected_streams() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(cvms::state::state))
        .routes(routes!(images::push))
        .routes(routes!(admin::os_images::list, admin::os_images::add))
}

fn public() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .merge(evidence_routes())
        .merge(commit_routes())
        .routes(routes!(catalogue::instance_types::list))
        .routes(routes!(catalogue::instance_types::family))
}

fn evidence_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(attestations::verify::verify))
        .layer(DefaultBodyLimit::max(attestations::MAX_UPLOAD_BYTES))
        .routes(routes!(catalogue::attestation_nodes::attestation_nodes))
        .routes(routes!(attestations::platforms::ppids))
        .routes(routes!(attestations::platforms::device_ids))
        .routes(routes!(attestations::recent::recent))
        .routes(routes!(attestations::view::view))
        .routes(routes!(attestations::collateral::collateral))
        .routes(routes!(attestations::raw::raw))
        .routes(routes!(apps::attestations::attestations))
        .routes(routes!(apps::tcb_evaluation::tcb_evaluation))
}

/// Authorised by the commit token.
fn commit_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(approvals::commit_update::look, approvals::commit_update::commit))
        .routes(routes!(approvals::commit_replica::look, approvals::commit_replica::commit))
        .layer(DefaultBodyLimit::max(approvals::MAX_BODY_BYTES))
}

/// Authorised by the signature in their URLs.
fn public_streams() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(logs::vm_log)).routes(routes!(logs::container_log))
}

fn cvm_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(cvms::list::list, cvms::create::create))
        .routes(routes!(cvms::create::create_agentapp))
        .routes(routes!(cvms::paginated::paginated))
        .routes(routes!(cvms::provision::provision))
        .routes(routes!(cvms::provision_agentapp::provision_agentapp))
        .routes(routes!(cvms::detail::detail, cvms::delete::delete, cvms::patch::patch))
        .routes(routes!(cvms::start::start))
        .routes(routes!(cvms::stop::stop))
        .routes(routes!(cvms::shutdown::shutdown))
        .routes(routes!(cvms::restart::restart))
        .merge(change_routes())
        .routes(routes!(cvms::attestation::attestation))
        .routes(routes!(cvms::composition::composition))
        .routes(routes!(cvms::operations::operations))
        .routes(routes!(cvms::cancel::cancel))
        .routes(routes!(cvms::operation_status::operation_status))
        .routes(routes!(cvms::batch_status::batch_status))
        .merge(live_routes())
}

/// What changes CVMs, the unified `PATCH` aside, which shares its path.
fn change_routes() -> OpenApiRouter<Arc<Api>> {
    use cvms::compose_file;
    OpenApiRouter::new()
        .routes(routes!(compose_file::compose_file, compose_file::apply, compose_file::replace))
        .routes(routes!(cvms::compose_provision::provision))
        .routes(routes!(cvms::docker_compose::docker_compose))
        .routes(routes!(cvms::docker_compose::update))
        .routes(routes!(cvms::pre_launch_script::pre_launch_script, cvms::pre_launch_script::update))
        .routes(routes!(cvms::envs::envs))
        .routes(routes!(cvms::compose::compose))
        .routes(routes!(cvms::resources::resources))
        .routes(routes!(cvms::os_image::os_image))
        .routes(routes!(cvms::visibility::visibility))
        .routes(routes!(cvms::name::name))
        .routes(routes!(cvms::listed::listed))
        .routes(routes!(cvms::scheduled_delete::scheduled_delete))
        .routes(routes!(cvms::batch_stop::batch_stop))
}

/// How a CVM is now, and how it is connected.
fn live_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(cvms::stats::stats))
        .routes(routes!(cvms::network::network))
        .routes(routes!(cvms::user_config::user_config))
        .routes(routes!(cvms::firewall::firewall_status))
        .routes(routes!(cvms::ports::get, cvms::ports::set))
        .routes(routes!(cvms::network_config::get, cvms::network_config::update))
        .routes(routes!(cvms::domain::diagnose))
        .routes(routes!(cvms::ssh_keys::get, cvms::ssh_keys::set))
}

fn app_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(apps::list::list))
        .routes(routes!(apps::filter_options::filter_options))
        .routes(routes!(apps::detail::detail))
        .routes(routes!(apps::cvms::cvms))
}

fn ssh_key_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(account::ssh_keys::list, account::ssh_keys::create))
        .routes(routes!(account::ssh_keys::delete))
        .routes(routes!(account::ssh_keys::github_profile))
        .routes(routes!(account::ssh_keys::github_sync))
}

/// What adds CVMs to applications.
fn replica_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(cvms::replicas::replicate))
        .routes(routes!(cvms::replicas::replicate_of_app))
        .routes(routes!(apps::instances::add_instance))
        .routes(routes!(cvms::available_os_images::available_os_images))
        .routes(routes!(cvms::instance_id::refresh_one))
        .routes(routes!(cvms::instance_id::refresh_many))
        .routes(routes!(cvms::workload::workload))
}

fn account_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(account::me::me))
        .routes(routes!(account::workspaces::list))
        .routes(routes!(account::workspaces::get))
        .routes(routes!(account::workspaces::nodes))
        .routes(routes!(account::quotas::quotas))
        .routes(routes!(account::tokens::list, account::tokens::create))
        .routes(routes!(account::tokens::delete_self))
        .routes(routes!(account::tokens::delete))
        .routes(routes!(catalogue::teepods::available))
        .routes(routes!(catalogue::os_images::os_images))
        .routes(routes!(images::list))
}

fn kms_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(kms::list::list))
        .routes(routes!(kms::detail::detail))
        .routes(routes!(kms::inspect::inspect))
        .routes(routes!(kms::pubkey::pubkey))
        .routes(routes!(kms::next_app_id::next_app_id))
        .routes(routes!(kms::on_chain::on_chain))
        .routes(routes!(kms::nodes::nodes))
}

/// Who decides about applications, and what they say.
fn governance_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(apps::is_allowed::is_allowed))
        .routes(routes!(apps::is_allowed::cvms_are_allowed))
        .routes(routes!(apps::device_allowlist::device_allowlist))
        .routes(routes!(apps::kms_info::kms_info))
        .routes(routes!(cvms::is_allowed::is_allowed))
        .routes(routes!(apps::owners::get, apps::owners::set))
        .routes(routes!(apps::approvals::list, apps::approvals::approve))
        .routes(routes!(apps::approvals::revoke))
}

/// What brings changes to applications, and their history.
fn rollout_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(apps::revisions::list))
        .routes(routes!(apps::revisions::detail))
        .routes(routes!(apps::revisions::diff))
        .routes(routes!(apps::redeploy::redeploy_app))
        .routes(routes!(apps::redeploy::redeploy_cvm))
        .routes(routes!(apps::pending_updates::list))
        .routes(routes!(apps::pending_updates::preview))
        .routes(routes!(apps::rollouts::list, apps::rollouts::create::create))
        .routes(routes!(apps::rollouts::detail))
        .routes(routes!(apps::rollouts::steer::pause))
        .routes(routes!(apps::rollouts::steer::resume))
        .routes(routes!(apps::rollouts::steer::abort))
}

fn admin_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(admin::drain::get, admin::drain::begin, admin::drain::end))
        .routes(routes!(admin::nodes::list))
        .routes(routes!(admin::nodes::invite))
        .routes(routes!(admin::nodes::maintenance))
        .routes(routes!(admin::nodes::remove))
        .routes(routes!(admin::os_images::retire))
        .routes(routes!(attestations::platforms::platform_list))
}
