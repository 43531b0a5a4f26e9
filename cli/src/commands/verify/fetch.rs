//! Asking a CVM for evidence over a connection whose certificate is recorded, not believed.

use std::sync::Arc;
use std::time::Duration;

use cloister_evidence::AttestationDocument;
use reqwest::StatusCode;
use reqwest::tls::TlsInfo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
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
    let unreachable = |error: reqwest::Error| {
        let what = if error.is_timeout() { "did not answer in time" } else { "cannot be reached" };
        Failure::new(Exit::Unreachable, format!("{} {what}", url.origin().ascii_serialization()))
            .caused_by(error.without_url())
            .hint("is the CVM running, and is this its address? cloister cvms list")
    };
    let mut answer = client(&url)?.get(url.clone()).send().await.map_err(unreachable)?;
    let certificate =
        answer.extensions().get::<TlsInfo>().and_then(TlsInfo::peer_certificate).map(<[u8]>::to_vec);
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

/// A client that follows nobody elsewhere.
pub(super) fn client(url: &Url) -> Result<reqwest::Client, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::local("cannot prepare TLS", error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let builder = reqwest::Client::builder()
        .user_agent(concat!("cloister/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(ANSWER_TIMEOUT)
        .tls_backend_preconfigured(tls)
        .tls_info(true);
    kept_on_this_machine(builder, url).build().map_err(|error| Failure::local("cannot prepare TLS", error))
}

/// Takes any certificate whose key the peer proves to have. What the certificate is worth is judged
/// afterwards, by the evidence in it: no public authority can vouch for the inside of a CVM.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
