//! Client of a provisioning certificate caching service (PCCS), or of Intel's own service.

use std::net::IpAddr;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use percent_encoding::percent_decode_str;
use reqwest::redirect;
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use url::{Host, Url};
use x509_parser::extensions::{DistributionPointName, GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::source::{CollateralError, CollateralKey, CollateralSource, FetchFuture, Update};
use crate::{Collateral, TrustRoot, TrustRoots};

/// Longest answer, in bytes; real ones have up to 100 KiB.
const MAX_BODY: usize = 2 << 20;
/// Longest certificate chain in a header, decoded.
const MAX_CHAIN: usize = 32 << 10;
const CONNECT_TIME: Duration = Duration::from_secs(5);
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// How often a request is repeated when the service fails, and after which pauses.
const RETRIES: usize = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// What people append to base addresses, as in the settings of other clients.
const SUFFIXES: [&str; 2] = ["/sgx/certification/v4", "/tdx/certification/v4"];
/// Intel's own service has no path for the root's revocation list.
const INTEL: &str = "trustedservices.intel.com";

/// Why an address cannot be that of a collateral service.
#[derive(Debug, thiserror::Error)]
pub enum PccsError {
    /// Not an address of the web.
    #[error("the address of a collateral service must be http or https and have no query")]
    Address,
    /// An address that anybody on the way could answer for.
    #[error("collateral services are reached over https; plain http is for this machine only")]
    Plain,
    /// The client cannot be made.
    #[error("no client for the collateral service can be made")]
    Client(#[source] reqwest::Error),
}

/// A collateral service.
#[derive(Debug, Clone)]
pub struct Pccs {
    base: Url,
    http: Client,
}

impl Pccs {
    /// The service at `base`: https, or http on this machine.
    pub fn new(base: &Url) -> Result<Self, PccsError> {
        if base.scheme() == "http" && !is_loopback(base) {
            return Err(PccsError::Plain);
        }
        Self::over_plain_http(base)
    }

    /// The service at `base`, also over plain http: whoever is on the way can withhold or age collateral,
    /// though not forge it.
    pub fn over_plain_http(base: &Url) -> Result<Self, PccsError> {
        let sound = matches!(base.scheme(), "http" | "https")
            && base.has_host()
            && base.query().is_none()
            && base.fragment().is_none();
        if !sound {
            return Err(PccsError::Address);
        }
        // The process's provider of cryptography, unless the program chose one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIME)
            .timeout(REQUEST_TIME);
        // Without a proxy, which could be one over https, plain http knows no TLS: the machine's authorities, hundreds of
        // files, would be read for nothing.
        let builder = match (is_loopback(base), base.scheme()) {
            (true, "http") => builder.no_proxy().tls_certs_only([]),
            (true, _) => builder.no_proxy(),
            (false, _) => builder,
        };
        let http = builder.build().map_err(PccsError::Client)?;
        Ok(Self { base: trimmed(base), http })
    }

    async fn fetch_all(&self, key: &CollateralKey, update: Update) -> Result<Collateral, CollateralError> {
        let (tee, update) = (key.tee.as_str(), update.as_str());
        let fmspc = hex::encode_upper(key.fmspc);
        let v4 = |tee: &str, path: &str| self.address(&format!("{tee}/certification/v4/{path}"));
        let (pck_crl, tcb, qe, root_crl) = tokio::join!(
            self.get(v4("sgx", &format!("pckcrl?ca={}&encoding=der", key.ca.as_str()))?),
            self.get(v4(tee, &format!("tcb?fmspc={fmspc}&update={update}"))?),
            self.get(v4(tee, &format!("qe/identity?update={update}"))?),
            self.get(self.root_crl_address(key.root)?),
        );
        let (pck_crl, tcb, qe, root_crl) = (pck_crl?, tcb?, qe?, root_crl?);
        let (tcb_info, tcb_info_signature) = signed::<TcbInfo>(&tcb.body, "TCB info")?;
        let (qe_identity, qe_identity_signature) =
            signed::<QeIdentity>(&qe.body, "identity of the quoting enclave")?;
        Ok(Collateral {
            pck_crl_issuer_chain: pck_crl.chain(&["SGX-PCK-CRL-Issuer-Chain"])?,
            root_ca_crl: revocation_list(root_crl.body)?,
            pck_crl: revocation_list(pck_crl.body)?,
            tcb_info_issuer_chain: tcb.chain(&["TCB-Info-Issuer-Chain", "SGX-TCB-Info-Issuer-Chain"])?,
            tcb_info,
            tcb_info_signature,
            qe_identity_issuer_chain: qe.chain(&["SGX-Enclave-Identity-Issuer-Chain"])?,
            qe_identity,
            qe_identity_signature,
            pck_certificate_chain: None,
        })
    }

    fn address(&self, path: &str) -> Result<Url, CollateralError> {
        self.base.join(path).map_err(|_| CollateralError::Refused("its address cannot be extended".into()))
    }

    /// Caching services have the list; for Intel's own, the root says where it is.
    fn root_crl_address(&self, root: TrustRoot) -> Result<Url, CollateralError> {
        let is_intel = self.base.host_str().is_some_and(|host| {
            host == INTEL || host.strip_suffix(INTEL).is_some_and(|rest| rest.ends_with('.'))
        });
        if !is_intel {
            return self.address("sgx/certification/v4/rootcacrl");
        }
        let point = TrustRoots::vendors().certificate(root).and_then(distribution_point);
        point.ok_or_else(|| CollateralError::Refused(format!("it does not serve the {root}")))
    }

    /// One answer; failures of the service or the way to it are retried.
    async fn get(&self, address: Url) -> Result<Answer, CollateralError> {
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(FIRST_PAUSE)
            .with_max_times(RETRIES)
            .with_jitter()
            .build();
        loop {
            let outcome = self.try_get(address.clone()).await;
            match (outcome, pauses.next()) {
                (Err(CollateralError::Unreachable(_)), Some(pause)) => tokio::time::sleep(pause).await,
                (outcome, _) => return outcome,
            }
        }
    }

    async fn try_get(&self, address: Url) -> Result<Answer, CollateralError> {
        let path = address.path().to_owned();
        let unreachable =
            |error: reqwest::Error| CollateralError::Unreachable(format!("{path}: {}", reason(&error)));
        let mut response = self.http.get(address).send().await.map_err(unreachable)?;
        let status = response.status();
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(CollateralError::Unreachable(format!("{path} answers {status}")));
        }
        if status != StatusCode::OK {
            return Err(CollateralError::Refused(format!("{path} answers {status}")));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len().saturating_add(chunk.len()) > MAX_BODY {
                return Err(CollateralError::Malformed(format!("{path} answers more than {MAX_BODY} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { path, body, response: Box::new(response) })
    }
}

impl CollateralSource for Pccs {
    fn fetch<'a>(&'a self, key: &'a CollateralKey, update: Update) -> FetchFuture<'a> {
        Box::pin(self.fetch_all(key, update))
    }
}

/// What a service answered; its headers stay in the response.
struct Answer {
    path: String,
    body: Vec<u8>,
    response: Box<Response>,
}

impl Answer {
    /// The PEM chain in the first of these headers that is there.
    fn chain(&self, names: &[&str]) -> Result<String, CollateralError> {
        let malformed = |what: &str| CollateralError::Malformed(format!("{} {what}", self.path));
        let header = names.iter().find_map(|name| self.response.headers().get(*name));
        let header = header.ok_or_else(|| malformed("names no issuer"))?;
        let encoded = header.to_str().map_err(|_| malformed("names an issuer that is no text"))?;
        let chain = percent_decode_str(encoded)
            .decode_utf8()
            .map_err(|_| malformed("names an issuer that is no text"))?;
        if chain.len() > MAX_CHAIN {
            return Err(malformed("names too long a chain of issuers"));
        }
        Ok(chain.into_owned())
    }
}

/// A signed document with its signature; the signature is over the inner text as it stands there.
trait Signed<'a>: Deserialize<'a> {
    fn parts(&self) -> (&'a RawValue, &str);
}

#[derive(Deserialize)]
struct TcbInfo<'a> {
    #[serde(borrow, rename = "tcbInfo")]
    inner: &'a RawValue,
    signature: String,
}

#[derive(Deserialize)]
struct QeIdentity<'a> {
    #[serde(borrow, rename = "enclaveIdentity")]
    inner: &'a RawValue,
    signature: String,
}

impl<'a> Signed<'a> for TcbInfo<'a> {
    fn parts(&self) -> (&'a RawValue, &str) {
        (self.inner, &self.signature)
    }
}

impl<'a> Signed<'a> for QeIdentity<'a> {
    fn parts(&self) -> (&'a RawValue, &str) {
        (self.inner, &self.signature)
    }
}

fn signed<'a, T: Signed<'a>>(body: &'a [u8], name: &str) -> Result<(String, Vec<u8>), CollateralError> {
    let malformed = || CollateralError::Malformed(format!("the {name} is not a signed document"));
    let document: T = serde_json::from_slice(body).map_err(|_| malformed())?;
    let (inner, signature) = document.parts();
    let signature = hex::decode(signature).map_err(|_| malformed())?;
    Ok((inner.get().to_owned(), signature))
}

/// Lists come as DER or as hex text of it.
fn revocation_list(body: Vec<u8>) -> Result<Vec<u8>, CollateralError> {
    const DER_SEQUENCE: u8 = 0x30;
    // A hex text may begin with the digit '0', which is 0x30 as well; a list's length takes three bytes.
    if body.first() == Some(&DER_SEQUENCE) && body.get(1).is_some_and(|length| *length >= 0x80) {
        return Ok(body);
    }
    hex::decode(body.trim_ascii())
        .map_err(|_| CollateralError::Malformed("a revocation list is neither DER nor hex text".into()))
}

/// Where a root publishes its revocation list.
fn distribution_point(root: &[u8]) -> Option<Url> {
    let (_, certificate) = X509Certificate::from_der(root).ok()?;
    let points =
        certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::CRLDistributionPoints(points) => Some(points),
            _ => None,
        })?;
    let names = points.points.iter().filter_map(|point| match &point.distribution_point {
        Some(DistributionPointName::FullName(names)) => Some(names),
        _ => None,
    });
    let uri = names.flatten().find_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    })?;
    Url::parse(uri).ok().filter(|url| url.scheme() == "https")
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

/// The address without what people append, ending with a slash, so that paths can be joined.
fn trimmed(base: &Url) -> Url {
    let mut base = base.clone();
    let path = base.path().trim_end_matches('/');
    let path = SUFFIXES.iter().find_map(|suffix| path.strip_suffix(suffix)).unwrap_or(path);
    let path = format!("{}/", path.trim_end_matches('/'));
    base.set_path(&path);
    base
}

/// The innermost reason: the outer ones repeat the address.
fn reason(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
