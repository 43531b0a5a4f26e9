//! What a route's breaker is told of an attempt.

use std::sync::Arc;

use crate::gateway::Gateway;
use crate::routing::Route;

/// Tells a route's breaker how an attempt went. One that is dropped says nothing about the route: the client left,
/// or the fault was another's.
#[derive(Debug)]
pub(super) struct Watch {
    gateway: Arc<Gateway>,
    route: Option<Arc<Route>>,
}

impl Watch {
    pub(super) fn new(gateway: &Arc<Gateway>, route: &Arc<Route>) -> Self {
        Self { gateway: Arc::clone(gateway), route: Some(Arc::clone(route)) }
    }

    /// The first of a stream came.
    pub(super) fn began(&self) {
        if let Some(route) = &self.route {
            route.breaker.began();
        }
    }

    /// The whole answer came.
    pub(super) fn succeeded(mut self) {
        if let Some(route) = self.route.take() {
            route.breaker.succeeded();
        }
    }

    /// It did not, by the route's own fault.
    pub(super) fn failed(mut self) {
        if let Some(route) = self.route.take() {
            route.breaker.failed(self.gateway.now());
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(route) = &self.route {
            route.breaker.withdrawn(self.gateway.now());
        }
    }
}
