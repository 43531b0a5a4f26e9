//! The operations of the described interface, by what they are about.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn;
use utoipa_axum::router::OpenApiRouter;

use super::boxed_handler::routes;
use super::{
    Api, PREFIX, account, admin, approvals, apps, attestations, audit, billing, catalogue, conditional, cvms,
    images, kms, logs, oauth, webhooks,
};

/// Every operation of the described interface.
pub(super) fn operations() -> OpenApiRouter<Api> {
    let all = protected().merge(protected_streams()).merge(public()).merge(public_streams());
    OpenApiRouter::new().nest(PREFIX, all)
}

/// The operations without their descriptions, by what has to stand before them.
pub(super) struct Routers {
    pub(super) protected: Router<Api>,
    pub(super) protected_streams: Router<Api>,
    pub(super) public: Router<Api>,
    pub(super) public_streams: Router<Api>,
}

/// Made once for all instances of the interface in a process: what takes long is to describe them.
pub(super) static ROUTERS: LazyLock<Routers> = LazyLock::new(|| Routers {
    protected: protected().into(),
    protected_streams: protected_streams().into(),
    public: public().into(),
    public_streams: public_streams().into(),
});

fn protected() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .merge(cvm_routes())
        .merge(replica_routes())
        .merge(app_routes())
        .merge(rollout_routes())
        .merge(account_routes())
        .merge(ssh_key_routes())
        .merge(webhook_routes())
        .merge(kms_routes())
        .merge(governance_routes())
        .merge(billing_routes())
        .merge(admin_routes())
        .merge(audit_routes())
}

/// These last longer than any time limit.
pub(super) fn protected_streams() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(cvms::state::state))
        .routes(routes!(webhooks::stream::follow))
        .routes(routes!(images::push))
        .routes(routes!(audit::export::own))
        .routes(routes!(audit::export::of_installation))
        .routes(routes!(admin::os_images::list, admin::os_images::add))
}

fn public() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .merge(evidence_routes())
        .merge(commit_routes())
        .routes(routes!(catalogue::instance_types::list))
        .routes(routes!(catalogue::instance_types::family))
        .routes(routes!(account::devices::code))
        .routes(routes!(account::devices::token))
        .routes(routes!(oauth::token::token))
        .routes(routes!(oauth::revoke::revoke))
}

fn evidence_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(attestations::verify::verify))
        .layer(DefaultBodyLimit::max(attestations::MAX_UPLOAD_BYTES))
        .routes(routes!(catalogue::attestation_nodes::attestation_nodes))
        .routes(routes!(attestations::platforms::ppids))
        .routes(routes!(attestations::platforms::device_ids))
        .routes(routes!(attestations::recent::recent))
        .routes(routes!(attestations::view::view))
        .merge(public_documents())
        .routes(routes!(apps::attestations::attestations))
        .routes(routes!(apps::tcb_evaluation::tcb_evaluation))
}

/// What clients keep, and ask for again only when it is another.
pub(super) fn documents() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(cvms::compose_file::compose_file))
        .routes(routes!(cvms::docker_compose::docker_compose))
        .routes(routes!(cvms::pre_launch_script::pre_launch_script))
        .routes(routes!(cvms::user_config::user_config))
        .layer(from_fn(conditional::tagged))
}

/// The same of what anybody may see.
pub(super) fn public_documents() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(attestations::collateral::collateral))
        .routes(routes!(attestations::raw::raw))
        .layer(from_fn(conditional::tagged))
}

/// Authorised by the commit token.
fn commit_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(approvals::commit_update::look, approvals::commit_update::commit))
        .routes(routes!(approvals::commit_replica::look, approvals::commit_replica::commit))
        .layer(DefaultBodyLimit::max(approvals::MAX_BODY_BYTES))
}

/// Authorised by the signature in their URLs.
fn public_streams() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(logs::vm_log)).routes(routes!(logs::container_log))
}

fn cvm_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(cvms::list::list, cvms::create::create))
        .routes(routes!(cvms::create::create_agentapp))
        .routes(routes!(cvms::from_configuration::pubkey))
        .routes(routes!(cvms::from_configuration::create))
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
fn change_routes() -> OpenApiRouter<Api> {
    use cvms::compose_file;
    OpenApiRouter::new()
        .merge(documents())
        .routes(routes!(compose_file::apply, compose_file::replace))
        .routes(routes!(cvms::compose_provision::provision))
        .routes(routes!(cvms::docker_compose::update))
        .routes(routes!(cvms::pre_launch_script::update))
        .routes(routes!(cvms::official_script::upgrade_status))
        .routes(routes!(cvms::official_script::upgrade))
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
fn live_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(cvms::stats::stats))
        .routes(routes!(cvms::network::network))
        .routes(routes!(cvms::firewall::firewall_status))
        .routes(routes!(cvms::ports::get, cvms::ports::set))
        .routes(routes!(cvms::network_config::get, cvms::network_config::update))
        .routes(routes!(cvms::domain::diagnose))
        .routes(routes!(cvms::ssh_keys::get, cvms::ssh_keys::set))
}

