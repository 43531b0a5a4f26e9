//! The provider over HTTP: bounded in time and bytes, its documents kept for a while.

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use url::Url;

use super::config::{InvalidOpenid, is_safe};
use super::keys::Keys;
use super::provider::OpenidError;
use super::token::TokenFault;
use crate::clock::Clock;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// Largest answer.
const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// How long the provider's documents are good.
const KEPT: Duration = Duration::from_hours(1);
/// Earliest time for another look at its keys, for one that is not among them.
const KEYS_AGAIN: Duration = Duration::from_mins(1);
/// Earliest time for another look at what could not be read.
const FAILED_AGAIN: Duration = Duration::from_secs(5);
const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// What the provider says of itself (OpenID Connect Discovery section 3).
#[derive(Debug, Deserialize)]
pub(super) struct Description {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Url,
    pub(super) token_endpoint: Url,
    jwks_uri: Url,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// RFC 9207.
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

impl Description {
    /// Whether the client secret goes into the header (`client_secret_basic`, which is what is meant where nothing is said)
    /// or into the form (`client_secret_post`).
    pub(super) fn takes_basic(&self) -> Result<bool, OpenidError> {
        let Some(methods) = &self.token_endpoint_auth_methods_supported else { return Ok(true) };
        let has = |wanted: &str| methods.iter().any(|method| method == wanted);
        match (has("client_secret_basic"), has("client_secret_post")) {
            (true, _) => Ok(true),
            (false, true) => Ok(false),
            (false, false) => Err(OpenidError::Methods),
        }
    }
}

/// A document that was read, and when somebody tried last.
struct Kept<T> {
    read: Option<(Duration, Arc<T>)>,
    tried_at: Option<Duration>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { read: None, tried_at: None }
    }
}

impl<T> Kept<T> {
    /// The document while it is good.
    fn good(&self, now: Duration) -> Option<Arc<T>> {
        let (at, document) = self.read.as_ref()?;
        (now.saturating_sub(*at) < KEPT).then(|| Arc::clone(document))
    }

    /// Whether the last try was long enough ago.
    fn may_try(&self, now: Duration, again: Duration) -> bool {
        self.tried_at.is_none_or(|at| now.saturating_sub(at) >= again)
    }
}

/// A way to the provider.
pub(super) struct Remote {
    client: Client,
    issuer: Url,
    /// The issuer as it is configured.
    named: String,
    clock: Clock,
    /// Locked while it is read: whoever else needs it waits for the same answer.
    description: Mutex<Kept<Description>>,
    keys: Mutex<Kept<Keys>>,
}

impl Remote {
    pub(super) fn new(issuer: Url, named: String, clock: Clock) -> Result<Self, InvalidOpenid> {
        // The process's provider, unless the program chose one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let is_here = issuer.scheme() == "http";
        let builder = Client::builder()
            .https_only(!is_here)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT);
        let builder = if is_here { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(InvalidOpenid::Client)?;
        Ok(Self { client, issuer, named, clock, description: Mutex::default(), keys: Mutex::default() })
    }

    /// What the provider says of itself, an hour old at most.
    pub(super) async fn description(&self) -> Result<Arc<Description>, OpenidError> {
        let mut kept = self.description.lock().await;
        let now = self.clock.passed();
        if let Some(description) = kept.good(now) {
            return Ok(description);
        }
        if !kept.may_try(now, FAILED_AGAIN) {
            return Err(OpenidError::FailedBefore);
        }
        kept.tried_at = Some(now);
        let read = Arc::new(self.read_description().await?);
        *kept = Kept { read: Some((now, Arc::clone(&read))), tried_at: None };
        Ok(read)
    }

