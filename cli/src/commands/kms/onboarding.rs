//! Talking to a KMS that is being onboarded: plain HTTP, until it is finished.

use serde::Serialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::connection::{builder, bytes, document};
use crate::failure::Failure;

/// Which KMS.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OnboardingArgs {
    /// The KMS that is being onboarded, such as `http://127.0.0.1:12001`
    #[arg(long, value_name = "URL")]
    url: Url,
}

impl OnboardingArgs {
    /// Calls a method.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let (http, url) = self.at(method)?;
        document(&self.url, http.post(url).query(&[("json", "")]).json(body)).await.map_err(over)
    }

    /// Gets a path.
    pub(super) async fn get(&self, path: &str) -> Result<Vec<u8>, Failure> {
        let (http, url) = self.at(path)?;
        bytes(&self.url, http.get(url)).await.map_err(over)
    }

    fn at(&self, path: &str) -> Result<(reqwest::Client, Url), Failure> {
        if self.url.scheme() != "http" {
            return Err(Failure::usage("onboarding is plain http; nothing secret crosses it"));
        }
        let http =
            builder(&self.url).build().map_err(|error| Failure::local("cannot prepare HTTP", error))?;
        let url = self.url.join(path).map_err(|error| Failure::local("cannot name the call", error))?;
        Ok((http, url))
    }
}

fn over(failure: Failure) -> Failure {
    failure.hint("a KMS whose onboarding is finished does not answer here any more: cloister kms status")
}
