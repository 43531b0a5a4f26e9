//! The part of the guest agent's API that such a process needs, on a Unix socket.
//!
//! | `POST` | Body | Answer |
//! |---|---|---|
//! | `/GetQuote` | `report_data`, at most 64 bytes in hex | `quote`, `event_log`, `report_data`, `vm_config` |
//! | `/Attest` | the same | `attestation`, versioned form in hex |
//! | `/GetKey` | `path`, `purpose` | `key`, 32 bytes in hex; `signature_chain`, empty |
//! | `/Info` | | identity and measurements |
//!
//! Failures are `{"error": …}`: 400 for a request that cannot be served, 503 while the platform has no
//! certificate. Whoever opens the socket gets evidence in the process's name and its sealing keys, so
//! only the owner of the files can.

use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cloister_evidence::device_id;
use cloister_evidence::report_data::{ReportData, padded};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::{DOCUMENT, HostProcess, KEY_PROVIDER};
use crate::TeeError;
use crate::platform::Platform;
use crate::sealing::MAX_NAME_BYTES;

/// Connections that are served at a time; further ones wait.
const MAX_CONNECTIONS: usize = 32;
/// Longest body, in bytes.
const MAX_BODY_BYTES: usize = 16 << 10;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the platform's certificate.
const CERTIFICATE_PATIENCE: Duration = Duration::from_secs(15);

/// Answers one process until it is dropped.
#[derive(Debug)]
pub struct HostProcessAgent(JoinHandle<()>);

impl Drop for HostProcessAgent {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl HostProcessAgent {
    /// Serves on a Unix socket, replacing one that was left over there. Its directory is made if absent;
    /// one that others may enter is refused. Evidence comes from the platform of the moment, and is waited
    /// for while there is none. Needs a Tokio runtime; the path is limited to 107 bytes.
    pub fn serve(
        socket: &Path,
        process: Arc<HostProcess>,
        platform: watch::Receiver<Option<Arc<Platform>>>,
    ) -> io::Result<Self> {
        let listener = listen(socket)?;
        Ok(Self(tokio::spawn(accept(listener, Machine { process, platform }))))
    }
}

fn listen(socket: &Path) -> io::Result<UnixListener> {
    let dir = socket.parent().ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let found = dir.metadata()?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the directory of the socket belongs to somebody else or is open to others",
        ));
    }
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn accept(listener: UnixListener, machine: Machine) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Dropped with this task, and all connections with it.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors or the like: let others end first.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let machine = machine.clone();
        connections.spawn(async move {
            machine.serve(stream).await;
            drop(place);
        });
    }
}

/// Why a request gets no answer.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("Service not found")]
    Unknown,
    #[error("the body is not the JSON object of this call, or too long, or did not arrive in time")]
    Body,
    #[error("report_data must be hex digits of at most 64 bytes")]
    ReportData,
    #[error("path and purpose have at most {MAX_NAME_BYTES} bytes each")]
    Name,
    #[error("the platform has no certificate yet: its vendor gave none; try again")]
    NoCertificate,
    #[error("the platform cannot make this")]
    Platform,
}

