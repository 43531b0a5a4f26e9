//! Asking a gateway for what belongs to a receipt. Nothing that it answers is believed: all of it is judged.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cloister_aci::report::Nonce;
use reqwest::header::RETRY_AFTER;
use reqwest::tls::TlsInfo;
use reqwest::{Certificate, StatusCode};
use serde_json::Value;
use url::Url;
use zeroize::Zeroizing;

use super::{MAX_DOCUMENT_BYTES, parsed};
use crate::api::{is_loopback, kept_on_this_machine};
use crate::commands::verify::fetch;
use crate::failure::{Exit, Failure};
use crate::files::{read, read_secret};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A quote takes hardware about a second, and several may be waiting.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// What is read, in errors.
const ANSWER: &str = "the gateway's answer";
const KEY_VARIABLE: &str = "CLOISTER_INFERENCE_KEY";
const MAX_KEY_BYTES: u64 = 4096;
const MAX_CERTIFICATE_BYTES: u64 = 64 << 10;

/// What a gateway shows of something.
pub(super) enum Shown {
    /// This.
    Bytes(Vec<u8>),
    /// Nothing yet: it says when to ask again.
    Later,
    /// Nothing.
    Nothing,
}

/// What came, and the certificate (DER) that TLS ended at, where that is recorded.
struct Reply {
    shown: Shown,
    certificate: Option<Vec<u8>>,
}

/// A gateway, and the key that a request was made with.
pub(super) struct Gateway {
    base: Url,
    http: reqwest::Client,
    key: Option<Zeroizing<String>>,
}

impl Gateway {
    /// One that is believed by its certificate: this one, or else one that an authority of the system vouches for.
    pub(super) fn new(
        url: &Url,
        certificate: Option<&Path>,
        key_file: Option<&PathBuf>,
    ) -> Result<Self, Failure> {
        let loopback = is_loopback(url);
        if url.cannot_be_a_base() || (url.scheme() != "https" && !loopback) {
            return Err(Failure::usage("--url has to be https: a key goes there"));
        }
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("cloister/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT);
        if let Some(path) = certificate {
            builder = builder.tls_certs_only(read_certificates(path)?);
        } else if loopback {
            builder = builder.tls_certs_only([]);
        }
        let http = kept_on_this_machine(builder, url)
            .build()
            .map_err(|error| Failure::local("cannot prepare TLS", error))?;
        let key = match key_file {
            Some(path) => {
                let text = read_secret(path, MAX_KEY_BYTES)?;
                Some(Zeroizing::new(text.trim().to_owned()))
            }
            None => std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty()).map(Zeroizing::new),
        };
        Ok(Self { base: url.clone(), http, key })
    }

    /// One of which nothing is known yet, whatever its certificate is: nothing secret may go there.
    pub(super) fn unproven(url: &Url) -> Result<Self, Failure> {
        Ok(Self { base: url.clone(), http: fetch::client(url)?, key: None })
    }

    /// The key that the request was made with.
    pub(super) fn key(&self) -> Result<&Zeroizing<String>, Failure> {
        self.key.as_ref().ok_or_else(|| {
            Failure::new(Exit::Unauthorised, "a receipt is told to the key that made the request")
                .hint(format!("name it: --key-file FILE, or {KEY_VARIABLE}"))
        })
    }

    pub(super) async fn receipt(&self, id: &str) -> Result<Value, Failure> {
        let found = self.get(&["v1", "aci", "receipts", id], Some(self.key()?)).await?;
        found.ok_or_else(|| Failure::new(Exit::NotFound, "the gateway has no such receipt for this key"))
    }

    /// The report over a nonce, and the certificate (DER) that came with it, where those are recorded.
    pub(super) async fn report(&self, nonce: &Nonce) -> Result<(Value, Option<Vec<u8>>), Failure> {
        let query = [("nonce", nonce.to_string())];
        let reply = self.ask(&["v1", "aci", "attestation"], &query, None).await?;
        let Shown::Bytes(bytes) = reply.shown else {
            return Err(Failure::new(Exit::NotFound, "the gateway gives no report by this name"));
        };
        Ok((parsed(&bytes, ANSWER)?, reply.certificate))
    }

