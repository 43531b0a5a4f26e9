//! The HTTP client to a control plane.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use reqwest::{Client, Response, redirect};
use rust_decimal::Decimal;
use serde::Serialize;
use url::Url;
use zeroize::Zeroizing;

use super::wire::{Kept, Question, Told, Verdict};
use crate::admission::prefix::PrefixKey;
use crate::config::ControlConfig;
use crate::record::StoreError;
use crate::upstream::{UpstreamError, tls};

/// Largest file with a token, in bytes.
const MAX_TOKEN: usize = 4096;
/// Largest answer, in bytes.
const MAX_ANSWER: usize = 256 << 10;

/// Why a control plane cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum HooksError {
    /// The file is not readable or holds no token.
    #[error("{0} holds no token of one line")]
    Token(PathBuf, #[source] io::Error),
    /// The file is not readable or holds no secret.
    #[error("{0} holds no secret of 32 to 4096 bytes")]
    PrefixSecret(PathBuf, #[source] io::Error),
    /// No TLS.
    #[error(transparent)]
    Tls(#[from] UpstreamError),
    /// No client.
    #[error("the control plane's client cannot be made")]
    Client(#[from] reqwest::Error),
    /// The URL has no paths.
    #[error("the control plane's url has no path")]
    Url,
    /// What it is still to be told is not readable.
    #[error("what the control plane is to be told cannot be read")]
    Store(#[from] StoreError),
}

/// Why one call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// No answer. The text names no URL.
    #[error("it does not answer")]
    NoAnswer(#[source] reqwest::Error),
    /// Not 200.
    #[error("it answers with status {0}")]
    Status(StatusCode),
    /// Too long, or none that is understood.
    #[error("its answer is not understood")]
    Nonsense,
}

/// What a failed call says of what was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nothing: nobody can be told anything now, or not with this token.
    NotNow,
    /// It may be the reason why the control plane failed.
    Failed,
    /// It is wrong, and will be every time.
    Wrong,
}

impl CallError {
    /// Whether the control plane may have done what it was asked all the same.
    pub(super) fn may_be_done(&self) -> bool {
        match self {
            Self::NoAnswer(error) => !error.is_connect(),
            Self::Status(status) => !status.is_client_error(),
            Self::Nonsense => true,
        }
    }

    /// What it says of what was told.
    pub(super) const fn refusal(&self) -> Refusal {
        let Self::Status(status) = self else { return Refusal::NotNow };
        match status.as_u16() {
            400 | 413 | 422 => Refusal::Wrong,
            401 | 403 | 404 | 408 | 429 | 502..=504 => Refusal::NotNow,
            _ => Refusal::Failed,
        }
    }
}

/// The hooks of a control plane.
#[derive(Debug)]
pub struct Hooks {
    client: Client,
    pre: Url,
    post: Url,
    keep: Url,
    authorization: HeaderValue,
    /// Until which an answer has to be there.
    pub(super) timeout: Duration,
    /// Beginnings of prompts are told apart by it, where they are at all.
    pub(super) prefix_key: Option<PrefixKey>,
    /// Whether it is told what a request is like.
    pub(super) sends_features: bool,
    /// Most that may be untold.
    pub(super) untold_limit: Decimal,
}

impl Hooks {
    /// Reads the files of the token, of the authorities and of the secret.
    pub fn new(config: &ControlConfig) -> Result<Self, HooksError> {
        let timeout = Duration::from_millis(config.timeout_ms);
        let client = Client::builder()
            .tls_backend_preconfigured(tls::by_authorities(config.ca_file.as_deref())?)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(timeout)
            .timeout(timeout)
            .build()?;
        let hook = |name| {
            let mut url = config.url.clone();
            url.path_segments_mut().map_err(|()| HooksError::Url)?.pop_if_empty().extend(["consult", name]);
            Ok::<_, HooksError>(url)
        };
        Ok(Self {
            client,
            pre: hook("pre")?,
            post: hook("post")?,
            keep: hook("keep")?,
            authorization: authorization(&config.token_file)
                .map_err(|error| HooksError::Token(config.token_file.clone(), error))?,
            prefix_key: config
                .prefix_hash_secret_file
                .as_deref()
                .map(|path| {
                    PrefixKey::read(path).map_err(|error| HooksError::PrefixSecret(path.to_owned(), error))
                })
                .transpose()?,
            timeout,
            sends_features: config.send_request_features,
            untold_limit: config.untold_limit,
        })
    }

    /// `consult/pre`.
    pub(super) async fn ask(&self, question: &Question<'_>) -> Result<Verdict, CallError> {
        let mut answer = self.call(&self.pre, question).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(no_answer)? {
            if bytes.len() + piece.len() > MAX_ANSWER {
                return Err(CallError::Nonsense);
            }
            bytes.extend_from_slice(&piece);
        }
        serde_json::from_slice(&bytes).map_err(|_| CallError::Nonsense)
    }

    /// `consult/post`.
    pub(super) async fn tell(&self, told: &Told<'_>) -> Result<(), CallError> {
        self.call(&self.post, told).await.map(drop)
    }

    /// `consult/keep`.
    pub(super) async fn keep(&self, kept: &Kept<'_>) -> Result<(), CallError> {
        self.call(&self.keep, kept).await.map(drop)
    }

    /// Posts; once more if a connection that was kept alive turns out to be broken.
    async fn call(&self, url: &Url, body: &impl Serialize) -> Result<Response, CallError> {
        let body = serde_json::to_vec(body).map_err(|_| CallError::Nonsense)?;
        let send = || {
            self.client
                .post(url.clone())
                .header(AUTHORIZATION, self.authorization.clone())
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone())
                .send()
        };
        let is_broken =
            |error: &reqwest::Error| error.is_request() && !error.is_connect() && !error.is_timeout();
        let answer = match send().await {
            Err(error) if is_broken(&error) => send().await,
            outcome => outcome,
        };
        let answer = answer.map_err(no_answer)?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            status => Err(CallError::Status(status)),
        }
    }
}

fn no_answer(error: reqwest::Error) -> CallError {
    CallError::NoAnswer(error.without_url())
}

/// The header with the token of a file.
fn authorization(path: &Path) -> io::Result<HeaderValue> {
    let mut text = Zeroizing::new(String::new());
    std::fs::File::open(path)?.take(MAX_TOKEN as u64 + 1).read_to_string(&mut text)?;
    let token = text.trim();
    let is_token =
        (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_token {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let header = Zeroizing::new(format!("Bearer {token}"));
    let mut header = HeaderValue::from_str(&header).map_err(|_| io::ErrorKind::InvalidData)?;
    header.set_sensitive(true);
    Ok(header)
}