impl Refusal {
    const fn status(&self) -> StatusCode {
        match self {
            Self::NoCertificate => StatusCode::SERVICE_UNAVAILABLE,
            Self::Platform => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl From<TeeError> for Refusal {
    fn from(error: TeeError) -> Self {
        tracing::error!(error = &error as &dyn std::error::Error, "the machine of a host process failed");
        Self::Platform
    }
}

#[derive(Deserialize)]
struct QuoteCall {
    #[serde(default)]
    report_data: String,
}

#[derive(Deserialize)]
struct KeyCall {
    #[serde(default)]
    path: String,
    #[serde(default)]
    purpose: String,
}

#[derive(Clone)]
struct Machine {
    process: Arc<HostProcess>,
    platform: watch::Receiver<Option<Arc<Platform>>>,
}

impl Machine {
    async fn serve(&self, stream: UnixStream) {
        let service =
            service_fn(|request| async move { Ok::<_, Infallible>(answer(self.call(request).await)) });
        // A connection that breaks is the caller's affair.
        let _ = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .title_case_headers(true)
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    async fn call(&self, request: Request<Incoming>) -> Result<Zeroizing<String>, Refusal> {
        let path = request.uri().path().to_owned();
        let is_post = *request.method() == Method::POST;
        let body = timeout(BODY_TIMEOUT, Limited::new(request.into_body(), MAX_BODY_BYTES).collect()).await;
        let body = body.map_err(|_| Refusal::Body)?.map_err(|_| Refusal::Body)?.to_bytes();
        match (path.as_str(), is_post) {
            ("/GetQuote", true) => self.quote(&report_data(&body)?).await,
            ("/Attest", true) => self.attest(&report_data(&body)?).await,
            ("/GetKey", true) => self.key(&read(&body)?),
            ("/Info", _) => self.info().await,
            _ => Err(Refusal::Unknown),
        }
    }

    async fn quote(&self, report_data: &ReportData) -> Result<Zeroizing<String>, Refusal> {
        let quote = self.process.quote(&*self.certified().await?, report_data)?;
        let event_log = serde_json::to_string(self.process.event_log()).map_err(TeeError::Document)?;
        Ok(text(&json!({
            "quote": hex::encode(quote),
            "event_log": event_log,
            "report_data": hex::encode(report_data),
            "vm_config": self.process.vm_config(),
        })))
    }

    async fn attest(&self, report_data: &ReportData) -> Result<Zeroizing<String>, Refusal> {
        let attestation = self.process.attest(&*self.certified().await?, report_data)?;
        Ok(text(&json!({ "attestation": hex::encode(attestation) })))
    }

    fn key(&self, call: &KeyCall) -> Result<Zeroizing<String>, Refusal> {
        if call.path.len() > MAX_NAME_BYTES || call.purpose.len() > MAX_NAME_BYTES {
            return Err(Refusal::Name);
        }
        let key = self.process.sealing_key(&call.path, &call.purpose)?;
        let digits = Zeroizing::new(hex::encode(key.as_slice()));
        Ok(Zeroizing::new(format!(r#"{{"key":"{}","signature_chain":[]}}"#, digits.as_str())))
    }

    async fn info(&self) -> Result<Zeroizing<String>, Refusal> {
        let HostProcess { registers, app_id, compose_hash, os_image_hash, .. } = &*self.process;
        let mr_aggregated = hex::encode(self.process.mr_aggregated());
        let device = hex::encode(device_id(self.certified().await?.ppid()));
        let tcb_info = json!({
            "mrtd": registers.mrtd,
            "rtmr0": registers.rtmr0,
            "rtmr1": registers.rtmr1,
            "rtmr2": registers.rtmr2,
            "rtmr3": registers.rtmr3,
            "mr_aggregated": mr_aggregated,
            "os_image_hash": os_image_hash.to_string(),
            "compose_hash": compose_hash.to_string(),
            "device_id": device,
            "event_log": self.process.event_log(),
            "app_compose": DOCUMENT,
        });
        Ok(text(&json!({
            "app_id": app_id.to_string(),
            "instance_id": "",
            "app_cert": "",
            "tcb_info": tcb_info.to_string(),
            "app_name": "host-process",
            "device_id": device,
            "mr_aggregated": mr_aggregated,
            "os_image_hash": os_image_hash.to_string(),
            "key_provider_info": KEY_PROVIDER,
            "compose_hash": compose_hash.to_string(),
            "vm_config": self.process.vm_config(),
        })))
    }

    /// The platform, once it has a certificate.
    async fn certified(&self) -> Result<Arc<Platform>, Refusal> {
        let mut platform = self.platform.clone();
        let known = timeout(CERTIFICATE_PATIENCE, platform.wait_for(Option::is_some)).await;
        let known = known.map_err(|_| Refusal::NoCertificate)?.map_err(|_| Refusal::NoCertificate)?;
        known.clone().ok_or(Refusal::NoCertificate)
    }
}

fn report_data(body: &Bytes) -> Result<ReportData, Refusal> {
    let call: QuoteCall = read(body)?;
    let digits = call.report_data.strip_prefix("0x").unwrap_or(&call.report_data);
    hex::decode(digits).ok().and_then(|bytes| padded(&bytes)).ok_or(Refusal::ReportData)
}

fn read<'a, T: Deserialize<'a>>(body: &'a Bytes) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|_| Refusal::Body)
}

fn text(value: &Value) -> Zeroizing<String> {
    Zeroizing::new(value.to_string())
}

fn answer(result: Result<Zeroizing<String>, Refusal>) -> Response<Full<Bytes>> {
    let (status, body) = match result {
        Ok(body) => (StatusCode::OK, Bytes::copy_from_slice(body.as_bytes())),
        Err(refusal) => (refusal.status(), Bytes::from(json!({ "error": refusal.to_string() }).to_string())),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
