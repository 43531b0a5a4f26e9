//! The KMSes of this cloud, asked in order until one answers.

use std::fmt;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use cloister_kms_api::{
    AppKeyRequest, AppKeyResponse, ConfirmResealRequest, SignCertRequest, SignCertResponse, method,
};
use cloister_ra_tls::public_key_of_pem;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::{Instant, sleep, timeout};

use super::endpoint::{Endpoint, InvalidEndpoint};
use super::exchange::{Answered, CallError, Identity, Outlook, call};
use super::material::{AppKeys, InvalidKeys};
use super::signer::{CertificateSigner, SignerError, Signing};
use crate::attestation::Prover;
use crate::failure;

/// Addresses that are tried; more are not of a configuration that anybody wrote.
const MAX_ENDPOINTS: usize = 16;
/// Pauses between two rounds over all addresses.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Evidence is made anew for rounds that begin later than this.
const IDENTITY_AGE: Duration = Duration::from_mins(2);
/// Version of the calls that the platform counts.
const SIGN_CERT_VERSION: u32 = 2;

/// Longest wait for keys at boot.
pub(crate) const BOOT_PATIENCE: Duration = Duration::from_mins(5);
/// Longest wait for a certificate: the application waits with it.
const SIGN_PATIENCE: Duration = Duration::from_secs(20);

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KmsFailure {
    /// The document wants a KMS and there is none.
    #[error(
        "the application's keys come from a KMS, but the node names none; use a node of a cloud with a KMS, or set kms_enabled to false"
    )]
    NoKms,
    /// An address that is none.
    #[error("the node names an unusable KMS")]
    Endpoint(#[from] InvalidEndpoint),
    /// A KMS judged this CVM, or none of them will do.
    #[error("{endpoint}")]
    Final {
        /// Which one.
        endpoint: String,
        /// What it said.
        source: CallError,
    },
    /// None answered for as long as one waits.
    #[error("no KMS gave keys within {} s; the last one was {endpoint}", waited.as_secs())]
    Patience {
        /// How long was waited.
        waited: Duration,
        /// Which one was asked last.
        endpoint: String,
        /// Why it gave none.
        source: CallError,
    },
}

/// What a KMS released.
#[derive(Debug)]
pub(crate) struct Release {
    /// The keys.
    pub(crate) keys: AppKeys,
    /// The image as the KMS verified it.
    pub(crate) os_image_hash: [u8; 32],
    /// `SubjectPublicKeyInfo` of the current root, DER: who released the keys.
    pub(crate) root: Vec<u8>,
}

/// All KMSes that the node named.
#[derive(Clone)]
pub(crate) struct KmsClient {
    endpoints: Vec<Endpoint>,
    root: Option<Vec<u8>>,
    prover: Prover,
    now: fn() -> Timestamp,
}

