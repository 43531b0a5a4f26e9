//! Where collateral comes from.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::{Collateral, Tee, TrustRoot};

/// Which authority issued a platform's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PckCa {
    /// For machines with one package.
    Processor,
    /// For machines with many packages.
    Platform,
}

impl PckCa {
    /// As in addresses of collateral services.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Processor => "processor",
            Self::Platform => "platform",
        }
    }
}

/// Which of the vendor's lists: the vendor publishes fixes early, platforms have months to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Update {
    /// What platforms must have reached by now.
    #[default]
    Standard,
    /// The newest evaluation, before its grace period ends.
    Early,
}

impl Update {
    /// As in addresses of collateral services.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Early => "early",
        }
    }
}

/// Which collateral: everything that platforms of one kind share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CollateralKey {
    /// Who vouches.
    pub root: TrustRoot,
    /// Family, model, stepping, platform and custom SKU.
    pub fmspc: [u8; 6],
    /// Issuer of the platform's certificate.
    pub ca: PckCa,
    /// Kind of machine.
    pub tee: Tee,
}

impl fmt::Display for CollateralKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} platforms {} ({} CA) under the {}",
            self.tee,
            hex::encode_upper(self.fmspc),
            self.ca.as_str(),
            self.root
        )
    }
}

/// Why there is no collateral.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollateralError {
    /// Nobody was named who has it.
    #[error("no source of collateral is configured for the {0}")]
    NoSource(TrustRoot),
    /// The source could not be asked or did not answer in time.
    #[error("the collateral service cannot be reached: {0}")]
    Unreachable(String),
    /// The source has none.
    #[error("the collateral service refuses: {0}")]
    Refused(String),
    /// What it sent is no collateral.
    #[error("the collateral service sent something else: {0}")]
    Malformed(String),
    /// More wait for collateral than may.
    #[error("too many requests wait for collateral; try again")]
    Busy,
    /// The cache was stopped.
    #[error("the cache of collateral has ended")]
    Ended,
}

/// A fetch under way.
pub type FetchFuture<'a> = Pin<Box<dyn Future<Output = Result<Collateral, CollateralError>> + Send + 'a>>;

/// A place to get collateral from.
pub trait CollateralSource: Send + Sync + 'static {
    /// Gets it, within a time of the source's own.
    fn fetch<'a>(&'a self, key: &'a CollateralKey, update: Update) -> FetchFuture<'a>;
}

/// A vendor in the same process, such as that of the development platform.
pub struct InProcess<F>(F);

impl<F> InProcess<F>
where
    F: Fn(&CollateralKey) -> Result<Collateral, CollateralError> + Send + Sync + 'static,
{
    /// A vendor that makes collateral at once.
    pub const fn new(make: F) -> Self {
        Self(make)
    }
}

impl<F> CollateralSource for InProcess<F>
where
    F: Fn(&CollateralKey) -> Result<Collateral, CollateralError> + Send + Sync + 'static,
{
    fn fetch<'a>(&'a self, key: &'a CollateralKey, _update: Update) -> FetchFuture<'a> {
        Box::pin(std::future::ready((self.0)(key)))
    }
}
