//! The way to a collector: a client with its headers, that says when it is not heard, and when it is again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use reqwest::{Client, redirect};
use tokio::runtime::Handle;
use zeroize::Zeroizing;

use super::TracesError;
use crate::config::{Credential, TracesConfig};
use crate::upstream::tls;

/// Longest time until a collector has to have taken a batch.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest file of headers, and longest answer that is read, in bytes.
const MAX_BYTES: usize = 64 << 10;

/// A collector that takes OTLP over HTTP.
#[derive(Debug)]
pub(super) struct Collector {
    client: Client,
    /// Those of the file, which hold against those of the environment.
    headers: HeaderMap,
    /// The exporter's thread is none of the runtime's.
    runtime: Handle,
    is_heard: AtomicBool,
}

impl Collector {
    /// Reads the files that the configuration names.
    pub(super) fn new(config: &TracesConfig) -> Result<Self, TracesError> {
        let headers = match &config.headers_file {
            None => HeaderMap::new(),
            Some(file) => headers(file).map_err(|error| TracesError::Headers(file.clone(), error))?,
        };
        let client = Client::builder()
            .tls_backend_preconfigured(tls::by_authorities(config.ca_file.as_deref())?)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .timeout(PATIENCE)
            .build()?;
        Ok(Self { client, headers, runtime: Handle::current(), is_heard: AtomicBool::new(true) })
    }

    /// Logs what changed.
    fn note(&self, sent: &Result<Response<Bytes>, HttpError>) {
        let failure = match sent {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answered with status {}", answer.status().as_u16())),
            Err(error) => Some(crate::error::chain(error.as_ref())),
        };
        let was_heard = self.is_heard.swap(failure.is_none(), Ordering::Relaxed);
        match failure {
            Some(error) if was_heard => tracing::warn!(error, "the collector does not take traces"),
            None if !was_heard => tracing::info!("the collector takes traces again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        request.headers_mut().extend(self.headers.clone());
        let sent = self.runtime.spawn(send(self.client.clone(), request)).await;
        let sent = sent.map_err(HttpError::from).and_then(|sent| sent.map_err(HttpError::from));
        self.note(&sent);
        sent
    }
}

async fn send(client: Client, request: Request<Bytes>) -> Result<Response<Bytes>, reqwest::Error> {
    let sent = async {
        let mut answer = client.execute(request.try_into()?).await?;
        let mut body = BytesMut::new();
        // The status says what became of the batch: what follows may be too long, or break off.
        while body.len() < MAX_BYTES {
            let Ok(Some(piece)) = answer.chunk().await else { break };
            body.extend_from_slice(&piece.slice(..piece.len().min(MAX_BYTES - body.len())));
        }
        let mut response = Response::new(body.freeze());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        Ok(response)
    };
    sent.await.map_err(reqwest::Error::without_url)
}

/// The headers of a file.
fn headers(file: &Path) -> io::Result<HeaderMap> {
    let mut text = Zeroizing::new(String::new());
    File::open(file)?.take(MAX_BYTES as u64).read_to_string(&mut text)?;
    let pairs: BTreeMap<String, Credential> =
        serde_json::from_str(&text).map_err(|_| io::ErrorKind::InvalidData)?;
    pairs
        .into_iter()
        .map(|(name, value)| {
            let name = HeaderName::try_from(name).map_err(|_| io::ErrorKind::InvalidData)?;
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| io::ErrorKind::InvalidData)?;
            value.set_sensitive(true);
            Ok((name, value))
        })
        .collect()
}
