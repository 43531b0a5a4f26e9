//! Key management services: which ones there are, and what the control plane asks of them. It asks for
//! public things only, and tells them which documents an application may run; keys go from a service to
//! guests without passing here.

mod client;
mod config;
mod error;
mod machine;
mod registry;
mod transport;

pub use config::{InvalidKmsConfig, KmsConfig};
pub use error::KmsCallError;
pub use machine::{KmsMachine, KmsMachineError};
pub use registry::{Kms, Kmses, KmsesError};
pub(crate) use registry::{OFF_CHAIN, address};

use std::time::Duration;

use serde_json::{Map, Value};

/// How long the evidence of a service may take to verify, collateral included.
const TIME_TO_VERIFY: Duration = Duration::from_secs(10);

/// Whether a compose document asks for keys of a key management service (platform reference, section 1):
/// `key_provider` decides, and where it is absent the older flag.
pub(crate) fn is_wanted_by(document: &Map<String, Value>) -> bool {
    match document.get("key_provider").and_then(Value::as_str) {
        Some(provider) => provider == "kms",
        None => document.get("kms_enabled").and_then(Value::as_bool) == Some(true),
    }
}
