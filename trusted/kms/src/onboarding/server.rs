//! The plain listener of onboarding.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use cloister_kms_api::{KmsError, KmsErrorCode, method};
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::Onboarding;
use crate::door::{Answer, error, json, read, text};
use crate::state::Keys;

/// Connections, and what they have begun, at the same time; further ones wait.
const MAX_CONNECTIONS: usize = 32;
/// Longest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
const HEAD_LIMIT: Duration = Duration::from_secs(10);
const BODY_LIMIT: Duration = Duration::from_secs(10);
/// Longest life of a connection: evidence, roots of another KMS.
const CONNECTION_LIMIT: Duration = Duration::from_mins(3);
/// How long to wait when the system gives no connection, because too many files are open.
const PAUSE: Duration = Duration::from_millis(50);
/// How long connections may take to end once onboarding is finished.
const FAREWELL: Duration = Duration::from_secs(5);

/// What is asked for.
enum Call {
    Bootstrap,
    Onboard,
    AttestationInfo,
    Finish,
}

/// Among [`MAX_CONNECTIONS`]; a connection has it, and what a caller began who did not stay to hear.
type Place = Arc<Option<OwnedSemaphorePermit>>;

/// Serves until onboarding is finished and that was answered, or until `stop`.
pub(crate) async fn serve(
    onboarding: Onboarding,
    listener: &TcpListener,
    stop: &CancellationToken,
) -> Option<Keys> {
    let finished = CancellationToken::new();
    let (places, tasks) = (Arc::new(Semaphore::new(MAX_CONNECTIONS)), TaskTracker::new());
    loop {
        let accept = async {
            // The semaphore is never closed.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accept => accepted,
            () = finished.cancelled() => break,
            () = stop.cancelled() => break,
        };
        let Ok((stream, _)) =
            accepted.inspect_err(|error| warn!(%error, "a connection could not be accepted"))
        else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (onboarding, finished, stop) = (onboarding.clone(), finished.clone(), stop.clone());
        tasks.spawn(connection(onboarding, stream, Arc::new(place), finished, stop));
    }
    tasks.close();
    let _ = tokio::time::timeout(FAREWELL, tasks.wait()).await;
    let keys = onboarding.keys.lock().await.clone();
    keys.filter(|_| finished.is_cancelled())
}

async fn connection(
    onboarding: Onboarding,
    stream: TcpStream,
    place: Place,
    finished: CancellationToken,
    stop: CancellationToken,
) {
    let done = finished.clone();
    let service = service_fn(move |request| {
        let (onboarding, place, finished) = (onboarding.clone(), Arc::clone(&place), done.clone());
        async move { Ok::<_, Infallible>(answer(onboarding, request, place, finished).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT).max_buf_size(MAX_HEAD_BYTES);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = async {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = finished.cancelled() => {}
            () = stop.cancelled() => {}
        }
        // Ends after the answer that is on its way.
        connection.as_mut().graceful_shutdown();
        connection.as_mut().await
    };
    // A caller that breaks off harms nobody.
    let _ = tokio::time::timeout(CONNECTION_LIMIT, ended).await;
}

async fn answer(
    onboarding: Onboarding,
    request: Request<Incoming>,
    place: Place,
    finished: CancellationToken,
) -> Answer {
    let call = match call(&request) {
        Ok(call) => call,
        Err(error) => return refusal(&error),
    };
    let body = request.into_body();
    // What has begun ends, whether or not the caller waits for it.
    let work = tokio::spawn(async move {
        let _place = place;
        match call {
            Call::Bootstrap => json(&onboarding.bootstrap(read(body, BODY_LIMIT).await?).await?),
            Call::Onboard => json(&onboarding.onboard(read(body, BODY_LIMIT).await?).await?),
            Call::AttestationInfo => json(&onboarding.attestation_info().await?),
            Call::Finish => {
                onboarding.finish().await?;
                info!("onboarding is finished");
                finished.cancel();
                Ok(text("OK"))
            }
        }
    });
    match work.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => refusal(&error),
        Err(_) => refusal(&KmsError::new(KmsErrorCode::InternalError, "the KMS is stopping")),
    }
}

fn refusal(refused: &KmsError) -> Response<http_body_util::Full<bytes::Bytes>> {
    warn!(code = %refused.code, error = refused.error, "onboarding refused a request");
    error(refused)
}

/// The call at a path; the service's name may be left out.
fn call(request: &Request<Incoming>) -> Result<Call, KmsError> {
    let path = request.uri().path();
    if path == method::FINISH {
        return only(request, &[Method::GET, Method::POST], Call::Finish);
    }
    let name = |path: &'static str| path.trim_start_matches("/prpc/Onboard.");
    let asked = path.strip_prefix("/prpc/").map(|asked| asked.strip_prefix("Onboard.").unwrap_or(asked));
    match asked {
        Some(asked) if asked == name(method::BOOTSTRAP) => only(request, &[Method::POST], Call::Bootstrap),
        Some(asked) if asked == name(method::ONBOARD) => only(request, &[Method::POST], Call::Onboard),
        Some(asked) if asked == name(method::ATTESTATION_INFO) => {
            only(request, &[Method::GET, Method::POST], Call::AttestationInfo)
        }
        Some("Finish") => only(request, &[Method::GET, Method::POST], Call::Finish),
        _ => Err(KmsError::new(
            KmsErrorCode::BadRequest,
            "this KMS is being onboarded: there are Onboard.Bootstrap, Onboard.Onboard, \
             Onboard.GetAttestationInfo and /finish",
        )),
    }
}

fn only(request: &Request<Incoming>, methods: &[Method], call: Call) -> Result<Call, KmsError> {
    if methods.contains(request.method()) {
        Ok(call)
    } else {
        Err(KmsError::new(
            KmsErrorCode::BadRequest,
            format!("{} is not asked by {}", request.uri().path(), request.method()),
        ))
    }
}
