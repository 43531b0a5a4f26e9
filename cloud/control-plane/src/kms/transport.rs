//! HTTP over a connection whose other end proved that it is the service.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cloister_kms_api::KmsError;
use cloister_ra_tls::{AuthorityPolicy, authority_client_config, public_key_of_pem};
use parking_lot::Mutex;
use reqwest::tls::TlsInfo;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt as _;
use zeroize::Zeroizing;

use super::config::KmsConfig;
use super::error::KmsCallError;
use crate::clock::Clock;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const CALL_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a connection waits for another call: shorter than the 30 s after which a KMS closes it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// The largest answer is the description of a service with its attestation and all its roots.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Largest file of certificates; it has one for each root.
const MAX_CA_BYTES: u64 = 256 << 10;
const MAX_TOKEN_BYTES: u64 = 4096;

/// A way to the directory of one service.
pub(super) struct Connection {
    config: KmsConfig,
    clock: Clock,
    /// The client, with the certificates that it was made with: they change when a root is replaced.
    client: Mutex<Option<(Vec<u8>, Client)>>,
}

impl Connection {
    pub(super) fn new(config: KmsConfig, clock: Clock) -> Self {
        Self { config, clock, client: Mutex::default() }
    }

    pub(super) const fn config(&self) -> &KmsConfig {
        &self.config
    }

    /// Calls a method that anybody may call.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, KmsCallError> {
        self.send(method, body, None).await.map(|(answer, _)| answer)
    }

    /// The same, with the certificate (DER) that the service showed.
    pub(super) async fn call_seen<T: DeserializeOwned>(
        &self,
        method: &str,
    ) -> Result<(T, Vec<u8>), KmsCallError> {
        self.send(method, None::<&()>, None).await
    }

    /// Calls a method with the administrator's token.
    pub(super) async fn administer<T: DeserializeOwned>(
        &self,
        method: &str,
        body: &impl Serialize,
    ) -> Result<T, KmsCallError> {
        let token = Zeroizing::new(self.read(&self.config.admin_token_file, MAX_TOKEN_BYTES).await?);
        let unusable = || self.unusable(&self.config.admin_token_file, &io::ErrorKind::InvalidData.into());
        let token = std::str::from_utf8(&token).map_err(|_| unusable())?.trim();
        if token.is_empty() {
            return Err(unusable());
        }
        self.send(method, Some(body), Some(token)).await.map(|(answer, _)| answer)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        body: Option<&impl Serialize>,
        token: Option<&str>,
    ) -> Result<(T, Vec<u8>), KmsCallError> {
        let client = self.client().await?;
        let mut url = self.config.directory_url.clone();
        url.set_path(method);
        url.set_query(Some("json"));
        let mut request = client.post(url);
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = sent(request).await.map_err(|error| self.unreachable(error))?;
        let status = answer.status();
        let shown =
            answer.extensions().get().and_then(TlsInfo::peer_certificate).unwrap_or_default().to_vec();
        let bytes = self.limited(answer).await?;
        let malformed = || KmsCallError::Malformed { slug: self.slug(), status: status.as_u16() };
        if status == StatusCode::OK {
            let answer = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
            return Ok((answer, shown));
        }
        let refusal: KmsError = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
        Err(KmsCallError::Refused { slug: self.slug(), refusal })
    }

    async fn limited(&self, mut answer: Response) -> Result<Vec<u8>, KmsCallError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.unreachable(error))? {
            if bytes.len() + chunk.len() > MAX_ANSWER_BYTES {
                let status = answer.status().as_u16();
                return Err(KmsCallError::Malformed { slug: self.slug(), status });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// The client for the certificates that are in the file now.
    async fn client(&self) -> Result<Client, KmsCallError> {
        let pem = self.read(&self.config.ca_file, MAX_CA_BYTES).await?;
        if let Some((of, client)) = &*self.client.lock()
            && *of == pem
        {
            return Ok(client.clone());
        }
        let unusable = |error: &dyn std::error::Error| {
            self.unusable(
                &self.config.ca_file,
                &io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
            )
        };
        // The root may have had successors since: it stands in the chain that the service shows.
        let root = public_key_of_pem(&String::from_utf8_lossy(&pem)).map_err(|error| unusable(&error))?;
        let (policy, clock) = (AuthorityPolicy::kms(Some(root)), self.clock.clone());
        let tls =
            authority_client_config(policy, None, move || clock.now()).map_err(|error| unusable(&error))?;
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .https_only(true)
            .tls_info(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(CALL_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| unusable(&error))?;
        *self.client.lock() = Some((pem, client.clone()));
        Ok(client)
    }

    async fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, KmsCallError> {
        let read = async {
            let mut bytes = Vec::new();
            let file = tokio::fs::File::open(path).await?;
            file.take(limit).read_to_end(&mut bytes).await?;
            io::Result::Ok(bytes)
        };
        read.await.map_err(|error| self.unusable(path, &error))
    }

    fn unusable(&self, path: &Path, source: &io::Error) -> KmsCallError {
        let source = io::Error::new(source.kind(), format!("{}: {source}", path.display()));
        KmsCallError::File { slug: self.slug(), source: Arc::new(source) }
    }

    fn unreachable(&self, error: reqwest::Error) -> KmsCallError {
        KmsCallError::Unreachable { slug: self.slug(), source: Arc::new(error.without_url()) }
    }

    fn slug(&self) -> String {
        self.config.slug.clone()
    }
}

/// Sends a call, and once more if the connection broke: one that was kept for it may have been closed by the other
/// end at that moment. Every call of this module is as good twice as once.
async fn sent(request: RequestBuilder) -> reqwest::Result<Response> {
    let again = request.try_clone();
    match (request.send().await, again) {
        (Err(error), Some(again)) if error.is_request() && !error.is_connect() && !error.is_timeout() => {
            again.send().await
        }
        (outcome, _) => outcome,
    }
}
