//! The document that a guest agent shows to whoever verifies it.

use serde::{Deserialize, Serialize};

/// What `/attestation` answers, and what a node passes on: the union of what public verifiers take.
/// Everything in it is to be verified; nothing in it is to be believed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttestationDocument {
    /// TDX quote, hex; absent on platforms without quotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// Event log, the JSON text of an array of [`EventLogEntry`](crate::EventLogEntry).
    #[serde(default)]
    pub event_log: String,
    /// The 64 bytes that the evidence was made over, 128 hex digits.
    #[serde(default)]
    pub report_data: String,
    /// Description of the machine, the JSON text of a [`VmConfig`](crate::VmConfig).
    #[serde(default)]
    pub vm_config: String,
    /// The same as one versioned attestation, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation: Option<String>,
    /// Nitro attestation document, base64; absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// Exact text of the app-compose document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_compose: Option<String>,
    /// PEM chain of the agent's own attested certificate, leaf first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_cert: Option<String>,
}
