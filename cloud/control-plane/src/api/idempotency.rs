//! `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header): a change that is asked for again under the same name has
//! its effect once, and gets the answer of then.
//!
//! A run of a request is noted before it begins; its effect is noted in the transaction that makes it, and its answer
//! behind that. Whoever dies in between leaves either nothing, and the next run begins anew, or an effect without an
//! answer, and the next run is told so. What asks to be repeated (`Retry-After`) leaves the name free, and a failure of
//! ours is nobody's answer. Answers can hold secrets, such as new API keys: they are sealed under the API key
//! of the request, of which the database has a hash only.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::response::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use tracing::Instrument;
use zeroize::Zeroizing;

use super::auth::{Auth, credential};
use super::error::{ApiError, ApiResult, RETRY_AFTER_S};
use super::guard::{RequestId, keep_body, written};
use super::negotiate::Version;
use super::{Api, MAX_BODY_BYTES, REQUEST_TIMEOUT};
use crate::audit::{self, Scope};
use crate::housekeeping::KEPT_REQUESTS;
use crate::sealing::{SealError, Sealer, derived};
use crate::store::{Begun, Ending, KeptAnswer, NamedRequest, Run, Times};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says of an answer that it is one of before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
const MAX_KEY_BYTES: usize = 255;
/// Requests of a workspace that are remembered at the same time; beyond it the oldest is forgotten.
const MAX_KEPT: i64 = 20_000;
/// Operations whose answer is shown with a record each time, and never from before.
pub(super) const NOT_KEPT: [&str; 1] = ["reveal_webhook_secret"];
/// Largest answer; none that a change gets comes near.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// A run that lasts longer died: requests have a time limit.
const RUNS_AT_MOST: Duration = REQUEST_TIMEOUT.saturating_mul(2);

/// A request with a name of the client's.
struct Named {
    api_key_id: i64,
    workspace_id: i64,
    key_hash: String,
    fingerprint: String,
    sealer: Sealer,
    request_id: Option<RequestId>,
}

/// Layer of what may change something.
pub(super) async fn once(State(api): State<Api>, request: Request, next: Next) -> ApiResult<Response> {
    let is_creating = matches!(*request.method(), Method::POST | Method::PATCH);
    // Without a scope it changes nothing.
    let scope = audit::current().filter(|scope| is_creating && !NOT_KEPT.contains(&scope.operation));
    let (Some(key), Some(scope)) = (name(&request)?, scope) else {
        return Ok(next.run(request).await);
    };
    let (named, request) = identified(request, &key).await?;
    // To the end, also when the client leaves: it comes back with the same name and wants the answer.
    let work = async move { run(&api, &named, scope, request, next).await };
    tokio::spawn(work.in_current_span()).await.map_err(|error| ApiError::internal(&error))?
}

async fn run(
    api: &Api,
    named: &Named,
    scope: Arc<Scope>,
    request: Request,
    next: Next,
) -> ApiResult<Response> {
    let run = match begin(api, named).await? {
        Begun::Runs(run) => run,
        Begun::Answered(answer) => return replay(named, &answer),
        refused => return Err(refusal(&refused)),
    };
    scope.is_run(run.clone());
    let response = audit::within(scope, next.run(request)).await;
    end(api, named, &run, response).await
}

/// What the client calls the request.
fn name(request: &Request) -> ApiResult<Option<Zeroizing<String>>> {
    let Some(value) = request.headers().get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| {
        (1..=MAX_KEY_BYTES).contains(&text.len()) && text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
    });
    let fault = || {
        let message = format!("Input should be 1 to {MAX_KEY_BYTES} printable ASCII characters");
        ApiError::fault(&["header", "Idempotency-Key"], "value_error", message)
    };
    text.map(|text| Some(Zeroizing::new(text.to_owned()))).ok_or_else(fault)
}

