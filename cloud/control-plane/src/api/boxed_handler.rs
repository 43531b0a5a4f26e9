//! Handlers of the described interface, all of one type.

use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use futures_util::future::BoxFuture;

use super::Api;

type Answer = BoxFuture<'static, Response>;

/// A handler behind a pointer: what axum builds around a handler is compiled once, instead of once for each of some two
/// hundred.
#[derive(Clone)]
pub(super) struct BoxedHandler(Arc<dyn Fn(Request, Api) -> Answer + Send + Sync>);

impl BoxedHandler {
    pub(super) fn new<H, T>(handler: H) -> Self
    where
        H: Handler<T, Api, Future = Answer>,
    {
        Self(Arc::new(move |request, api| handler.clone().call(request, api)))
    }
}

impl Handler<(), Api> for BoxedHandler {
    type Future = Answer;

    fn call(self, request: Request, api: Api) -> Answer {
        (self.0)(request, api)
    }
}

/// What [`utoipa_axum::routes`] makes of handlers, with a [`BoxedHandler`] in the place of each. That macro has no name for
/// what it knows of a handler but this arm of its own, which a new version may take away: then this does not compile.
macro_rules! routes {
    ($($handler:path),+ $(,)?) => {{
        let mut schemas = Vec::new();
        let mut paths = utoipa::openapi::path::Paths::new();
        let mut router = axum::routing::MethodRouter::new();
        $(
            let (path, item, methods) = utoipa_axum::routes!(@resolve_types $handler : schemas);
            for method in &methods {
                let filter = utoipa_axum::PathItemExt::to_method_filter(method);
                router = router.on(filter, $crate::api::boxed_handler::BoxedHandler::new($handler));
            }
            paths.add_path_operation(&path, methods, item);
        )+
        (schemas, paths, router)
    }};
}

pub(super) use routes;
