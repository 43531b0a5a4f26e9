//! Connections to upstreams: pooled, limited in time, and pinned where the upstream was verified.

mod answer;
mod client;
mod connector;
#[cfg(test)]
pub(crate) mod fake;
mod http1;
pub(crate) mod names;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use parking_lot::Mutex;
use tokio::time::timeout;
use url::{Position, Url};

use crate::config::{ProviderKind, UpstreamConfig};
use crate::verification::Verified;

pub use answer::{Answer, MAX_BODY_BYTES, ReadFailure};
use client::{Client, Manner, Outgoing};
use tls::Pin;

/// What Anthropic's interface is called with.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");
/// What the gateway calls itself.
const NAME: HeaderValue = HeaderValue::from_static("cloister-inference-gateway");
/// Sets of pins whose connections are kept: that of a new session and those that end.
const PINNED_CLIENTS: usize = 4;

/// Why nothing came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendFailure {
    /// There is no connection.
    #[error("the upstream could not be reached")]
    Unreachable,
    /// The connection broke.
    #[error("the connection to the upstream broke")]
    Transport,
    /// A limit in time passed.
    #[error("the upstream timed out")]
    TimedOut,
    /// The TLS key is none of the pins. Nothing was sent over this connection.
    #[error("the upstream's TLS key is not the verified one")]
    Mismatch,
}

/// A request that was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unanswered {
    /// What happened last.
    pub why: SendFailure,
    /// The same in the words of the libraries, for the operator alone: they name hosts. Empty where there is no more to say.
    pub cause: String,
    /// Whether bytes of the request may have gone out, at the last try or at one before it.
    pub may_be_out: bool,
}

impl Unanswered {
    const fn unsent(why: SendFailure) -> Self {
        Self { why, cause: String::new(), may_be_out: false }
    }
}

/// Why there is no client for an upstream. The text holds no credential.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The TLS library refuses its configuration.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The file of authorities cannot be used.
    #[error("the authorities in {} cannot be used: {why}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A credential that no header can hold.
    #[error("the credential has characters that no header can hold")]
    Credential,
}

/// Speaks with one upstream; cheap to clone.
#[derive(Clone)]
pub struct Upstream(Arc<Inner>);

struct Inner {
    name: String,
    /// Where it answers; paths of requests with a body are added to it.
    base: Url,
    manner: Manner,
    /// Of requests with a body: credentials among them.
    headers: HeaderMap,
    by_authorities: Client,
    /// The last used one last.
    pinned: Mutex<Vec<(Box<[Pin]>, Client)>>,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Upstream").field(&self.0.name).finish()
    }
}

impl Upstream {
    /// For an upstream. Reads its file of authorities.
    pub fn new(config: &UpstreamConfig) -> Result<Self, UpstreamError> {
        let manner = Manner {
            connect: Duration::from_secs(config.timeouts.connect.into()),
            is_https_only: false,
            is_http2: config.http2,
        };
        let tls = tls::by_authorities(config.ca_file.as_deref())?;
        let by_authorities = Client::new(tls, manner, &config.base_url);
        Ok(Self(Arc::new(Inner {
            name: config.name.clone(),
            base: config.base_url.clone(),
            manner,
            headers: headers(config)?,
            by_authorities,
            pinned: Mutex::new(Vec::new()),
        })))
    }

    /// Sends a request to a path that begins with a slash and stands as in a URL, over a channel that only the verified
    /// machine can end where there is one. Of headers, these, the content type and the configured credentials are sent.
    /// Answers when the head of the answer is there, which may take so long. A connection that breaks before that is
    /// tried once more: nothing was produced.
    pub async fn post(
        &self,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
        channel: Option<&Verified>,
        patience: Duration,
    ) -> Result<Answer, Unanswered> {
        let client = match channel {
            None => self.0.by_authorities.clone(),
            Some(channel) => self.pinned(&channel.pins).map_err(Unanswered::unsent)?,
        };
        let path = target([self.0.base.path().trim_end_matches('/'), path].concat())?;
        let outgoing = Outgoing { method: Method::POST, path, fixed: &self.0.headers, headers, body };
        answer(&client, &outgoing, patience).await
    }

