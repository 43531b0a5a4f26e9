//! Where the list is read from: a file, or a URL.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use futures_util::StreamExt;
use url::Url;

/// Largest list.
const MAX_LIST_BYTES: usize = 8 << 20;
/// Largest signature; they have four short lines.
const MAX_SIGNATURE_BYTES: usize = 4096;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_mins(1);
const SUFFIX: &str = ".minisig";

/// Where a list is; its signature has the same name with `.minisig` appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListSource {
    /// A file of this machine.
    File(PathBuf),
    /// A document at an `https` URL.
    Url(Url),
}

/// A text that names no source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a source of a list: give a path, or a URL that begins with https://")]
pub struct InvalidSource;

impl FromStr for ListSource {
    type Err = InvalidSource;

    fn from_str(text: &str) -> Result<Self, InvalidSource> {
        if !text.contains("://") {
            return if text.is_empty() { Err(InvalidSource) } else { Ok(Self::File(text.into())) };
        }
        let url = Url::parse(text).map_err(|_| InvalidSource)?;
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        (url.scheme() == "https" && !has_credentials).then_some(Self::Url(url)).ok_or(InvalidSource)
    }
}

impl fmt::Display for ListSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(&shown(url)),
        }
    }
}

/// A URL as people may see it: a query can hold a secret.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.into()
}

/// Why a list was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("{path} cannot be read")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{url} cannot be fetched")]
    Fetch {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("{name} is larger than {limit} bytes")]
    TooLarge { name: String, limit: usize },
    #[error("the signature of the list is no text")]
    Signature,
}

impl ListSource {
    /// The list and its signature.
    pub(super) async fn read(&self) -> Result<(Vec<u8>, String), SourceError> {
        let (document, signature) = match self {
            Self::File(path) => {
                let mut beside = path.clone().into_os_string();
                beside.push(SUFFIX);
                let path = path.clone();
                let read = move || {
                    let document = read_file(&path, MAX_LIST_BYTES)?;
                    Ok((document, read_file(Path::new(&beside), MAX_SIGNATURE_BYTES)?))
                };
                tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| Err(SourceError::Signature))?
            }
            Self::Url(url) => {
                let mut beside = url.clone();
                beside.set_path(&format!("{}{SUFFIX}", url.path()));
                let http = client().map_err(|source| SourceError::Fetch { url: shown(url), source })?;
                (fetch(&http, url, MAX_LIST_BYTES).await?, fetch(&http, &beside, MAX_SIGNATURE_BYTES).await?)
            }
        };
        let signature = String::from_utf8(signature).map_err(|_| SourceError::Signature)?;
        Ok((document, signature))
    }
}

fn read_file(path: &Path, limit: usize) -> Result<Vec<u8>, SourceError> {
    let failed = |source| SourceError::File { path: path.display().to_string(), source };
    let mut bytes = Vec::new();
    let one_more = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    std::fs::File::open(path).and_then(|file| file.take(one_more).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() > limit {
        return Err(SourceError::TooLarge { name: path.display().to_string(), limit });
    }
    Ok(bytes)
}

fn client() -> reqwest::Result<reqwest::Client> {
    // The process's provider, unless the program chose one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .https_only(true)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TIMEOUT)
        .build()
}

async fn fetch(http: &reqwest::Client, url: &Url, limit: usize) -> Result<Vec<u8>, SourceError> {
    let failed =
        |source: reqwest::Error| SourceError::Fetch { url: shown(url), source: source.without_url() };
    let response = http.get(url.clone()).send().await.and_then(reqwest::Response::error_for_status);
    let mut chunks = response.map_err(failed)?.bytes_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        bytes.extend_from_slice(&chunk.map_err(failed)?);
        if bytes.len() > limit {
            return Err(SourceError::TooLarge { name: shown(url), limit });
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_paths_and_https_urls() {
        assert_eq!("/etc/list.json".parse(), Ok(ListSource::File("/etc/list.json".into())));
        assert!(matches!("https://example.org/list.json".parse(), Ok(ListSource::Url(_))));
        for text in ["", "http://example.org/list.json", "ftp://x/y", "https://a:b@example.org/x", "https://"]
        {
            assert_eq!(text.parse::<ListSource>(), Err(InvalidSource), "{text}");
        }
    }

    #[tokio::test]
    async fn a_service_that_is_away_is_a_failure_and_nothing_else() {
        let source: ListSource = "https://127.0.0.1:1/list.json?token=secret".parse().unwrap();
        let failure = source.read().await.unwrap_err();
        assert!(matches!(failure, SourceError::Fetch { .. }), "{failure}");
        // Some services give access by a secret in the URL; both are shown to administrators.
        assert_eq!(failure.to_string(), "https://127.0.0.1:1/list.json cannot be fetched");
        assert_eq!(source.to_string(), "https://127.0.0.1:1/list.json");
    }
}
