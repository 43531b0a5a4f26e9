//! What goes on by itself until the control plane stops.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::App;
use crate::governance::untold;
use crate::rollouts::{self, Driver};
use crate::webhooks::{self, Dispatcher, DispatcherOptions, Limits};
use crate::{billing, evidence, housekeeping, metering, scheduled_deletes};

/// Starts all of it; the dispatcher of webhooks finishes what is under way and is stopped by itself.
pub(super) fn start(
    app: &Arc<App>,
    rollouts: Option<rollouts::Observer>,
    deliveries: Option<webhooks::Observer>,
    stop: &CancellationToken,
) -> Dispatcher {
    tokio::spawn(evidence::watch(Arc::clone(app), stop.clone()));
    tokio::spawn(Arc::clone(&app.proof_of_cloud).run(stop.clone()));
    tokio::spawn(Arc::clone(&app.kmses).watch(stop.clone()));
    tokio::spawn(scheduled_deletes::run(Arc::clone(app), stop.clone()));
    tokio::spawn(billing::run(Arc::clone(app), stop.clone()));
    tokio::spawn(untold::run(Arc::clone(app), stop.clone()));
    let (store, lifecycle, clock) = (app.store.clone(), app.lifecycle.clone(), app.clock.clone());
    let driver = Driver::new(store, lifecycle, clock, rollouts)
        .under(Arc::clone(&app.kmses), Arc::clone(&app.contracts));
    tokio::spawn(driver.run(stop.clone()));
    tokio::spawn(metering::run(app.store.clone(), app.clock.clone(), stop.clone()));
    tokio::spawn(housekeeping::run(app.store.clone(), app.clock.clone(), stop.clone()));
    Dispatcher::start(DispatcherOptions {
        store: app.store.clone(),
        post: Arc::new(app.outbound.clone()),
        secrets: Arc::clone(&app.webhook_secrets),
        clock: app.clock.clone(),
        token_key: app.log_url_key,
        public_url: app.public_url.clone(),
        limits: Limits::default(),
        figures: Arc::clone(&app.webhook_figures),
        observer: deliveries,
    })
}
