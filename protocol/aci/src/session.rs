//! What was verified about an upstream, once per verified channel.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::canonical::{CanonicalError, canonical, sha256};

/// What ties requests to the machine that was verified. Members stand in canonical order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ChannelBinding {
    /// A key of the upstream's TLS certificate.
    TlsSpki {
        /// Where it answers, such as `https://upstream.example.com`.
        origin: String,
        /// SHA-256 of the `SubjectPublicKeyInfo` in DER, 64 hex digits.
        spki_sha256: String,
        /// `tls_spki_sha256`.
        #[serde(rename = "type")]
        kind: TlsSpkiKind,
    },
    /// A key that requests are encrypted to.
    E2eeKey {
        /// Its algorithm.
        algorithm: String,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key_id: Option<String>,
        /// Whose it is.
        provider: String,
        /// SHA-256 of the key, 64 hex digits.
        public_key_sha256: String,
        /// `e2ee_public_key_sha256`.
        #[serde(rename = "type")]
        kind: E2eeKeyKind,
    },
}

/// Tag of [`ChannelBinding::TlsSpki`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsSpkiKind {
    /// The only one.
    #[serde(rename = "tls_spki_sha256")]
    TlsSpkiSha256,
}

/// Tag of [`ChannelBinding::E2eeKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum E2eeKeyKind {
    /// The only one.
    #[serde(rename = "e2ee_public_key_sha256")]
    E2eePublicKeySha256,
}

/// How far a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimStatus {
    /// It was shown.
    Asserted,
    /// The opposite was shown.
    Refuted,
    /// Nothing was shown.
    #[default]
    Unknown,
}

/// Who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimSource {
    /// Evidence of hardware.
    HardwareProven,
    /// The verifier, from evidence and references.
    VerifierDerived,
    /// The provider.
    ProviderAsserted,
    /// The operator of the gateway.
    OperatorAsserted,
}

/// One claim. Source and reason are there unless it is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Claim {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ClaimSource>,
    /// How far it holds.
    pub status: ClaimStatus,
}

/// Something that a verifier found. There are no fractions: they have no one form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Fact {
    /// Yes or no.
    Flag(bool),
    /// A number up to 2^53.
    Number(u64),
    /// A text.
    Text(String),
}

/// What is claimed about an upstream. Members stand in canonical order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Claims {
    /// Facts of the verifier, by stable ASCII names.
    #[serde(default)]
    pub extra: BTreeMap<String, Fact>,
    /// GPUs attested.
    #[serde(default)]
    pub gpu_attested: Claim,
    /// The weights of the model are the announced ones.
    #[serde(default)]
    pub model_weights_provenance: Claim,
    /// The operating system is a known one.
    #[serde(default)]
    pub os_known_good: Claim,
    /// The serving software is a known one.
    #[serde(default)]
    pub serving_software_known_good: Claim,
    /// The platform's firmware and microcode are up to date.
    #[serde(default)]
    pub tcb_up_to_date: Claim,
    /// The machine proved to be a TEE.
    #[serde(default)]
    pub tee_attested: Claim,
}

/// What the verifier saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// `data:<type>;base64,…`
    pub data: String,
    /// Digest of the bytes in `data`.
    pub digest: String,
}

impl Evidence {
    /// Evidence of a media type.
    #[must_use]
    pub fn new(media_type: &str, bytes: &[u8]) -> Self {
        Self { data: format!("data:{media_type};base64,{}", STANDARD.encode(bytes)), digest: sha256(bytes) }
    }

    /// The bytes, if `data` can be read and the digest is theirs.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let (_, encoded) = self.data.strip_prefix("data:")?.split_once(";base64,")?;
        STANDARD.decode(encoded).ok().filter(|bytes| sha256(bytes) == self.digest)
    }
}

/// A verified channel to an upstream, for a time. It never changes; its id is a hash of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// What ties requests to the machine; never empty.
    pub channel_binding: Vec<ChannelBinding>,
    /// What was found.
    pub claims: Claims,
    /// The verified origin, where the channel has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Begin, in seconds since the Unix epoch.
    pub established_at: u64,
    /// What the verifier saw.
    pub evidence: Evidence,
    /// End, in seconds since the Unix epoch.
    pub expires_at: u64,
    /// Who the upstream proved to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Value>,
    /// The upstream's name, once more: what older clients read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The upstream's name.
    pub upstream_name: String,
    /// How it was verified, such as `aci-service/v2`.
    pub verifier_id: String,
}

impl Session {
    /// The document.
    pub fn document(&self) -> Result<Value, CanonicalError> {
        Ok(serde_json::to_value(self)?)
    }
}

/// The id of a session record: 64 hex digits, the hash of its canonical form.
pub fn id(record: &Value) -> Result<String, CanonicalError> {
    Ok(hex::encode(Sha256::digest(canonical(record)?)))
}