/// Reads the request to its end, to know it again.
async fn identified(request: Request, key: &str) -> ApiResult<(Named, Request)> {
    let (mut parts, body) = request.into_parts();
    let Auth(caller) = Auth::from_request_parts(&mut parts, &()).await?;
    let Version(version) = Version::from_request_parts(&mut parts, &()).await?;
    let body = to_bytes(body, MAX_BODY_BYTES)
        .await
        .map_err(|_| ApiError::of_status(StatusCode::PAYLOAD_TOO_LARGE))?;
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let mut hash = Sha256::new();
    for part in [parts.method.as_str(), target, version.as_str()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(&body);
    let named = Named {
        api_key_id: caller.api_key_id,
        workspace_id: caller.workspace_id,
        key_hash: hex::encode(Sha256::digest(key)),
        fingerprint: hex::encode(hash.finalize()),
        sealer: sealer(credential(&parts.headers).unwrap_or_default(), key)
            .map_err(|error| ApiError::internal(&error))?,
        request_id: parts.extensions.get().cloned(),
    };
    Ok((named, Request::from_parts(parts, Body::from(body))))
}

/// What answers are sealed with: nobody without the API key makes it.
fn sealer(credential: &str, key: &str) -> Result<Sealer, SealError> {
    Sealer::new(&*derived(credential.as_bytes(), b"cloister-idempotent-answer", key.as_bytes())?)
}

async fn begin(api: &Api, named: &Named) -> ApiResult<Begun> {
    let times = Times { now_ms: api.clock.now_ms(), running: RUNS_AT_MOST, kept: KEPT_REQUESTS };
    let request = NamedRequest {
        api_key_id: named.api_key_id,
        workspace_id: named.workspace_id,
        key_hash: &named.key_hash,
        fingerprint: &named.fingerprint,
    };
    let mut change = api.store.upkeep().await?;
    let begun = change.begin_run(request, times, MAX_KEPT).await?;
    change.commit().await?;
    Ok(begun)
}

fn refusal(begun: &Begun) -> ApiError {
    let (status, detail) = match begun {
        Begun::IsAnother => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "This Idempotency-Key was used for another request in the last 24 hours; take a new one",
        ),
        Begun::AnswerLost => (
            StatusCode::CONFLICT,
            "The request had its effect, but its answer was lost; look at what there is, and take a new \
             Idempotency-Key for anything else",
        ),
        Begun::TooMany => {
            let detail = "Too many requests of this workspace are being carried out; repeat it later";
            return ApiError::plain(StatusCode::TOO_MANY_REQUESTS, detail).retry_after(RETRY_AFTER_S);
        }
        Begun::RunsAlready | Begun::Runs(_) | Begun::Answered(_) => {
            let detail = "The same request is being carried out; repeat it later for its answer";
            return ApiError::plain(StatusCode::CONFLICT, detail).retry_after(1);
        }
    };
    ApiError::plain(status, detail)
}

fn replay(named: &Named, answer: &KeptAnswer) -> ApiResult<Response> {
    let body = named
        .sealer
        .open(named.key_hash.as_bytes(), &answer.sealed)
        .map_err(|error| ApiError::internal(&error))?;
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let mut response = (status, Body::from(Bytes::copy_from_slice(&body))).into_response();
    response.headers_mut().remove(CONTENT_TYPE);
    if let Some(content_type) = answer.content_type.as_deref().and_then(|text| text.parse().ok()) {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    keep_body(&mut response);
    Ok(response)
}

/// Keeps the answer of a run, and gives it, kept or not.
async fn end(api: &Api, named: &Named, run: &Run, response: Response) -> ApiResult<Response> {
    let request_id = named.request_id.as_ref().map_or("", |RequestId(id)| &**id);
    let (parts, body) = written(api, response, request_id).into_parts();
    let body = to_bytes(body, MAX_ANSWER_BYTES).await.map_err(|error| ApiError::internal(&error))?;
    if let Err(error) = keep(api, named, run, &parts, &body).await {
        tracing::error!(error = &*error as &dyn Error, "an answer is not kept for its Idempotency-Key");
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

async fn keep(
    api: &Api,
    named: &Named,
    run: &Run,
    parts: &Parts,
    body: &[u8],
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let status = parts.status;
    let ending = if parts.headers.contains_key(RETRY_AFTER) {
        Ending::Again
    } else if status.is_server_error() {
        Ending::Failure
    } else {
        let sealed = named.sealer.seal(named.key_hash.as_bytes(), body.to_vec(), api.random)?;
        let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.map(str::to_owned);
        let answer = KeptAnswer { status: status.as_u16(), content_type, sealed };
        if status.is_success() { Ending::Success(answer) } else { Ending::Refusal(answer) }
    };
    let mut change = api.store.upkeep().await?;
    change.end_run(run, &ending).await?;
    Ok(change.commit().await?)
}