impl KmsClient {
    /// For the addresses that the node named. The KMS must have the root with `pinned_root`, if the document
    /// demands one.
    pub(crate) fn new(
        urls: &[String],
        pinned_root: Option<Vec<u8>>,
        prover: Prover,
        now: fn() -> Timestamp,
    ) -> Result<Self, KmsFailure> {
        let endpoints =
            urls.iter().take(MAX_ENDPOINTS).map(|url| Endpoint::parse(url)).collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            return Err(KmsFailure::NoKms);
        }
        Ok(Self { endpoints, root: pinned_root, prover, now })
    }

    /// Keys of this CVM, which must not have measured anything behind the end of its boot yet. `waiting` is
    /// told what is waited for. From then on only KMSes with the same root are asked.
    pub(crate) async fn app_keys(
        &mut self,
        patience: Duration,
        waiting: impl Fn(&str),
    ) -> Result<Release, KmsFailure> {
        let request = AppKeyRequest {
            api_version: cloister_kms_api::API_VERSION,
            vm_config: self.prover.vm_config.clone(),
        };
        let release = self.ask(method::APP_KEY, &request, patience, &waiting, released).await?;
        self.root = Some(release.root.clone());
        Ok(release)
    }

    /// Tells the KMS that nothing of this CVM is under older roots any more.
    pub(crate) async fn confirm_reseal(
        &self,
        root_version: u32,
        patience: Duration,
    ) -> Result<(), KmsFailure> {
        let vm_config = self.prover.vm_config.clone();
        let request = ConfirmResealRequest { root_version, vm_config };
        let done = |_: Answered<IgnoredAny>| Ok(());
        self.ask(method::CONFIRM_RESEAL, &request, patience, &|_| (), done).await
    }

    /// The same client for other addresses.
    #[cfg(test)]
    pub(super) fn readdress(&mut self, urls: &[String]) {
        self.endpoints = urls.iter().map(|url| Endpoint::parse(url).unwrap()).collect();
    }

    async fn signed(&self, csr: Vec<u8>, signature: Vec<u8>) -> Result<Vec<String>, KmsFailure> {
        let request = SignCertRequest {
            api_version: SIGN_CERT_VERSION,
            csr: csr.into(),
            signature: signature.into(),
            vm_config: self.prover.vm_config.clone(),
        };
        let chain = |answered: Answered<SignCertResponse>| Ok(answered.answer.certificate_chain);
        self.ask(method::SIGN_CERT, &request, SIGN_PATIENCE, &|_| (), chain).await
    }

    /// Asks all KMSes in order, and again after a pause, until one gives what `take` takes.
    async fn ask<A: DeserializeOwned, T>(
        &self,
        method: &'static str,
        request: &impl Serialize,
        patience: Duration,
        waiting: &impl Fn(&str),
        take: impl Fn(Answered<A>) -> Result<T, CallError>,
    ) -> Result<T, KmsFailure> {
        let began = Instant::now();
        // A KMS that is silent must not use up the time of the others, nor more than there is.
        let share = patience / u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX).max(1);
        let mut pauses = ExponentialBuilder::new()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .without_max_times()
            .build();
        let mut identity = None;
        loop {
            let mut hope = None;
            let mut despair = None;
            for endpoint in &self.endpoints {
                let asked = timeout(share, self.ask_one(endpoint, &mut identity, method, request)).await;
                let asked = asked.unwrap_or(Err(CallError::TimedOut));
                let source = match asked.and_then(&take) {
                    Ok(taken) => return Ok(taken),
                    Err(source) => source,
                };
                let outlook = source.outlook();
                let told = (endpoint.to_string(), source);
                match outlook {
                    Outlook::Refused => {
                        let (endpoint, source) = told;
                        return Err(KmsFailure::Final { endpoint, source });
                    }
                    Outlook::Unusable => despair = Some(told),
                    Outlook::Temporary => hope = Some(told),
                }
            }
            let (endpoint, source) = match (hope, despair) {
                (Some(hope), _) => hope,
                (None, Some((endpoint, source))) => return Err(KmsFailure::Final { endpoint, source }),
                (None, None) => return Err(KmsFailure::NoKms),
            };
            let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
            if began.elapsed() + pause > patience {
                return Err(KmsFailure::Patience { waited: began.elapsed(), endpoint, source });
            }
            waiting(&format!("waiting for the KMS: {endpoint}: {}", failure::chain(&source)));
            sleep(pause).await;
        }
    }

    async fn ask_one<A: DeserializeOwned>(
        &self,
        endpoint: &Endpoint,
        identity: &mut Option<(Instant, Identity)>,
        method: &'static str,
        request: &impl Serialize,
    ) -> Result<Answered<A>, CallError> {
        let current = match identity.take().filter(|(made, _)| made.elapsed() < IDENTITY_AGE) {
            Some(current) => current,
            None => (Instant::now(), Identity::make(&self.prover, (self.now)()).await?),
        };
        let (_, shown) = identity.insert(current);
        call(endpoint, self.root.as_deref(), shown, self.now, method, request).await
    }
}

/// Keys under the root whose certificate the connection showed.
fn released(answered: Answered<AppKeyResponse>) -> Result<Release, CallError> {
    let Answered { answer, authority } = answered;
    let root = authority.root_public_key().to_vec();
    let named = public_key_of_pem(&answer.ca_cert).map_err(|_| CallError::Answer)?;
    if named != root {
        return Err(CallError::Rotated);
    }
    let keys = AppKeys::from_answer(&answer)?;
    let os_image_hash = answer.os_image_hash.as_ref().try_into();
    let os_image_hash = os_image_hash.map_err(|_| InvalidKeys::Length("hash of the image"))?;
    Ok(Release { keys, os_image_hash, root })
}

impl CertificateSigner for KmsClient {
    fn sign(&self, request: Vec<u8>, signature: Vec<u8>) -> Signing<'_> {
        Box::pin(async {
            let signed = self.signed(request, signature).await;
            signed.map_err(|error| SignerError(failure::chain(&error)))
        })
    }
}

impl fmt::Debug for KmsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KmsClient").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}
