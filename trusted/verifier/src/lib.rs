//! Verifies evidence against named trust roots.
//!
//! A [`Verifier`] answers whether evidence is genuine: whose root vouches for it, how well patched its
//! platform is, what it measured. A [`Policy`] answers whether that is good enough. The crate is the same
//! for hardware vendors and for the development root, which is one more root that must be configured and
//! that [`TrustRoots::in_production`] refuses.

pub mod appraisal;
mod clock;
mod collateral;
mod error;
mod nitro;
mod policy;
mod pool;
mod quote;
mod roots;
mod snp;
mod tcb;
mod verifier;

pub use clock::Clock;
pub use collateral::{
    CacheError, Collateral, CollateralCache, CollateralError, CollateralKey, CollateralSource,
    CollateralSources, FetchFuture, InProcess, Pccs, PccsError, PckCa, Update,
};
pub use error::VerifyError;
pub use nitro::{NitroPolicy, VerifiedNitro};
pub use policy::{ExpectedMeasurements, Policy, PolicyViolation, PolicyViolations};
pub use quote::{Enclave, MAX_QUOTE_BYTES, Tee, VerifiedQuote};
pub use roots::{RootsError, TrustRoot, TrustRoots};
pub use snp::{SnpChain, SnpPolicy, VerifiedSnp};
pub use tcb::{TcbStatus, UnknownTcbStatus};
pub use verifier::Verifier;
