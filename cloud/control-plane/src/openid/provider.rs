//! The provider of an installation.

use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Semaphore;
use url::{Url, form_urlencoded};

use super::attempt::Attempt;
use super::config::{InvalidOpenid, OpenidConfig, Secret};
use super::jws;
use super::policy::Claimed;
use super::remote::{Remote, error_code};
use super::token::{self, Expected, TokenFault};
use crate::clock::Clock;

/// Where the provider sends browsers back to.
pub(crate) const CALLBACK: &str = "/login/openid/callback";
/// How long all that is asked of the provider for one login may take: less than a request here lasts.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Logins that ask the provider at the same time.
const AT_ONCE: usize = 16;
/// Longest code of a provider, in bytes.
const MAX_CODE: usize = 4096;

/// Why the provider said nothing that counts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenidError {
    /// Too many ask.
    #[error("too many logins ask the OpenID provider at this moment")]
    Busy,
    /// It took too long.
    #[error("the OpenID provider took too long for a login")]
    Slow,
    /// It is down, or slow.
    #[error("the OpenID provider cannot be asked for its {0}")]
    Unreachable(&'static str, #[source] reqwest::Error),
    /// It was a moment ago.
    #[error("the OpenID provider failed a moment ago, and is not asked again yet")]
    FailedBefore,
    /// It fails.
    #[error("the OpenID provider answers with status {1} for its {0}")]
    Status(&'static str, u16),
    /// It sends too much.
    #[error("the OpenID provider sends too much for its {0}")]
    TooLarge(&'static str),
    /// It sends something else.
    #[error("the OpenID provider sends no {0} that can be understood")]
    Malformed(&'static str),
    /// It is another one.
    #[error("the OpenID provider calls itself {0:?}: that is not the configured issuer, to the letter")]
    Issuer(String),
    /// It sends people or secrets where they must not go.
    #[error("the address that the OpenID provider names for its {0} is not one of https")]
    Address(&'static str),
    /// It does not know this installation as it is known here.
    #[error(
        "the OpenID provider takes the client secret neither by client_secret_basic nor by client_secret_post"
    )]
    Methods,
    /// It does not like the code, or the client.
    #[error("the OpenID provider refuses the code: {0}")]
    Refused(String),
    /// The person, or the provider, refused before there was a code.
    #[error("the OpenID provider sent the browser back with: {0}")]
    Declined(String),
    /// The answer is of somebody else.
    #[error("the browser came back from another issuer, or without saying from which")]
    AnotherIssuer,
    /// There is no code.
    #[error("the browser came back without a code")]
    NoCode,
    /// The token says nothing.
    #[error(transparent)]
    Token(#[from] TokenFault),
}

/// What a browser came back with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CameBack<'a> {
    /// The code; may be empty.
    pub(crate) code: &'a str,
    /// Why there is none; may be empty.
    pub(crate) error: &'a str,
    /// From where (RFC 9207); may be empty.
    pub(crate) issuer: &'a str,
}

/// An answer of the token endpoint; the access token is not read, since nothing is asked for with it.
#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// The provider, as it is configured.
pub struct Openid {
    config: OpenidConfig,
    secret: Secret,
    remote: Remote,
    clock: Clock,
    at_once: Semaphore,
    timeout: Duration,
}

impl Openid {
    /// Reads the client secret. The provider is not asked before somebody logs in.
    pub(crate) fn open(config: OpenidConfig, clock: &Clock) -> Result<Self, InvalidOpenid> {
        jws::install();
        let (issuer, secret) = config.check()?;
        let remote = Remote::new(issuer, config.issuer.clone(), clock.clone())?;
        let at_once = Semaphore::new(AT_ONCE);
        Ok(Self { config, secret, remote, clock: clock.clone(), at_once, timeout: LOGIN_TIMEOUT })
    }

    /// The same, in more of a hurry.
    #[cfg(test)]
    pub(crate) fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// What the operator says of it.
    pub(crate) fn config(&self) -> &OpenidConfig {
        &self.config
    }

    /// Where a browser goes to log in.
    pub(crate) async fn authorization_url(
        &self,
        attempt: &Attempt,
        redirect_uri: &str,
    ) -> Result<Url, OpenidError> {
        let description = self.in_time(self.remote.description()).await?;
        let mut url = description.authorization_endpoint.clone();
        let scopes = std::iter::once("openid")
            .chain(self.config.scopes.iter().map(String::as_str).filter(|scope| *scope != "openid"));
        let scope = scopes.collect::<Vec<_>>().join(" ");
        let challenge = attempt.challenge();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.config.client_id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", &scope)
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        if !self.config.trusted_acr.is_empty() {
            url.query_pairs_mut().append_pair("acr_values", &self.config.trusted_acr.join(" "));
        }
        Ok(url)
    }

    /// Whom the provider names to whoever comes back with a code.
    pub(crate) async fn finish(
        &self,
        attempt: &Attempt,
        redirect_uri: &str,
        came_back: CameBack<'_>,
    ) -> Result<Claimed, OpenidError> {
        self.in_time(self.ask(attempt, redirect_uri, came_back)).await
    }

    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, OpenidError>>,
    ) -> Result<T, OpenidError> {
        let _place = self.at_once.try_acquire().map_err(|_| OpenidError::Busy)?;
        tokio::time::timeout(self.timeout, asked).await.unwrap_or(Err(OpenidError::Slow))
    }

    async fn ask(
        &self,
        attempt: &Attempt,
        redirect_uri: &str,
        CameBack { code, error, issuer }: CameBack<'_>,
    ) -> Result<Claimed, OpenidError> {
        let description = self.remote.description().await?;
        let says_so = description.authorization_response_iss_parameter_supported;
        if (says_so || !issuer.is_empty()) && issuer != self.config.issuer {
            return Err(OpenidError::AnotherIssuer);
        }
        if !error.is_empty() {
            return Err(OpenidError::Declined(error_code(error)));
        }
        if code.is_empty() || code.len() > MAX_CODE {
            return Err(OpenidError::NoCode);
        }
        let (form, basic) = self.form(attempt, redirect_uri, code, description.takes_basic()?);
        let tokens: Tokens = self.remote.exchange(&description, form, basic).await?;
        let (algorithm, id) = token::signed_with(&tokens.id_token)?;
        let key = self.remote.key(&description, id.as_deref(), algorithm).await?;
        let expected = Expected {
            issuer: &self.config.issuer,
            client_id: &self.config.client_id,
            nonce: &attempt.nonce,
            now_ms: self.clock.now_ms(),
        };
        Ok(token::verified(&tokens.id_token, (algorithm, &key), &expected)?)
    }

    /// What the token endpoint is asked with: a form, and the credentials if they go into the header.
    fn form(
        &self,
        attempt: &Attempt,
        redirect_uri: &str,
        code: &str,
        takes_basic: bool,
    ) -> (String, Option<(String, String)>) {
        let (client_id, secret) = (self.config.client_id.as_str(), self.secret.reveal());
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("code_verifier", &attempt.verifier);
        if takes_basic {
            // RFC 6749 section 2.3.1: as in a form.
            let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            return (form.finish(), Some((encoded(client_id), encoded(secret))));
        }
        form.append_pair("client_id", client_id).append_pair("client_secret", secret);
        (form.finish(), None)
    }
}