    pub(super) async fn keyset(&self, digest: &str) -> Result<Option<Value>, Failure> {
        self.get(&["v1", "aci", "keysets", digest], None).await
    }

    pub(super) async fn session(&self, id: &str) -> Result<Option<Value>, Failure> {
        self.get(&["v1", "aci", "sessions", id], None).await
    }

    /// Proof that a receipt is in the log.
    pub(super) async fn inclusion(&self, id: &str) -> Result<Shown, Failure> {
        Ok(self.ask(&["v1", "aci", "receipts", id, "inclusion"], &[], Some(self.key()?)).await?.shown)
    }

    /// The key of the log's checkpoints; `None` if the gateway keeps no log.
    pub(super) async fn log_key(&self) -> Result<Option<String>, Failure> {
        let shown = self.ask(&["v1", "aci", "log", "key"], &[], None).await?.shown;
        let Shown::Bytes(bytes) = shown else { return Ok(None) };
        let key = String::from_utf8(bytes).map_err(|_| Failure::usage("the log's key cannot be read"))?;
        Ok(Some(key.trim().to_owned()))
    }

    /// Proof that the log of `to` records begins with that of `from` records.
    pub(super) async fn consistency(&self, from: u64, to: u64) -> Result<Option<Vec<u8>>, Failure> {
        let sizes = [("from", from.to_string()), ("to", to.to_string())];
        match self.ask(&["v1", "aci", "log", "consistency"], &sizes, None).await?.shown {
            Shown::Bytes(bytes) => Ok(Some(bytes)),
            Shown::Later | Shown::Nothing => Ok(None),
        }
    }

    /// A document; `None` where there is none.
    async fn get(&self, path: &[&str], key: Option<&Zeroizing<String>>) -> Result<Option<Value>, Failure> {
        match self.ask(path, &[], key).await?.shown {
            Shown::Bytes(bytes) => parsed(&bytes, ANSWER).map(Some),
            Shown::Later | Shown::Nothing => Ok(None),
        }
    }

    async fn ask(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        key: Option<&Zeroizing<String>>,
    ) -> Result<Reply, Failure> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let origin = self.base.origin().ascii_serialization();
        let unreachable = |error: reqwest::Error| {
            Failure::new(Exit::Unreachable, format!("{origin} cannot be reached"))
                .caused_by(error.without_url())
        };
        let mut request = self.http.get(url);
        if let Some(key) = key {
            request = request.bearer_auth(key.as_str());
        }
        let mut answer = request.send().await.map_err(unreachable)?;
        let certificate = answer.extensions().get::<TlsInfo>().and_then(TlsInfo::peer_certificate);
        let certificate = certificate.map(<[u8]>::to_vec);
        let status = answer.status();
        if status == StatusCode::NOT_FOUND {
            let is_later = answer.headers().contains_key(RETRY_AFTER);
            return Ok(Reply { shown: if is_later { Shown::Later } else { Shown::Nothing }, certificate });
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
                return Err(Failure::new(Exit::Failed, "the gateway's answer is too large"));
            }
        }
        if !status.is_success() {
            let exit = if status == StatusCode::UNAUTHORIZED { Exit::Unauthorised } else { Exit::Failed };
            let said = serde_json::from_slice::<Value>(&bytes).ok();
            let said = said.as_ref().and_then(|body| body.pointer("/error/message")?.as_str());
            let reason = said.map(|said| format!(": {said}")).unwrap_or_default();
            return Err(Failure::new(exit, format!("{origin} answered {status}{reason}")));
        }
        Ok(Reply { shown: Shown::Bytes(bytes), certificate })
    }
}

fn read_certificates(path: &Path) -> Result<Vec<Certificate>, Failure> {
    let nothing = || Failure::usage(format!("{} holds no certificate", path.display()));
    let found = Certificate::from_pem_bundle(&read(path, MAX_CERTIFICATE_BYTES)?);
    let found = found.map_err(|error| nothing().caused_by(error))?;
    if found.is_empty() { Err(nothing()) } else { Ok(found) }
}
