//! The sockets on which an application asks its own machine for evidence. The same surface on all of
//! them: the product's own name, and those under which public SDKs look.
//!
//! Any container can open them once they are mounted into it, and none can without.

pub(crate) mod answer;
pub(crate) mod keys;
pub(crate) mod message;
pub(crate) mod methods;
pub(crate) mod quotes;
mod report_data;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method as HttpMethod, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::answer::{ApiError, answer};
use self::message::Message;
use self::methods::Method;
use crate::attestation::Attestation;

/// Where clients look, ours first.
const SOCKETS: [&str; 4] =
    ["/run/cloister.sock", "/run/dstack.sock", "/run/tappd.sock", "/run/dstack/dstack.sock"];
/// As on the public platform: whoever can reach a socket may use it.
const EVERYBODY: u32 = 0o777;

/// Connections that are served at a time on one socket; further ones wait.
const MAX_CONNECTIONS: usize = 64;
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest body, in bytes (platform limit: 10 MiB).
const MAX_BODY_BYTES: usize = 10 << 20;

/// Longest wait for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Bodies above this length are long; one with a quote's bytes and names is not.
const LONG_BODY_BYTES: u64 = 64 << 10;
/// Requests with a long body that are served at a time, so that their bodies fit into the smallest guest.
const MAX_LONG_REQUESTS: usize = 4;
static LONG_REQUESTS: Semaphore = Semaphore::const_new(MAX_LONG_REQUESTS);

/// Opens all sockets and serves them for as long as the agent runs.
pub(crate) fn listen(attestation: &Arc<Attestation>) -> io::Result<()> {
    SOCKETS.iter().try_for_each(|path| listen_at(Path::new(path), Arc::clone(attestation)))
}

fn listen_at(path: &Path, attestation: Arc<Attestation>) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(EVERYBODY))?;
    tokio::spawn(accept(listener, attestation));
    Ok(())
}

async fn accept(listener: UnixListener, attestation: Arc<Attestation>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors or the like: let others end first.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let attestation = Arc::clone(&attestation);
        tokio::spawn(async move {
            serve(stream, &attestation).await;
            drop(slot);
        });
    }
}

async fn serve(stream: UnixStream, attestation: &Attestation) {
    let service =
        service_fn(|request| async move { Ok::<_, Infallible>(respond(attestation, request).await) });
    // A connection that breaks is the peer's affair.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        // A published client looks for `Content-Length` in this spelling.
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Answers one request of the application.
pub(crate) async fn respond<B>(attestation: &Attestation, request: Request<B>) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    answer(&call(attestation, request).await)
}

async fn call<B>(attestation: &Attestation, request: Request<B>) -> Result<serde_json::Value, ApiError>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let method = Method::at(request.uri().path())?;
    let query = request.uri().query().unwrap_or_default().to_owned();
    let in_json = asks_for_json(&query);
    if request.method() == HttpMethod::GET {
        return method.call(attestation, &Message::from_query(&query), !in_json).await;
    }
    if request.method() != HttpMethod::POST {
        return Err(ApiError::Refused("only GET and POST are served here".to_owned()));
    }
    let json_type = request
        .headers()
        .get_all(header::CONTENT_TYPE)
        .iter()
        .any(|value| value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains("json")));
    let body = request.into_body();
    let is_long = body.size_hint().upper().is_none_or(|length| length > LONG_BODY_BYTES);
    // Held until the answer.
    let _place =
        if is_long { Some(LONG_REQUESTS.try_acquire().map_err(|_| ApiError::Crowded)?) } else { None };
    let body = timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await;
    let body = body.map_err(|_| ApiError::TooSlow)?;
    let body = body.map_err(|_| ApiError::TooLong(MAX_BODY_BYTES))?.to_bytes();
    // What begins like an object is no message in the binary form either.
    if !in_json && !json_type && !matches!(body.trim_ascii_start().first(), None | Some(b'{')) {
        return Err(ApiError::Protobuf);
    }
    method.call(attestation, &Message::from_json(&body)?, false).await
}

/// Whether the query has `json`, switched on.
fn asks_for_json(query: &str) -> bool {
    form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "json" && matches!(&*value, "" | "1" | "true"))
}
