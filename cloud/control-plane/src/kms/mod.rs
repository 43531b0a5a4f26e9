//! Key management services: which ones there are, and what the control plane asks of them. It asks for
//! public things only, and tells them which documents an application may run; keys go from a service to
//! guests without passing here.

mod client;
mod config;
mod contract;
mod error;
mod machine;
mod registry;
mod transport;

pub use config::{InvalidKmsConfig, KmsConfig};
pub use contract::KmsContract;
pub(crate) use contract::OFF_CHAIN;
pub use error::KmsCallError;
pub use machine::{KmsMachine, KmsMachineError};
pub(crate) use registry::address;
pub use registry::{Kms, Kmses, KmsesError};

use std::time::Duration;

/// How long the evidence of a service may take to verify, collateral included.
const TIME_TO_VERIFY: Duration = Duration::from_secs(10);
