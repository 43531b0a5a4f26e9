//! How a node becomes one of an installation, and its development TEE one that is believed.

use serde::{Deserialize, Serialize};

/// A new node asks for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolRequest {
    /// One-time secret from `cloister nodes invite`.
    pub join_token: String,
    /// Name of the node, unique in the installation.
    pub name: String,
    /// PEM certificate request with the node's key.
    pub certificate_request: String,
    /// Hosts and addresses under which the control plane will reach the node.
    pub subject_alternative_names: Vec<String>,
}

/// The certificate of a new node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolResponse {
    /// PEM certificate of the node.
    pub certificate: String,
    /// PEM certificate of the installation's authority.
    pub authority: String,
}

/// A node without TEE hardware asks for the certificate of the platform that it plays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformRequest {
    /// Identity of the platform: 16 bytes, hex, made by the node at its first start.
    pub ppid: String,
    /// The node's provisioning certification key: uncompressed P-256 point, 65 bytes, hex.
    pub public_key: String,
    /// That the node has the key: its signature over the identity, r ‖ s, 64 bytes, hex.
    pub proof: String,
}

/// The certificate of a development platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformCertificate {
    /// PEM: leaf, intermediate, development root.
    pub certificate_chain: String,
}
