//! Talking to a KMS that is being onboarded: plain HTTP, until it is finished.

use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::connection::{builder, bytes, document, own_release_url};
use crate::failure::{Exit, Failure};
use crate::session::Session;

/// Which KMS.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OnboardingArgs {
    /// The KMS that is being onboarded, such as `http://127.0.0.1:12001` [default: that of `serve kms` on this
    /// machine]
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
}

/// A KMS that is being onboarded.
#[derive(Debug)]
pub(super) struct Newcomer {
    http: reqwest::Client,
    url: Url,
}

impl OnboardingArgs {
    /// A connection.
    pub(super) fn open(&self, session: &Session) -> Result<Newcomer, Failure> {
        let url = match &self.url {
            Some(url) => url.clone(),
            None => http(own_release_url(session)?),
        };
        if url.scheme() != "http" {
            return Err(Failure::usage("onboarding is plain http; nothing secret crosses it"));
        }
        let http = builder(&url).build().map_err(|error| Failure::local("cannot prepare HTTP", error))?;
        Ok(Newcomer { http, url })
    }
}

/// The same address before onboarding is finished.
fn http(mut url: Url) -> Url {
    let port = url.port_or_known_default();
    if url.set_scheme("http").is_ok() {
        let _ = url.set_port(port);
    }
    url
}

impl Newcomer {
    /// Calls a method.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let request = self.http.post(self.at(method)?).query(&[("json", "")]).json(body);
        document(&self.url, request).await.map_err(over)
    }

    /// Gets a path.
    pub(super) async fn get(&self, path: &str) -> Result<Vec<u8>, Failure> {
        bytes(&self.url, self.http.get(self.at(path)?)).await.map_err(over)
    }

    fn at(&self, path: &str) -> Result<Url, Failure> {
        self.url.join(path).map_err(|error| Failure::local("cannot name the call", error))
    }
}

fn over(failure: Failure) -> Failure {
    match failure.exit {
        Exit::Unreachable => failure
            .hint("a KMS whose onboarding is finished does not answer here any more: cloister kms status"),
        _ => failure,
    }
}