    async fn read_description(&self) -> Result<Description, OpenidError> {
        const WHAT: &str = "discovery document";
        let mut url = self.issuer.clone();
        url.set_path(&format!("{}{WELL_KNOWN}", self.issuer.path().trim_end_matches('/')));
        let description: Description = self.answer(WHAT, self.client.get(url)).await?;
        // Discovery section 4.3: who answers for another issuer could hand out tokens in its name.
        if description.issuer != self.named {
            return Err(OpenidError::Issuer(description.issuer.chars().take(200).collect()));
        }
        let is_here = self.issuer.scheme() == "http";
        for (name, url) in [
            ("authorization endpoint", &description.authorization_endpoint),
            ("token endpoint", &description.token_endpoint),
            ("keys", &description.jwks_uri),
        ] {
            if !is_safe(url, is_here) {
                return Err(OpenidError::Address(name));
            }
        }
        description.takes_basic()?;
        Ok(description)
    }

    /// The key of a token. One that is not known may be new: then the keys are read again, once a minute at most.
    pub(super) async fn key(
        &self,
        description: &Description,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<DecodingKey, OpenidError> {
        let mut kept = self.keys.lock().await;
        let now = self.clock.passed();
        let good = kept.good(now);
        if let Some(key) = good.as_ref().and_then(|keys| keys.find(id, algorithm)) {
            return Ok(key);
        }
        let is_known = good.is_some();
        if !kept.may_try(now, if is_known { KEYS_AGAIN } else { FAILED_AGAIN }) {
            return Err(if is_known { TokenFault::Key.into() } else { OpenidError::FailedBefore });
        }
        kept.tried_at = Some(now);
        let text = self.text("keys", self.client.get(description.jwks_uri.clone())).await;
        let (status, text) = text?;
        if status != StatusCode::OK {
            return Err(OpenidError::Status("keys", status.as_u16()));
        }
        let keys = Arc::new(Keys::parse(&text).map_err(|_| OpenidError::Malformed("keys"))?);
        kept.read = Some((now, Arc::clone(&keys)));
        keys.find(id, algorithm).ok_or_else(|| TokenFault::Key.into())
    }

    /// Asks the token endpoint with a form.
    pub(super) async fn exchange<T: DeserializeOwned>(
        &self,
        description: &Description,
        form: String,
        basic: Option<(String, String)>,
    ) -> Result<T, OpenidError> {
        const WHAT: &str = "token endpoint";
        let mut request = self
            .client
            .post(description.token_endpoint.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
        if let Some((user, password)) = basic {
            request = request.basic_auth(user, Some(password));
        }
        let (status, text) = self.text(WHAT, request).await?;
        if status == StatusCode::OK {
            return serde_json::from_slice(&text).map_err(|_| OpenidError::Malformed(WHAT));
        }
        match serde_json::from_slice::<Refusal>(&text) {
            Ok(refusal) if status.is_client_error() => Err(OpenidError::Refused(error_code(&refusal.error))),
            _ => Err(OpenidError::Status(WHAT, status.as_u16())),
        }
    }

    async fn answer<T: DeserializeOwned>(
        &self,
        what: &'static str,
        request: RequestBuilder,
    ) -> Result<T, OpenidError> {
        match self.text(what, request).await? {
            (StatusCode::OK, text) => serde_json::from_slice(&text).map_err(|_| OpenidError::Malformed(what)),
            (status, _) => Err(OpenidError::Status(what, status.as_u16())),
        }
    }

    async fn text(
        &self,
        what: &'static str,
        request: RequestBuilder,
    ) -> Result<(StatusCode, Vec<u8>), OpenidError> {
        let failed = |error: reqwest::Error| OpenidError::Unreachable(what, error.without_url());
        let mut answer = request.header(ACCEPT, "application/json").send().await.map_err(failed)?;
        let mut text = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if text.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(OpenidError::TooLarge(what));
            }
            text.extend_from_slice(&chunk);
        }
        Ok((answer.status(), text))
    }
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// A code of RFC 6749 section 5.2 or 4.1.2.1, for the log; nothing else that somebody sends is repeated.
pub(super) fn error_code(sent: &str) -> String {
    let is_code =
        (1..=40).contains(&sent.len()) && sent.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_code { sent.to_owned() } else { "another error".to_owned() }
}
