//! The guest agent of the machine that a service runs in: its evidence, its keys, and what it measured.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use cloister_evidence::report_data::ReportData;
use cloister_evidence::{EventLog, PlatformEvidence, RUNTIME_EVENT_TYPE, RuntimeEvent, VersionedAttestation};
use cloister_ra_tls::Evidence;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use zeroize::Zeroizing;

/// Longest answer, in bytes: a quote and an event log.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Longest wait for an answer. Real hardware makes a quote in a second, and callers may queue for it.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The agent's public API on a Unix socket; cheap to clone.
#[derive(Debug, Clone)]
pub struct Agent {
    socket: PathBuf,
}

/// Evidence of this machine over bytes of our choice.
#[derive(Debug, Clone)]
pub struct OwnEvidence {
    /// TDX quote.
    pub quote: Vec<u8>,
    /// Event log, JSON.
    pub event_log: String,
    /// The machine's description, JSON.
    pub vm_config: String,
    /// A versioned attestation, on platforms that make no TDX quotes; `quote` is empty there.
    pub attestation: Option<Vec<u8>>,
}

/// Which key of the application, by its place and what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct KeyName {
    /// Its place, such as `kms/state`. The secret depends on this alone.
    pub path: &'static str,
    /// What it is for: part of what is signed about its public side.
    pub purpose: &'static str,
    /// Whose public side is signed: `secp256k1` or `ed25519`.
    pub algorithm: &'static str,
}

/// A key of the application, and who vouches for its public side.
pub struct AppKey {
    /// The secret.
    pub secret: Zeroizing<[u8; 32]>,
    /// Signatures in hex: of the application's key over this one, of the root over the application's.
    pub signature_chain: Vec<String>,
}

/// Without the secret.
impl fmt::Debug for AppKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AppKey")
            .field("signature_chain", &self.signature_chain)
            .finish_non_exhaustive()
    }
}

/// What the machine says about itself. None of it is proof: evidence is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// The application, hex.
    pub app_id: String,
    /// The compose document, byte for byte; empty where the agent does not tell.
    pub app_compose: String,
}

/// Why the agent does not help.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nobody is there.
    #[error("cannot talk to the guest agent at {0}, which gives evidence and keys")]
    Connect(PathBuf, #[source] io::Error),
    /// The connection broke.
    #[error("the guest agent broke the connection")]
    Http(#[from] hyper::Error),
    /// It took too long.
    #[error("the guest agent did not answer within {} seconds", TIME_LIMIT.as_secs())]
    TimedOut,
    /// It refused.
    #[error("the guest agent refused {path}: status {status}")]
    Refused {
        /// What was asked for.
        path: &'static str,
        /// Its answer.
        status: u16,
    },
    /// Its answer is not what it should be. What it was may be a secret, and is not repeated.
    #[error("the guest agent's answer to {0} cannot be understood or is too long")]
    Answer(&'static str),
}

#[cfg(test)]
mod tests;

#[derive(Deserialize)]
struct QuoteAnswer {
    quote: String,
    event_log: String,
    #[serde(default)]
    vm_config: String,
    #[serde(default)]
    attestation: String,
}

#[derive(Deserialize)]
struct KeyAnswer {
    key: cloister_kms_api::SecretHex,
    #[serde(default)]
    signature_chain: Vec<String>,
}

#[derive(Deserialize)]
struct InfoAnswer {
    app_id: String,
    /// JSON.
    #[serde(default)]
    tcb_info: String,
}

#[derive(Deserialize)]
struct TcbInfo {
    #[serde(default)]
    app_compose: String,
}

impl OwnEvidence {
    /// As it goes into certificates.
    #[must_use]
    pub fn into_certificate_form(self) -> Evidence {
        Evidence { quote: Some(self.quote), event_log: self.event_log, attestation: None }
    }

    /// As one versioned attestation over `report_data`, encoded.
    pub fn versioned(&self, report_data: &ReportData) -> Result<Vec<u8>, AgentError> {
        let unreadable = || AgentError::Answer("/GetQuote");
        let log = EventLog::parse(&self.event_log).map_err(|_| unreadable())?;
        let runtime = log.entries().iter().filter(|entry| entry.event_type == RUNTIME_EVENT_TYPE);
        let runtime_events = runtime
            .map(|entry| Ok(RuntimeEvent::new(&*entry.event, hex::decode(&entry.event_payload)?)))
            .collect::<Result<_, hex::FromHexError>>()
            .map_err(|_| unreadable())?;
        VersionedAttestation {
            evidence: PlatformEvidence::Tdx { quote: self.quote.clone(), event_log: log.entries().to_vec() },
            runtime_events,
            report_data: *report_data,
            config: self.vm_config.clone(),
        }
        .encode()
        .map_err(|_| unreadable())
    }
}

impl Agent {
    /// The agent behind this socket.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// A quote over `report_data`.
    pub async fn quote(&self, report_data: &ReportData) -> Result<OwnEvidence, AgentError> {
        let asked = format!(r#"{{"report_data":"{}"}}"#, hex::encode(report_data));
        let answer: QuoteAnswer = self.post("/GetQuote", asked).await?;
        let bytes = |text: &str| hex::decode(text).map_err(|_| AgentError::Answer("/GetQuote"));
        let attestation = (!answer.attestation.is_empty()).then(|| bytes(&answer.attestation)).transpose()?;
        Ok(OwnEvidence {
            quote: bytes(&answer.quote)?,
            event_log: answer.event_log,
            vm_config: answer.vm_config,
            attestation,
        })
    }

    /// A key of the application that runs here: the same on all its machines.
    pub async fn key(&self, name: &KeyName) -> Result<AppKey, AgentError> {
        let asked = serde_json::to_string(name).map_err(|_| AgentError::Answer("/GetKey"))?;
        let answer: KeyAnswer = self.post("/GetKey", asked).await?;
        let secret = answer.key.as_ref().try_into().map_err(|_| AgentError::Answer("/GetKey"))?;
        Ok(AppKey { secret: Zeroizing::new(secret), signature_chain: answer.signature_chain })
    }

    /// What the machine says about itself.
    pub async fn info(&self) -> Result<Info, AgentError> {
        let answer: InfoAnswer = self.post("/Info", "{}".to_owned()).await?;
        let tcb_info: TcbInfo = match answer.tcb_info.as_str() {
            "" => TcbInfo { app_compose: String::new() },
            text => serde_json::from_str(text).map_err(|_| AgentError::Answer("/Info"))?,
        };
        Ok(Info { app_id: answer.app_id, app_compose: tcb_info.app_compose })
    }

    async fn post<T: DeserializeOwned>(&self, path: &'static str, body: String) -> Result<T, AgentError> {
        let answer = tokio::time::timeout(TIME_LIMIT, self.exchange(path, body))
            .await
            .map_err(|_| AgentError::TimedOut)??;
        serde_json::from_slice(&answer).map_err(|_| AgentError::Answer(path))
    }

    async fn exchange(&self, path: &'static str, body: String) -> Result<Zeroizing<Vec<u8>>, AgentError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| AgentError::Connect(self.socket.clone(), error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends with the exchange, which drops the sender.
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| AgentError::Answer(path))?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        connection.abort();
        if status != StatusCode::OK {
            return Err(AgentError::Refused { path, status: status.as_u16() });
        }
        Ok(Zeroizing::new(body.map_err(|_| AgentError::Answer(path))?.to_bytes().to_vec()))
    }
}
