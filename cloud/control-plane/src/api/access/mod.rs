//! What the holder of a key may do, decided before anything else is looked at; and whose change a request is, for the
//! audit log.

mod table;

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::RequestExt;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use cloister_management_api::{AuditActor, KeyScope};

use super::error::{ApiError, ApiResult};
use super::guard::RequestId;
use super::{Api, PREFIX};
use crate::audit::{self, INSTALLATION, Named, Scope};
use crate::store::Caller;

/// Longest name of a target that a request is believed.
const MAX_NAME: usize = 200;
/// Operations that are not part of the described interface.
const UNLISTED: &[Rule] = &[Rule {
    method: "GET",
    path: "/metrics",
    operation: "metrics",
    access: Access::Key(KeyScope::Read),
    changes: None,
}];

/// What an operation asks of whoever wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing.
    Public,
    /// A URL that was signed for it.
    SignedUrl,
    /// The token of a prepared change.
    CommitToken,
    /// A key, whatever it may do.
    AnyKey,
    /// A key whose scope includes this one.
    Key(KeyScope),
}

/// One operation and what it asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) operation: &'static str,
    pub(super) access: Access,
    /// What kind of thing it changes; `None` when it changes nothing of anybody.
    pub(super) changes: Option<&'static str>,
}

static BY_ROUTE: LazyLock<HashMap<(&'static str, &'static str), &'static Rule>> = LazyLock::new(|| {
    table::RULES.iter().chain(UNLISTED).map(|rule| ((rule.method, rule.path), rule)).collect()
});

/// The rule for a route.
fn rule(method: &Method, path: &str) -> Option<&'static Rule> {
    let method = if method == Method::HEAD { Method::GET.as_str() } else { method.as_str() };
    let path = path.strip_prefix(PREFIX).unwrap_or(path).replace("{*", "{");
    BY_ROUTE.get(&(method, path.as_str())).copied()
}

/// The rule for an operation of the document.
pub(super) fn rule_named(operation: &str) -> Option<&'static Rule> {
    table::RULES.iter().find(|rule| rule.operation == operation)
}

fn rule_of(request: &Request) -> Option<&'static Rule> {
    let path = request.extensions().get::<MatchedPath>()?;
    rule(request.method(), path.as_str())
}

/// What is asked for; nothing when it is no operation of the document.
pub(super) fn operation(request: &Request) -> &'static str {
    rule_of(request).map_or("", |rule| rule.operation)
}

/// Refuses a key whose scope is not enough for what it is used for. What has no rule needs all.
pub(super) fn check(request: &Request, caller: &Caller) -> ApiResult<()> {
    let needed = match rule_of(request).map(|rule| rule.access) {
        Some(Access::AnyKey) => return Ok(()),
        Some(Access::Key(needed)) => needed,
        Some(Access::Public | Access::SignedUrl | Access::CommitToken) | None => KeyScope::Admin,
    };
    if caller.scope.includes(needed) {
        return Ok(());
    }
    Err(ApiError::forbidden(&format!(
        "This API key has the scope '{}'; this needs a key of scope '{needed}'. Who has one of scope 'admin' makes others",
        caller.scope
    )))
}

/// Runs the rest of a request; what it changes is recorded as the change of the key's holder.
pub(super) async fn recorded(api: &Api, request: Request, caller: &Caller, next: Next) -> Response {
    let chain = match rule_of(&request) {
        Some(rule) if rule.path.starts_with("/admin/") => INSTALLATION,
        _ => caller.workspace_id,
    };
    match scope(api, request, audit::key_holder(caller)).await {
        (request, Some(scope)) => audit::within(scope.in_chain(chain), next.run(request)).await,
        (request, None) => next.run(request).await,
    }
}

/// Layer of what is authorised by a commit token: whose chain it is, is known when the token is.
pub(super) async fn by_token(State(api): State<Api>, request: Request, next: Next) -> Response {
    if rule_of(&request).is_none_or(|rule| rule.access != Access::CommitToken) {
        return next.run(request).await;
    }
    match scope(&api, request, audit::token_holder()).await {
        (request, Some(scope)) => audit::within(scope, next.run(request)).await,
        (request, None) => next.run(request).await,
    }
}

/// The audit scope of a request that changes something, or whose route has no rule.
async fn scope(api: &Api, mut request: Request, actor: AuditActor) -> (Request, Option<Scope>) {
    let rule = rule_of(&request);
    let (operation, kind) = match rule {
        Some(Rule { operation, changes: Some(kind), .. }) => (*operation, *kind),
        Some(Rule { changes: None, .. }) => return (request, None),
        None if request.method().is_safe() => return (request, None),
        None => ("unlisted", ""),
    };
    let named = match request.extract_parts::<RawPathParams>().await {
        Ok(parameters) => {
            parameters.iter().next().map_or("", |(_, value)| value).chars().take(MAX_NAME).collect()
        }
        Err(_) => String::new(),
    };
    let id = request.extensions().get::<RequestId>().map(|RequestId(id)| id.to_string());
    let scope = Scope::new(actor, operation, Named { kind, id: named }, api.clock.clone());
    (request, Some(scope.of_request(id)))
}

#[cfg(test)]
pub(super) fn rules() -> &'static [Rule] {
    table::RULES
}
