//! Talking to the directory of a KMS, which is known by its root.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cloister_kms_api::{KmsError, KmsErrorCode};
use cloister_ra_tls::{AuthorityPolicy, authority_client_config, public_key_of_pem};
use cloister_verifier::Clock;
use reqwest::{RequestBuilder, Response};
use rustls::{CertificateError, OtherError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;
use zeroize::Zeroizing;

use crate::api::{is_loopback, kept_on_this_machine};
use crate::failure::{Exit, Failure};
use crate::files;
use crate::session::Session;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Largest answer, in bytes: a page of the log, whose records are in JSON once more.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Largest file that is read: certificates, tokens, keys.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Where the KMS of `cloister up` is, in the data directory.
const OWN: &str = "kms";
const ENDPOINT_FILE: &str = "endpoint.json";
const ROOT_FILE: &str = "root-ca.pem";
const TOKEN_FILE: &str = "admin-token";
const VERIFIER_KEY_FILE: &str = "log-verifier-key";

/// Which KMS.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Which KMS [default: that of the cloud on this machine]")]
pub(crate) struct ConnectionArgs {
    /// Its directory, such as `https://kms.example.org:12002`
    #[arg(long, value_name = "URL", requires = "ca")]
    directory_url: Option<Url>,
    /// Certificate of one of its roots, PEM: nobody else is talked to
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// Who asks for changes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// File with the administrator's token
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

/// Where a KMS of this machine is reached; a file in its directory.
#[derive(Debug, Serialize, Deserialize)]
struct Endpoint {
    directory_url: String,
    release_url: String,
}

/// Writes down for other commands where the KMS in `dir` is reached from this machine.
pub(crate) fn announce(dir: &Path, release: SocketAddr, directory: SocketAddr) -> Result<(), Failure> {
    use std::io::Write as _;
    let url = |address| format!("https://{}", crate::parts::local(address));
    let endpoint = Endpoint { directory_url: url(directory), release_url: url(release) };
    let written = tempfile::NamedTempFile::new_in(dir).and_then(|mut file| {
        writeln!(file, "{}", json!(endpoint))?;
        file.persist(dir.join(ENDPOINT_FILE)).map(drop).map_err(|error| error.error)
    });
    written.map_err(|error| Failure::local(format!("cannot write into {}", dir.display()), error))
}

/// Where the KMS of this machine releases keys, or is onboarded.
pub(super) fn own_release_url(session: &Session) -> Result<Url, Failure> {
    parsed(&endpoint(session)?.release_url)
}

fn parsed(url: &str) -> Result<Url, Failure> {
    Url::parse(url).map_err(|error| Failure::local(format!("{ENDPOINT_FILE} does not name a KMS"), error))
}

/// The directory of a KMS.
#[derive(Debug)]
pub(super) struct Directory {
    http: reqwest::Client,
    url: Url,
    token: Option<Token>,
}

/// The administrator's token; has no readable form.
struct Token(Zeroizing<String>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl ConnectionArgs {
    /// A connection for everybody.
    pub(super) fn open(&self, session: &Session) -> Result<Directory, Failure> {
        let own = own(session)?;
        let url = match &self.directory_url {
            Some(url) => url.clone(),
            None => parsed(&endpoint(session)?.directory_url)?,
        };
        if url.scheme() != "https" {
            return Err(Failure::usage(format!(
                "{url} is not the address of a directory: it begins with https"
            )));
        }
        let ca = self.ca.clone().unwrap_or_else(|| own.join(ROOT_FILE));
        let root = public_key_of_pem(&read_text(&ca)?).map_err(|error| {
            Failure::usage(format!("{} is not a certificate", ca.display())).caused_by(error)
        })?;
        Ok(Directory { http: client(&url, root)?, url, token: None })
    }

    /// The key of the log's checkpoints: of this file, or as the KMS of this machine keeps it.
    pub(super) fn verifier_key(&self, file: Option<&Path>, session: &Session) -> Result<String, Failure> {
        match file {
            Some(path) => read_text(path),
            None if self.directory_url.is_some() => {
                Err(Failure::usage("whose signature? A KMS cannot vouch for its own log")
                    .hint("give the key of its log that you know from elsewhere: --verifier-key FILE")
                    .hint("once you trust it, `cloister kms status --json` has it as meta.log_verifier_key"))
            }
            None => read_text(&own(session)?.join(VERIFIER_KEY_FILE)),
        }
        .map(|key| key.trim().to_owned())
    }
}

impl AdminArgs {
    /// Which KMS.
    pub(super) const fn connection(&self) -> &ConnectionArgs {
        &self.connection
    }

    /// A connection for the administrator.
    pub(super) fn open(&self, session: &Session) -> Result<Directory, Failure> {
        let mut directory = self.connection.open(session)?;
        let path = match (&self.admin_token_file, &self.connection.directory_url) {
            (Some(path), _) => path.clone(),
            (None, None) => own(session)?.join(TOKEN_FILE),
            (None, Some(_)) => {
                return Err(Failure::new(
                    Exit::Unauthorised,
                    "no administrator's token for this KMS is known",
                )
                .hint("name the file that holds it: --admin-token-file FILE"));
            }
        };
        let text = files::read_secret(&path, MAX_FILE_BYTES)?;
        directory.token = Some(Token(Zeroizing::new(text.trim().to_owned())));
        Ok(directory)
    }
}

fn own(session: &Session) -> Result<PathBuf, Failure> {
    Ok(session.data_dir()?.join(OWN))
}

fn endpoint(session: &Session) -> Result<Endpoint, Failure> {
    let path = own(session)?.join(ENDPOINT_FILE);
    if !path.exists() {
        return Err(Failure::new(Exit::Unreachable, "no KMS is known")
            .hint("start a cloud on this machine: cloister up")
            .hint(
                "or name one: --directory-url URL --ca FILE, or --url URL of one that is being onboarded",
            ));
    }
    serde_json::from_str(&read_text(&path)?)
        .map_err(|error| Failure::local(format!("{} does not name a KMS", path.display()), error))
}

/// Reads a small text file.
pub(super) fn read_text(path: &Path) -> Result<String, Failure> {
    files::read_text(path, MAX_FILE_BYTES)
}

fn client(url: &Url, root: Vec<u8>) -> Result<reqwest::Client, Failure> {
    let clock = Clock::system();
    let tls = authority_client_config(AuthorityPolicy::kms(Some(root)), None, move || clock.now())
        .map_err(|error| Failure::local("cannot prepare TLS", error))?;
    builder(url)
        .tls_backend_preconfigured(tls)
        .build()
        .map_err(|error| Failure::local("cannot prepare TLS", error))
}

/// What all connections to a KMS share.
pub(super) fn builder(url: &Url) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder()
        .user_agent(concat!("cloister/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(ANSWER_TIMEOUT);
    kept_on_this_machine(builder, url)
}

impl Directory {
    /// `GET` of a JSON document.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, u64)],
    ) -> Result<T, Failure> {
        document(&self.url, self.http.get(self.at(path)?).query(query)).await
    }

    /// `GET` of a text.
    pub(super) async fn text(&self, path: &str) -> Result<String, Failure> {
        let bytes = bytes(&self.url, self.http.get(self.at(path)?)).await?;
        String::from_utf8(bytes).map_err(|_| Failure::new(Exit::Failed, "the KMS did not answer with text"))
    }

    /// `POST` of a method; the administrator's token goes along where there is one.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let mut request = self.http.post(self.at(method)?).query(&[("json", "")]).json(body);
        if let Some(Token(token)) = &self.token {
            request = request.bearer_auth(token.as_str());
        }
        document(&self.url, request).await.map_err(|failure| match failure.exit {
            Exit::Unauthorised => failure.hint("check the token: --admin-token-file FILE"),
            _ => failure,
        })
    }

    fn at(&self, path: &str) -> Result<Url, Failure> {
        self.url.join(path).map_err(|error| Failure::local("cannot name the call", error))
    }
}

/// Sends a request and reads the document that answers it.
pub(super) async fn document<T: DeserializeOwned>(url: &Url, request: RequestBuilder) -> Result<T, Failure> {
    let bytes = bytes(url, request).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Failure::local(format!("{} did not answer as a KMS does", origin(url)), error)
            .hint("is this the address of a KMS, and of this version?")
    })
}

