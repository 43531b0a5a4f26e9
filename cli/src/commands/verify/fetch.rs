//! Connections whose certificate is recorded, not believed, and asking a CVM for evidence over one.

use std::sync::Arc;
use std::time::Duration;

use cloister_evidence::AttestationDocument;
use parking_lot::Mutex;
use reqwest::{ClientBuilder, RequestBuilder, StatusCode};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme};
use url::Url;

use crate::api::kept_on_this_machine;
use crate::failure::{Exit, Failure};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A quote takes hardware about a second, and several may be waiting.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
const MAX_DOCUMENT_BYTES: usize = 64 << 20;

/// An answer, and the certificate that the connection ended at, if it was TLS.
pub(super) struct Answer {
    pub(super) document: AttestationDocument,
    pub(super) certificate: Option<Vec<u8>>,
}

/// Asks for evidence over `nonce`.
pub(super) async fn fetch(url: &Url, nonce: &[u8]) -> Result<Answer, Failure> {
    let mut url = url.clone();
    url.query_pairs_mut().append_pair("report_data", &hex::encode(nonce));
    let client = Client::new(&url, None)?;
    let unreachable = |error: reqwest::Error| {
        let what = if error.is_timeout() { "did not answer in time" } else { "cannot be reached" };
        let failure =
            Failure::new(Exit::Unreachable, format!("{} {what}", url.origin().ascii_serialization()));
        match client.refusal() {
            Some(why) => failure.caused_by(why),
            None => failure
                .caused_by(error.without_url())
                .hint("is the CVM running, and is this its address? cloister cvms list"),
        }
    };
    let mut answer = client.get(url.clone()).send().await.map_err(unreachable)?;
    let certificate = client.certificate()?;
    let status = answer.status();
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_DOCUMENT_BYTES {
            return Err(Failure::new(
                Exit::Failed,
                "the answer is larger than an attestation document can be",
            ));
        }
    }
    if !status.is_success() {
        return Err(refused(&url, status, &bytes));
    }
    let document = serde_json::from_slice(&bytes).map_err(|error| {
        Failure::local(format!("{url} did not answer with an attestation document"), error).hint(
            "verify takes the address of the guest agent, https://APP_ID-8090s.DOMAIN, or of an app that \
                   passes /attestation on",
        )
    })?;
    Ok(Answer { document, certificate })
}

fn refused(url: &Url, status: StatusCode, body: &[u8]) -> Failure {
    let said = serde_json::from_slice::<serde_json::Value>(body).ok();
    let said = said.as_ref().and_then(|body| body.get("error").or_else(|| body.get("detail"))?.as_str());
    let reason = said.map(|said| format!(": {said}")).unwrap_or_default();
    let exit = if status == StatusCode::NOT_FOUND { Exit::NotFound } else { Exit::Failed };
    let failure =
        Failure::new(exit, format!("{} answered {status}{reason}", url.origin().ascii_serialization()));
    match status {
        StatusCode::FORBIDDEN => failure.hint("the app keeps its evidence private: public_tcbinfo is false"),
        _ => failure.hint("is the CVM running, and is this its address? cloister cvms list"),
    }
}

/// What every client here is: it follows nobody elsewhere, and waits for evidence.
pub(super) fn builder() -> ClientBuilder {
    reqwest::Client::builder()
        .user_agent(concat!("cloister/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(ANSWER_TIMEOUT)
}

/// A client for one server, whose certificate it records.
pub(super) struct Client {
    http: reqwest::Client,
    recorder: Arc<Recorder>,
    is_https: bool,
}

impl Client {
    /// Takes any certificate, or this one alone (DER).
    pub(super) fn new(url: &Url, only: Option<Vec<u8>>) -> Result<Self, Failure> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let recorder = Arc::new(Recorder {
            provider: Arc::clone(&provider),
            host: bare(url.host_str().unwrap_or_default()).to_owned(),
            only,
            shown: Mutex::default(),
            proven: Mutex::default(),
            refusal: Mutex::default(),
        });
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::local("cannot prepare TLS", error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&recorder) as _)
            .with_no_client_auth();
        // Each connection shows its certificate.
        tls.resumption = Resumption::disabled();
        let http = kept_on_this_machine(builder().tls_backend_preconfigured(tls), url).build();
        let http = http.map_err(|error| Failure::local("cannot prepare TLS", error))?;
        Ok(Self { http, recorder, is_https: url.scheme() == "https" })
    }

    pub(super) fn get(&self, url: Url) -> RequestBuilder {
        self.http.get(url)
    }

    /// The certificate (DER) that the last connection ended at; `None` without TLS.
    pub(super) fn certificate(&self) -> Result<Option<Vec<u8>>, Failure> {
        if !self.is_https {
            return Ok(None);
        }
        // Without one nobody would know whom TLS ended at, which is not the same as that there was none.
        let proven = self.recorder.proven.lock().clone();
        let unseen = || Failure::new(Exit::Failed, "it was not seen whom TLS ended at");
        proven.ok_or_else(unseen).map(Some)
    }

    /// Why a certificate was not taken; the errors of a connection do not tell that in words.
    pub(super) fn refusal(&self) -> Option<NotTaken> {
        *self.recorder.refusal.lock()
    }
}

/// A host as TLS names it.
fn bare(host: &str) -> &str {
    host.trim_matches(['[', ']']).trim_end_matches('.')
}

/// Why a certificate is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotTaken {
    /// It is not the only one that is.
    #[error("its certificate is not the one that was kept")]
    Another,
    /// It is for another name than the server's.
    #[error("a proxy that is reached by TLS itself is not asked for this: name one by http://")]
    OfAProxy,
}

/// Records certificates whose key the peer proves to have. What one is worth is judged afterwards, by evidence: no public
/// authority can vouch for the inside of a CVM.
#[derive(Debug)]
struct Recorder {
    provider: Arc<CryptoProvider>,
    host: String,
    /// The only one that is taken.
    only: Option<Vec<u8>>,
    /// The last one, until the peer has proved that it has the key.
    shown: Mutex<Option<Vec<u8>>>,
    proven: Mutex<Option<Vec<u8>>>,
    refusal: Mutex<Option<NotTaken>>,
}

impl Recorder {
    fn refused(&self, why: NotTaken) -> rustls::Error {
        *self.refusal.lock() = Some(why);
        CertificateError::Other(OtherError(Arc::new(why))).into()
    }

    fn proved(
        &self,
        outcome: Result<HandshakeSignatureValid, rustls::Error>,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if outcome.is_ok() {
            *self.proven.lock() = self.shown.lock().take();
        }
        outcome
    }
}

impl ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if !bare(&server_name.to_str()).eq_ignore_ascii_case(&self.host) {
            return Err(self.refused(NotTaken::OfAProxy));
        }
        if self.only.as_ref().is_some_and(|only| only[..] != end_entity[..]) {
            return Err(self.refused(NotTaken::Another));
        }
        *self.shown.lock() = Some(end_entity.to_vec());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.proved(verify_tls12_signature(message, cert, dss, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.proved(verify_tls13_signature(message, cert, dss, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
