//! One call to one KMS: a connection with this guest's evidence, one request, one answer.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use cloister_kms_api::{KmsError, KmsErrorCode};
use cloister_ra_tls::{
    AttestedCertificate, AttestedKey, Authority, AuthorityConnector, AuthorityHandshakeError,
    AuthorityPolicy, RaTlsError, Subject,
};
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::{Timestamp, ToSpan as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::endpoint::Endpoint;
use super::material::InvalidKeys;
use crate::attestation::{CertificateError, Prover};
use crate::cut;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Longest call, the connection included; as clients of the public platform wait.
const CALL_LIMIT: Duration = Duration::from_mins(1);
/// Longest answer, in bytes: keys of all roots, or three certificates with evidence.
const MAX_ANSWER_BYTES: usize = 512 << 10;
/// What is shown of a KMS's words, in bytes.
const MAX_WORDS: usize = 1024;
/// Clocks may differ by this much.
const LEEWAY_HOURS: i64 = 24;

/// Why a KMS did not give what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("this guest cannot prove itself to the KMS")]
    Prove(#[from] CertificateError),
    #[error("cannot prepare the connection to the KMS")]
    Prepare(#[from] RaTlsError),
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    #[error("cannot trust the KMS")]
    Handshake(#[from] AuthorityHandshakeError),
    #[error("the connection to the KMS broke")]
    Http(#[from] hyper::Error),
    #[error("the KMS did not answer in time")]
    TimedOut,
    #[error("the KMS refuses this CVM: {0}")]
    Refused(KmsError),
    #[error("the KMS cannot help now: {0}")]
    Failed(KmsError),
    #[error("the KMS answered with status {0} and gave no reason")]
    Status(u16),
    #[error("the KMS's answer is longer than {MAX_ANSWER_BYTES} bytes")]
    TooLong,
    #[error("the KMS's answer cannot be read")]
    Answer,
    #[error(transparent)]
    Keys(#[from] InvalidKeys),
    #[error("the KMS changed its root meanwhile")]
    Rotated,
}

/// What follows from an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// A KMS judged this CVM; asking again, or another KMS, would be asking until somebody errs.
    Refused,
    /// This KMS will not do, another one may.
    Unusable,
    /// Trying again later may help.
    Temporary,
}

impl CallError {
    pub(crate) fn outlook(&self) -> Outlook {
        match self {
            Self::Refused(_) => Outlook::Refused,
            Self::Handshake(AuthorityHandshakeError::Server(_))
            | Self::Prepare(_)
            | Self::TooLong
            | Self::Answer
            | Self::Keys(_) => Outlook::Unusable,
            Self::Status(status) if *status < 500 => Outlook::Unusable,
            Self::Failed(error) if error.code == KmsErrorCode::BadRequest => Outlook::Unusable,
            _ => Outlook::Temporary,
        }
    }
}

/// A fresh key and the certificate that proves where it is.
pub(crate) struct Identity {
    key: AttestedKey,
    certificate: AttestedCertificate,
}

impl Identity {
    /// Makes both.
    pub(crate) async fn make(prover: &Prover, now: Timestamp) -> Result<Self, CallError> {
        let key = AttestedKey::generate()?;
        let mut evidence = prover.evidence_for(&key).await?;
        // A KMS reads the versioned form; the older one would only be sent and checked along.
        evidence.quote = None;
        let at = |hours: i64| now.saturating_add(hours.hours()).unwrap_or(now).max(Timestamp::UNIX_EPOCH);
        let mut subject = Subject::new("CVM", Vec::new(), at(-LEEWAY_HOURS), at(LEEWAY_HOURS));
        subject.server = false;
        let certificate = key.certificate(&evidence, &subject, None)?;
        Ok(Self { key, certificate })
    }
}

/// An answer, and whose it is.
pub(crate) struct Answered<T> {
    pub(crate) answer: T,
    pub(crate) authority: Authority,
}

/// Asks one KMS. It must belong to the authority with `root`, if one is known, and to any else.
pub(crate) async fn call<T: DeserializeOwned>(
    endpoint: &Endpoint,
    root: Option<&[u8]>,
    identity: &Identity,
    now: fn() -> Timestamp,
    method: &'static str,
    body: &impl Serialize,
) -> Result<Answered<T>, CallError> {
    let policy = AuthorityPolicy::kms(root.map(<[u8]>::to_vec));
    let own = Some((&identity.key, &identity.certificate));
    let connector = AuthorityConnector::new(policy, own, &["http/1.1"], now)?;
    let body = serde_json::to_vec(body).map_err(|_| CallError::Answer)?;
    // The call holds a whole connection: it lives on the heap.
    let call = Box::pin(exchange(endpoint, &connector, method, body));
    let (authority, status, answer) = timeout(CALL_LIMIT, call).await.map_err(|_| CallError::TimedOut)??;
    if (200..300).contains(&status) {
        let answer = serde_json::from_slice(&answer).map_err(|_| CallError::Answer)?;
        return Ok(Answered { answer, authority });
    }
    Err(refusal(status, &answer))
}

async fn exchange(
    endpoint: &Endpoint,
    connector: &AuthorityConnector,
    method: &'static str,
    body: Vec<u8>,
) -> Result<(Authority, u16, Zeroizing<Vec<u8>>), CallError> {
    let connect = TcpStream::connect((endpoint.host.as_str(), endpoint.port));
    let stream = timeout(CONNECT_LIMIT, connect).await.map_err(|_| CallError::TimedOut)?;
    let stream = stream.map_err(CallError::Connect)?;
    // Fails for a connection that broke, which the handshake will tell.
    let _ = stream.set_nodelay(true);
    let (stream, authority) = connector.connect(endpoint.name.clone(), stream).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = AbortOnDrop(tokio::spawn(connection));
    let host = endpoint.to_string();
    let request = Request::post(format!("{method}?json"))
        .header(header::HOST, host.trim_start_matches("https://"))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .body(Full::new(Bytes::from(body)))
        .map_err(|_| CallError::Answer)?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let answer = collect(response).await?;
    drop(connection);
    Ok((authority, status, answer))
}

/// The body, in one piece of memory that is wiped.
async fn collect(response: Response<Incoming>) -> Result<Zeroizing<Vec<u8>>, CallError> {
    let mut body = response.into_body();
    // Allocated once, so that no part of a key stays behind when it grows.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_ANSWER_BYTES));
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if bytes.len().saturating_add(data.len()) > MAX_ANSWER_BYTES {
            return Err(CallError::TooLong);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn refusal(status: u16, answer: &[u8]) -> CallError {
    let Ok(KmsError { code, error }) = serde_json::from_slice::<KmsError>(answer) else {
        return CallError::Status(status);
    };
    let error = KmsError { code, error: cut::printable(&error, MAX_WORDS) };
    match code {
        KmsErrorCode::Unauthorized
        | KmsErrorCode::MeasurementNotFound
        | KmsErrorCode::KeyNotFound
        | KmsErrorCode::ApprovalsRequired
        | KmsErrorCode::ContractDecides => CallError::Refused(error),
        KmsErrorCode::InternalError | KmsErrorCode::BadRequest | KmsErrorCode::TooManyRequests => {
            CallError::Failed(error)
        }
    }
}

/// Ends a connection with the call that it was made for.
struct AbortOnDrop(tokio::task::JoinHandle<Result<(), hyper::Error>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
