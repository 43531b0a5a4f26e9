//! The guest agent of the machine that the KMS runs in: its evidence and its sealing key.

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
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use zeroize::Zeroizing;

/// Longest answer, in bytes: a quote and an event log.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Longest wait for an answer. Real hardware makes a quote in a second, and callers may queue for it.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Name of the key that seals the state.
const SEALING_KEY: &str = r#"{"path":"kms/state","purpose":"sealing"}"#;

/// The agent's public API on a Unix socket; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    socket: PathBuf,
}

/// Evidence of this machine over bytes of our choice.
#[derive(Debug, Clone)]
pub(crate) struct OwnEvidence {
    /// TDX quote.
    pub(crate) quote: Vec<u8>,
    /// Event log, JSON.
    pub(crate) event_log: String,
    /// The machine's description, JSON.
    pub(crate) vm_config: String,
}

/// Why the agent does not help.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nobody is there.
    #[error("cannot talk to the guest agent at {0}: a KMS needs one for its evidence and its sealing key")]
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
}

#[derive(Deserialize)]
struct Key {
    key: cloister_kms_api::SecretHex,
}

impl OwnEvidence {
    /// As it goes into certificates.
    pub(crate) fn into_certificate_form(self) -> Evidence {
        Evidence { quote: Some(self.quote), event_log: self.event_log, attestation: None }
    }

    /// As one versioned attestation over `report_data`, encoded.
    pub(crate) fn versioned(&self, report_data: &ReportData) -> Result<Vec<u8>, AgentError> {
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
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// A quote over `report_data`.
    pub(crate) async fn quote(&self, report_data: &ReportData) -> Result<OwnEvidence, AgentError> {
        let asked = format!(r#"{{"report_data":"{}"}}"#, hex::encode(report_data));
        let answer: QuoteAnswer = self.post("/GetQuote", asked).await?;
        let quote = hex::decode(&answer.quote).map_err(|_| AgentError::Answer("/GetQuote"))?;
        Ok(OwnEvidence { quote, event_log: answer.event_log, vm_config: answer.vm_config })
    }

    /// The key that this machine, and no other, seals the state with.
    pub(crate) async fn sealing_key(&self) -> Result<Zeroizing<[u8; 32]>, AgentError> {
        let answer: Key = self.post("/GetKey", SEALING_KEY.to_owned()).await?;
        let key = answer.key.as_ref().try_into().map_err(|_| AgentError::Answer("/GetKey"))?;
        Ok(Zeroizing::new(key))
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
