//! The directory: what anybody may know, and the administration. Nothing secret leaves it.

mod admin;
mod log;
mod token;

use std::sync::Arc;

use cloister_kms_api::log::Caller;
use cloister_kms_api::{KmsError, KmsErrorCode, method};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Request};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::door::{Activity, Admission, Answer, Network, Shared, Who, bad, error, json, read, text};
use crate::release::{app_owners, env_public_key, full_name, meta};
pub(crate) use token::AdminToken;
pub use token::AdminTokenError;

const LOG: &str = "/log/";
const ADMINISTRATION: &str = "/prpc/Admin.";

/// One connection of the directory.
pub(crate) struct Visitor {
    shared: Arc<Shared>,
    network: Network,
    admission: Admission,
    activity: Arc<Activity>,
}

impl Visitor {
    pub(crate) const fn new(
        shared: Arc<Shared>,
        network: Network,
        admission: Admission,
        activity: Arc<Activity>,
    ) -> Self {
        Self { shared, network, admission, activity }
    }

    /// Whether the administrator asks. Who does not know the token is told so once for each connection, of
    /// which there are only so many in a second.
    async fn check_administrator(&self, headers: &HeaderMap) -> Result<(), KmsError> {
        let presented = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let presented = presented.and_then(|value| value.strip_prefix("Bearer "));
        if self.shared.admin.as_ref().zip(presented).is_some_and(|(token, presented)| token.is(presented)) {
            return Ok(());
        }
        self.activity.end();
        let reason = match (&self.shared.admin, presented) {
            (None, _) => "this KMS has no administration: it was started without an administrator's token",
            (Some(_), None) => "the administrator's token is missing",
            (Some(_), Some(_)) => "this is not the administrator's token",
        };
        let refusal = KmsError::new(KmsErrorCode::Unauthorized, reason);
        let who = Who::Stranger(self.network);
        Err(self.shared.refusals.note(who, None, Caller::default(), &refusal).await.err().unwrap_or(refusal))
    }
}

/// Answers one request.
pub(crate) async fn answer(visitor: Arc<Visitor>, request: Request<Incoming>) -> Answer {
    if !visitor.admission.request(Instant::now()) {
        visitor.shared.metrics.throttled();
        return error(&KmsError::new(KmsErrorCode::TooManyRequests, "too many requests; ask again later"));
    }
    let (head, body) = request.into_parts();
    route(&visitor, &head, body).await.unwrap_or_else(|refusal| error(&refusal))
}

async fn route(visitor: &Visitor, head: &Parts, body: Incoming) -> Result<Answer, KmsError> {
    let (shared, path) = (&visitor.shared, head.uri.path());
    if let Some(name) = path.strip_prefix(LOG) {
        return log::answer(shared, name, head.uri.query().unwrap_or_default()).await;
    }
    if path.starts_with(ADMINISTRATION) {
        visitor.check_administrator(&head.headers).await?;
        return admin::answer(shared, path, body).await;
    }
    match path {
        "/health" => return health(shared),
        "/metrics" => return Ok(metrics(shared)),
        _ => {}
    }
    match full_name(path).as_deref() {
        Some(method::META) => json(&meta(shared)),
        Some(method::ENV_PUBLIC_KEY) => {
            json(&env_public_key(shared, &read(body, shared.limits.body).await?)?)
        }
        Some(
            method::APP_KEY | method::KEY | method::KMS_KEY | method::SIGN_CERT | method::CONFIRM_RESEAL,
        ) => Err(KmsError::new(
            KmsErrorCode::Unauthorized,
            "keys are released to callers with evidence only, on the port for releases",
        )),
        Some(method::APP_OWNERS) => json(&app_owners(shared, &read(body, shared.limits.body).await?)),
        _ => Err(bad("no such method; see the methods of the directory")),
    }
}

fn health(shared: &Shared) -> Result<Answer, KmsError> {
    if shared.metrics.is_healthy() {
        return Ok(text("OK\n"));
    }
    Err(KmsError::new(
        KmsErrorCode::InternalError,
        "the KMS's own certificate could not be renewed; its log says why",
    ))
}

fn metrics(shared: &Shared) -> Answer {
    let snapshot = shared.keys.snapshot();
    let roots = snapshot.roots.iter().map(|root| (root.info.version, root.info.retired_at.is_none()));
    text(shared.metrics.text(shared.keys.log().size(), roots))
}
