//! Asking a gateway for its report, and for what belongs to a receipt. Nothing that it answers is believed: all of it is judged.

use std::path::{Path, PathBuf};

use cloister_aci::report::Nonce;
use reqwest::header::RETRY_AFTER;
use reqwest::{RequestBuilder, StatusCode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use url::Url;
use zeroize::Zeroizing;

use super::{MAX_DOCUMENT_BYTES, parsed};
use crate::api::{is_loopback, kept_on_this_machine};
use crate::commands::verify::fetch::{self, NotTaken};
use crate::failure::{Exit, Failure};
use crate::files::{read, read_secret};

const UP: &str = "is the gateway up, and is this its address? A CVM answers some time after its start";
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

/// How a gateway is spoken with.
enum Way {
    /// One that an authority of the system vouches for.
    Vouched(reqwest::Client),
    /// One whose certificate is compared, or recorded.
    Recorded(fetch::Client),
}

impl Way {
    fn get(&self, url: Url) -> RequestBuilder {
        match self {
            Self::Vouched(http) => http.get(url),
            Self::Recorded(client) => client.get(url),
        }
    }
}

/// A gateway, and the key that a request was made with.
pub(super) struct Gateway {
    base: Url,
    way: Way,
    key: Option<Zeroizing<String>>,
}

impl Gateway {
    /// One that is believed by its certificate: this one, or else one that an authority of the system vouches for.
    pub(super) fn new(
        url: &Url,
        certificate: Option<&Path>,
        key_file: Option<&PathBuf>,
    ) -> Result<Self, Failure> {
        let (loopback, is_https) = (is_loopback(url), url.scheme() == "https");
        if url.cannot_be_a_base() || !(is_https || loopback) {
            return Err(Failure::usage("--url has to be https: a key goes there"));
        }
        let way = match certificate {
            Some(_) if !is_https => {
                return Err(Failure::usage("--certificate is of TLS: --url has to be https"));
            }
            Some(path) => Way::Recorded(fetch::Client::new(url, Some(read_certificate(path)?))?),
            None => {
                let builder = fetch::builder();
                let builder = if loopback { builder.tls_certs_only([]) } else { builder };
                let http = kept_on_this_machine(builder, url).build();
                Way::Vouched(http.map_err(|error| Failure::local("cannot prepare TLS", error))?)
            }
        };
        let key = match key_file {
            Some(path) => {
                let text = read_secret(path, MAX_KEY_BYTES)?;
                Some(Zeroizing::new(text.trim().to_owned()))
            }
            None => std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty()).map(Zeroizing::new),
        };
        Ok(Self { base: base(url), way, key })
    }

    /// One of which nothing is known yet, whatever its certificate is: nothing secret may go there.
    pub(super) fn unproven(url: &Url) -> Result<Self, Failure> {
        Ok(Self { base: base(url), way: Way::Recorded(fetch::Client::new(url, None)?), key: None })
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

    pub(super) async fn report(&self, nonce: &Nonce) -> Result<Value, Failure> {
        let query = [("nonce", nonce.to_string())];
        match self.ask(&["v1", "aci", "attestation"], &query, None).await? {
            Shown::Bytes(bytes) => parsed(&bytes, ANSWER),
            Shown::Later | Shown::Nothing => {
                Err(Failure::new(Exit::NotFound, "the gateway gives no report by this name"))
            }
        }
    }

    /// The certificate (DER) that the last connection ended at, of one of which nothing was known; `None` without TLS.
    pub(super) fn certificate(&self) -> Result<Option<Vec<u8>>, Failure> {
        match &self.way {
            Way::Vouched(_) => Err(Failure::new(Exit::Failed, "it was not looked whom TLS ended at")),
            Way::Recorded(client) => client.certificate(),
        }
    }

    /// Where it is, without the path that clients of OpenAI's interface add.
    pub(super) const fn base(&self) -> &Url {
        &self.base
    }

    /// Why nothing came from it.
    fn unreachable(&self, error: reqwest::Error) -> Failure {
        let origin = self.base.origin().ascii_serialization();
        let failure = Failure::new(Exit::Unreachable, format!("{origin} cannot be reached"));
        match &self.way {
            Way::Recorded(client) if let Some(why) = client.refusal() => match why {
                NotTaken::Another => Failure::new(Exit::Unverified, format!("{origin} is refused"))
                    .caused_by(why)
                    .hint("somebody may sit between you and the gateway: judge it anew with cloister verify gateway"),
                NotTaken::OfAProxy => failure.caused_by(why),
            },
            Way::Vouched(_) if self.base.scheme() == "https" => failure.caused_by(error.without_url()).hint(UP).hint(
                "a gateway that makes its certificate itself is believed by --certificate: see cloister verify gateway",
            ),
            _ => failure.caused_by(error.without_url()).hint(UP),
        }
    }

    pub(super) async fn keyset(&self, digest: &str) -> Result<Option<Value>, Failure> {
        self.get(&["v1", "aci", "keysets", digest], None).await
    }

    pub(super) async fn session(&self, id: &str) -> Result<Option<Value>, Failure> {
        self.get(&["v1", "aci", "sessions", id], None).await
    }

    /// Proof that a receipt is in the log.
    pub(super) async fn inclusion(&self, id: &str) -> Result<Shown, Failure> {
        self.ask(&["v1", "aci", "receipts", id, "inclusion"], &[], Some(self.key()?)).await
    }

    /// The key of the log's checkpoints; `None` if the gateway keeps no log.
    pub(super) async fn log_key(&self) -> Result<Option<String>, Failure> {
        let shown = self.ask(&["v1", "aci", "log", "key"], &[], None).await?;
        let Shown::Bytes(bytes) = shown else { return Ok(None) };
        let key = String::from_utf8(bytes).map_err(|_| Failure::usage("the log's key cannot be read"))?;
        Ok(Some(key.trim().to_owned()))
    }

    /// Proof that the log of `to` records begins with that of `from` records.
    pub(super) async fn consistency(&self, from: u64, to: u64) -> Result<Option<Vec<u8>>, Failure> {
        let sizes = [("from", from.to_string()), ("to", to.to_string())];
        match self.ask(&["v1", "aci", "log", "consistency"], &sizes, None).await? {
            Shown::Bytes(bytes) => Ok(Some(bytes)),
            Shown::Later | Shown::Nothing => Ok(None),
        }
    }

    /// A document; `None` where there is none.
    async fn get(&self, path: &[&str], key: Option<&Zeroizing<String>>) -> Result<Option<Value>, Failure> {
        match self.ask(path, &[], key).await? {
            Shown::Bytes(bytes) => parsed(&bytes, ANSWER).map(Some),
            Shown::Later | Shown::Nothing => Ok(None),
        }
    }

    async fn ask(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        key: Option<&Zeroizing<String>>,
    ) -> Result<Shown, Failure> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let origin = self.base.origin().ascii_serialization();
        let mut request = self.way.get(url);
        if let Some(key) = key {
            request = request.bearer_auth(key.as_str());
        }
        let mut answer = request.send().await.map_err(|error| self.unreachable(error))?;
        let status = answer.status();
        if status == StatusCode::NOT_FOUND {
            let is_later = answer.headers().contains_key(RETRY_AFTER);
            return Ok(if is_later { Shown::Later } else { Shown::Nothing });
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.unreachable(error))? {
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
        Ok(Shown::Bytes(bytes))
    }
}

/// Where the gateway is, for somebody who names the address that clients of OpenAI's interface have.
fn base(url: &Url) -> Url {
    let mut base = url.clone();
    let path = url.path().trim_end_matches('/');
    base.set_path(path.strip_suffix("/v1").unwrap_or(path));
    base
}

fn read_certificate(path: &Path) -> Result<Vec<u8>, Failure> {
    let found = CertificateDer::from_pem_slice(&read(path, MAX_CERTIFICATE_BYTES)?);
    found
        .map(|der| der.to_vec())
        .map_err(|error| Failure::usage(format!("{} holds no certificate", path.display())).caused_by(error))
}
