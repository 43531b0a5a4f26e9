//! The verdict on a quote.

use cloister_development_tee::TeeError;
use cloister_evidence::Quote;
use cloister_verifier::{CollateralError, VerifiedQuote, Verifier, VerifyError};
use serde::{Deserialize, Serialize};

use crate::proof_of_cloud::PlatformKey;
use crate::store::StoreError;

/// What was found about a quote. Kept as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// Whether it is genuine.
    pub(crate) verified: bool,
    /// The trust root in plain words; absent when it is not genuine, like everything up to `reasons`.
    #[serde(default)]
    pub(crate) trust_root: Option<String>,
    /// Whether that root stands for protection by hardware.
    #[serde(default)]
    pub(crate) is_hardware: bool,
    /// Intel's word for how current the platform is.
    #[serde(default)]
    pub(crate) tcb_status: Option<String>,
    /// Advisories that concern the platform.
    #[serde(default)]
    pub(crate) advisory_ids: Vec<String>,
    /// Platform identity, hex.
    #[serde(default)]
    pub(crate) ppid: Option<String>,
    /// SHA-256 of it, hex.
    #[serde(default)]
    pub(crate) device_id: Option<String>,
    /// Model of the platform, hex.
    #[serde(default)]
    pub(crate) fmspc: Option<String>,
    /// Why it is not genuine.
    #[serde(default)]
    pub(crate) reasons: Vec<String>,
}

impl Verdict {
    fn genuine(quote: &VerifiedQuote) -> Self {
        Self {
            verified: true,
            trust_root: Some(quote.trust_root.to_string()),
            is_hardware: quote.trust_root.is_hardware(),
            tcb_status: Some(quote.tcb_status.to_string()),
            advisory_ids: quote.advisory_ids.clone(),
            ppid: Some(hex::encode(quote.ppid)),
            device_id: Some(hex::encode(quote.device_id)),
            fmspc: Some(hex::encode(quote.fmspc)),
            reasons: Vec::new(),
        }
    }

    /// Evidence that is not believed, and why.
    pub(crate) fn refused(reasons: Vec<String>) -> Self {
        Self { reasons, ..Self::default() }
    }

    /// The platform, if hardware vouches for it: a development platform is in no registry.
    pub(crate) fn hardware_platform(&self) -> Option<PlatformKey> {
        let ppid = self.ppid.as_deref().filter(|_| self.verified && self.is_hardware)?;
        let ppid: [u8; 16] = hex::decode(ppid).ok()?.try_into().ok()?;
        Some(PlatformKey::intel(&ppid))
    }
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unjudged {
    /// The bytes are no quote.
    #[error("{0}")]
    NotAQuote(String),
    /// The vendor's data could not be had.
    #[error("the vendor's collateral cannot be had now")]
    Collateral(#[source] CollateralError),
    /// Our own records cannot be read.
    #[error("this installation's own records cannot be read")]
    Store(#[from] StoreError),
    /// The register of development platforms cannot be read.
    #[error("this installation's register of development platforms cannot be read")]
    Register(#[from] TeeError),
    /// There is too much to do.
    #[error("too many quotes are being verified")]
    Busy,
}

/// A verdict with the quote that was verified, if it was.
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    pub(crate) quote: Option<VerifiedQuote>,
}

/// Judges the bytes of a quote now.
pub(crate) async fn judge(verifier: &Verifier, bytes: &[u8]) -> Result<Judged, Unjudged> {
    let quote = Quote::parse(bytes).map_err(|error| Unjudged::NotAQuote(error.to_string()))?;
    quote.certification.certificates().map_err(|error| Unjudged::NotAQuote(error.to_string()))?;
    judged(verifier.quote(bytes).await)
}

pub(super) fn judged(outcome: Result<VerifiedQuote, VerifyError>) -> Result<Judged, Unjudged> {
    match outcome {
        Ok(quote) => Ok(Judged { verdict: Verdict::genuine(&quote), quote: Some(quote) }),
        Err(error) if error.is_malformed() => Err(Unjudged::NotAQuote(error.to_string())),
        Err(
            VerifyError::Busy | VerifyError::Interrupted | VerifyError::Collateral(CollateralError::Busy),
        ) => Err(Unjudged::Busy),
        // A source that answered and has nothing judges the quote, not the source.
        Err(VerifyError::Collateral(error)) if !matches!(error, CollateralError::Refused(_)) => {
            Err(Unjudged::Collateral(error))
        }
        Err(error) => Ok(Judged { verdict: Verdict::refused(vec![error.to_string()]), quote: None }),
    }
}