    /// Asks for what stands at a path of the origin, over a channel that only the verified machine can end. No
    /// credential is sent. Otherwise like [`Self::post`].
    pub async fn get(
        &self,
        path: &str,
        query: &[(&str, &str)],
        headers: &[(HeaderName, HeaderValue)],
        channel: &Verified,
        patience: Duration,
    ) -> Result<Answer, Unanswered> {
        let client = self.pinned(&channel.pins).map_err(Unanswered::unsent)?;
        let mut url = self.0.base.clone();
        url.set_path(path);
        url.query_pairs_mut().extend_pairs(query);
        let (path, fixed) =
            (target(url[Position::BeforePath..Position::AfterQuery].to_owned())?, &own_headers());
        let outgoing = Outgoing { method: Method::GET, path, fixed, headers, body: Bytes::new() };
        answer(&client, &outgoing, patience).await
    }

    /// The client whose connections end at one of the pins and nowhere else.
    fn pinned(&self, pins: &[Pin]) -> Result<Client, SendFailure> {
        // Without TLS there is no key to be seen, and without pins none to be accepted.
        if self.0.base.scheme() != "https" || pins.is_empty() {
            return Err(SendFailure::Mismatch);
        }
        let mut pins: Box<[Pin]> = pins.into();
        pins.sort_unstable();
        let mut clients = self.0.pinned.lock();
        let known = clients.iter().position(|(known, _)| *known == pins).map(|at| clients.remove(at).1);
        let client = if let Some(client) = known {
            client
        } else {
            let tls = tls::by_pins(&pins).map_err(|_| SendFailure::Unreachable)?;
            Client::new(tls, Manner { is_https_only: true, ..self.0.manner }, &self.0.base)
        };
        let oldest = (clients.len() >= PINNED_CLIENTS).then(|| clients.remove(0));
        clients.push((pins, client.clone()));
        drop(clients);
        // Its connections are closed, for which nobody else is to wait.
        drop(oldest);
        Ok(client)
    }
}

/// What every request has.
fn own_headers() -> HeaderMap {
    HeaderMap::from_iter([(USER_AGENT, NAME), (ACCEPT, HeaderValue::from_static("*/*"))])
}

fn headers(config: &UpstreamConfig) -> Result<HeaderMap, UpstreamError> {
    let mut headers = own_headers();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if config.provider == ProviderKind::Anthropic {
        headers.insert(HeaderName::from_static("anthropic-version"), ANTHROPIC_VERSION);
    }
    let Some(token) = &config.bearer_token else { return Ok(headers) };
    let (name, value) = match config.provider {
        ProviderKind::Anthropic => (HeaderName::from_static("x-api-key"), token.expose().to_owned()),
        ProviderKind::OpenaiCompatible | ProviderKind::AciService if config.basic_auth => {
            (AUTHORIZATION, format!("Basic {}", STANDARD.encode(token.expose())))
        }
        ProviderKind::OpenaiCompatible | ProviderKind::AciService => {
            (AUTHORIZATION, format!("Bearer {}", token.expose()))
        }
    };
    let mut value = HeaderValue::try_from(value).map_err(|_| UpstreamError::Credential)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(headers)
}

async fn answer(client: &Client, outgoing: &Outgoing<'_>, patience: Duration) -> Result<Answer, Unanswered> {
    let answer = timeout(patience, pin!(client.send(outgoing))).await;
    // How far it came by then is not known.
    let too_late = |_| Unanswered {
        why: SendFailure::TimedOut,
        cause: format!("no answer began within {} s", patience.as_secs()),
        may_be_out: true,
    };
    Ok(Answer::new(answer.map_err(too_late)??))
}

/// Path and query as the client takes them. What are none to it cannot be reached.
fn target(path: String) -> Result<PathAndQuery, Unanswered> {
    PathAndQuery::from_maybe_shared(Bytes::from(path))
        .map_err(|_| Unanswered::unsent(SendFailure::Unreachable))
}