/// Sends a request and reads the answer, whatever it is.
pub(super) async fn bytes(url: &Url, request: RequestBuilder) -> Result<Vec<u8>, Failure> {
    let mut answer = request.send().await.map_err(|error| unreachable(url, error))?;
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| unreachable(url, error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_ANSWER_BYTES {
            return Err(Failure::new(Exit::Failed, format!("the answer of {} is too large", origin(url))));
        }
    }
    if answer.status().is_success() { Ok(bytes) } else { Err(refused(url, &answer, &bytes)) }
}

fn refused(url: &Url, answer: &Response, body: &[u8]) -> Failure {
    let status = answer.status();
    let Ok(KmsError { code, error }) = serde_json::from_slice(body) else {
        return Failure::new(Exit::Failed, format!("{} answered {status}", origin(url)))
            .hint("is this the address of a KMS, and of this version?");
    };
    let exit = match code {
        KmsErrorCode::Unauthorized => Exit::Unauthorised,
        KmsErrorCode::MeasurementNotFound | KmsErrorCode::KeyNotFound => Exit::NotFound,
        KmsErrorCode::TooManyRequests | KmsErrorCode::ApprovalsRequired | KmsErrorCode::ContractDecides => {
            Exit::Conflict
        }
        KmsErrorCode::InternalError | KmsErrorCode::BadRequest => Exit::Failed,
    };
    let failure = Failure::new(exit, format!("the KMS refused: {error}"));
    if code.is_temporary() { failure.hint("try again later") } else { failure }
}

fn unreachable(url: &Url, error: reqwest::Error) -> Failure {
    if let Some(tls) = refused_certificate(&error) {
        return Failure::new(Exit::Unverified, format!("{} is not the KMS of this root: {tls}", origin(url)))
            .hint("somebody may sit between you and the KMS, or --ca names the root of another one");
    }
    let what = if error.is_timeout() { "did not answer in time" } else { "cannot be reached" };
    let failure =
        Failure::new(Exit::Unreachable, format!("{} {what}", origin(url))).caused_by(error.without_url());
    if is_loopback(url) { failure.hint("is `cloister up` running?") } else { failure }
}

/// What TLS had against the server's certificate, if that is why there is no connection.
fn refused_certificate(error: &reqwest::Error) -> Option<String> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(reason)) = error.downcast_ref() {
            return Some(match reason {
                CertificateError::Other(OtherError(ours)) => ours.to_string(),
                reason => reason.to_string(),
            });
        }
        // An I/O error passes over what it holds when it is asked for its source.
        let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match held {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    None
}

/// Scheme, host and port.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}