fn app_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(apps::list::list))
        .routes(routes!(apps::filter_options::filter_options))
        .routes(routes!(apps::detail::detail))
        .routes(routes!(apps::cvms::cvms))
}

fn ssh_key_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(account::ssh_keys::list, account::ssh_keys::create))
        .routes(routes!(account::ssh_keys::delete))
        .routes(routes!(account::ssh_keys::github_profile))
        .routes(routes!(account::ssh_keys::github_sync))
}

/// Where events are told to, and what became of them.
fn webhook_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(webhooks::list::list, webhooks::create::create))
        .routes(routes!(webhooks::event_types::event_types))
        .routes(routes!(webhooks::detail::detail, webhooks::update::update, webhooks::delete::delete))
        .routes(routes!(webhooks::reveal_secret::reveal_secret))
        .routes(routes!(webhooks::rotate_secret::rotate_secret))
        .routes(routes!(webhooks::test::test))
        .routes(routes!(webhooks::stats::stats))
        .routes(routes!(webhooks::deliveries::deliveries))
        .routes(routes!(webhooks::attempts::attempts))
        .routes(routes!(webhooks::resend::resend))
        .routes(routes!(webhooks::replay::replay))
}

/// What adds CVMs to applications.
fn replica_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(cvms::replicas::replicate))
        .routes(routes!(cvms::replicas::replicate_of_app))
        .routes(routes!(apps::instances::add_instance))
        .routes(routes!(cvms::available_os_images::available_os_images))
        .routes(routes!(cvms::instance_id::refresh_one))
        .routes(routes!(cvms::instance_id::refresh_many))
        .routes(routes!(cvms::workload::workload))
}

fn account_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(account::me::me))
        .routes(routes!(account::workspaces::list))
        .routes(routes!(account::workspaces::get))
        .routes(routes!(account::workspaces::nodes))
        .routes(routes!(account::quotas::quotas))
        .routes(routes!(account::tokens::list, account::tokens::create))
        .routes(routes!(account::devices::waiting))
        .routes(routes!(account::devices::decide))
        .routes(routes!(oauth::step_up::step_up))
        .routes(routes!(account::tokens::delete_self))
        .routes(routes!(account::tokens::delete))
        .routes(routes!(account::token_refresh::refresh))
        .routes(routes!(catalogue::teepods::available))
        .routes(routes!(catalogue::teepods::create_resources))
        .routes(routes!(catalogue::os_images::os_images))
        .routes(routes!(images::list))
}

fn kms_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(kms::list::list))
        .routes(routes!(kms::detail::detail))
        .routes(routes!(kms::inspect::inspect))
        .routes(routes!(kms::pubkey::pubkey))
        .routes(routes!(kms::next_app_id::next_app_id))
        .routes(routes!(kms::on_chain::on_chain))
        .routes(routes!(kms::nodes::nodes))
}

/// What is used, what it costs, and who pays.
fn billing_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(apps::usage::usage))
        .routes(routes!(apps::budget::get, apps::budget::set, apps::budget::remove))
        .routes(routes!(cvms::estimate::estimate))
        .routes(routes!(billing::workspace::get))
        .routes(routes!(billing::inference::get))
        .routes(routes!(billing::admin::get, billing::admin::set))
        .routes(routes!(billing::admin::credit))
}

/// Who decides about applications, and what they say.
fn governance_routes() -> OpenApiRouter<Api> {
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
fn rollout_routes() -> OpenApiRouter<Api> {
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

fn audit_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(audit::list::own))
        .routes(routes!(audit::list::of_installation))
        .routes(routes!(audit::head::own))
        .routes(routes!(audit::head::of_installation))
}

fn admin_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(admin::drain::get, admin::drain::begin, admin::drain::end))
        .routes(routes!(admin::nodes::list))
        .routes(routes!(admin::nodes::invite))
        .routes(routes!(admin::nodes::maintenance))
        .routes(routes!(admin::nodes::remove))
        .routes(routes!(admin::os_images::retire))
        .routes(routes!(admin::users::list, admin::users::create))
        .routes(routes!(admin::users::link))
        .routes(routes!(admin::users::set_openid))
        .routes(routes!(attestations::platforms::platform_list))
}
