//! MRCONFIGID: how a host binds a machine to its application at launch (platform reference, section 4.5).

use cloister_app_compose::{AppId, ComposeHash, InstanceId};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sha3::Keccak256;

use crate::Measurement;

const VERSION_3_TAG: &[u8] = b"dstack-mr-config-v3:\0";
/// Longest document of version 3, in bytes.
const MAX_DOCUMENT_BYTES: usize = 64 << 10;

/// Why the register contradicts what is known of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MrConfigIdError {
    /// The first byte is not that of a known version.
    #[error("MRCONFIGID has the unknown version {0}")]
    Version(u8),
    /// The hash in it is another.
    #[error("MRCONFIGID is not that of this application")]
    Mismatch,
    /// Version 3 is checked with the document that it hashes.
    #[error("MRCONFIGID needs its document to be checked")]
    NoDocument,
    /// The document of version 3 is not in canonical form or has unknown members.
    #[error("the document of MRCONFIGID is malformed")]
    Document,
}

/// Kind of a key provider in version 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyProviderKind {
    /// No keys.
    None = 0,
    /// An enclave on the same machine.
    Local = 1,
    /// A key management service.
    Kms = 2,
    /// A TPM.
    Tpm = 3,
}

impl KeyProviderKind {
    /// By the name in the event `key-provider`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "local" | "local-sgx" => Self::Local,
            "kms" => Self::Kms,
            "tpm" => Self::Tpm,
            _ => return None,
        })
    }
}

/// What a register is checked against.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedConfig<'a> {
    /// The app-compose document.
    pub compose_hash: &'a ComposeHash,
    /// The application.
    pub app_id: &'a AppId,
    /// Kind and id of the key provider; only version 2 needs them.
    pub key_provider: Option<(KeyProviderKind, &'a [u8])>,
    /// The document of version 3.
    pub document: Option<&'a str>,
}

/// Version 1: the compose hash itself.
#[must_use]
pub fn mr_config_id_v1(compose_hash: &ComposeHash) -> Measurement {
    register(1, compose_hash.as_bytes())
}

/// Version 2: compose hash, application and key provider.
#[must_use]
pub fn mr_config_id_v2(
    compose_hash: &ComposeHash,
    app_id: &AppId,
    kind: KeyProviderKind,
    key_provider_id: &[u8],
) -> Measurement {
    let mut hasher = Keccak256::new();
    hasher.update(compose_hash.as_bytes());
    hasher.update(app_id.as_bytes());
    hasher.update([kind as u8]);
    hasher.update(key_provider_id);
    register(2, &hasher.finalize().into())
}

/// Version 3: a document. Its hash alone is the host data of an SNP report.
#[must_use]
pub fn mr_config_id_v3(document: &str) -> Measurement {
    register(3, &mr_config_v3_hash(document))
}

/// SHA-256 of a version 3 document with its tag.
#[must_use]
pub fn mr_config_v3_hash(document: &str) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(VERSION_3_TAG);
    hasher.update(document);
    hasher.finalize().into()
}

/// Checks the register. Zeros pass: the host named nothing.
pub fn check_mr_config_id(
    actual: &Measurement,
    expected: &ExpectedConfig<'_>,
) -> Result<(), MrConfigIdError> {
    if *actual == Measurement::ZERO {
        return Ok(());
    }
    let [version, ..] = actual.as_bytes();
    let computed = match version {
        1 => mr_config_id_v1(expected.compose_hash),
        2 => {
            let (kind, id) = expected.key_provider.ok_or(MrConfigIdError::Mismatch)?;
            mr_config_id_v2(expected.compose_hash, expected.app_id, kind, id)
        }
        3 => {
            let document = expected.document.ok_or(MrConfigIdError::NoDocument)?;
            let config = MrConfig::parse(document)?;
            let same_app = config.app_id.is_none_or(|app_id| app_id == *expected.app_id);
            if config.compose_hash != *expected.compose_hash || !same_app {
                return Err(MrConfigIdError::Mismatch);
            }
            mr_config_id_v3(document)
        }
        version => return Err(MrConfigIdError::Version(*version)),
    };
    if computed == *actual { Ok(()) } else { Err(MrConfigIdError::Mismatch) }
}

/// The document of version 3. Its canonical form has its members in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MrConfig {
    /// The application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_id: Option<AppId>,
    /// The app-compose document.
    pub compose_hash: ComposeHash,
    /// SHA-256 of the policy for GPUs, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_policy_hash: Option<String>,
    /// SHA-256 of scripts that run before the application, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_script_hashes: Option<Vec<String>>,
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<InstanceId>,
    /// Kind of the key provider.
    pub key_provider: String,
    /// Public key of the key provider, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_provider_id: Option<String>,
    /// 3.
    pub version: u32,
}

impl MrConfig {
    /// Parses a document, which must be in canonical form (RFC 8785): one document, one hash.
    pub fn parse(document: &str) -> Result<Self, MrConfigIdError> {
        if document.len() > MAX_DOCUMENT_BYTES {
            return Err(MrConfigIdError::Document);
        }
        let config: Self = serde_json::from_str(document).map_err(|_| MrConfigIdError::Document)?;
        // Members are declared in canonical order, and strings and small integers have one form.
        if config.version == 3 && config.to_json() == document {
            Ok(config)
        } else {
            Err(MrConfigIdError::Document)
        }
    }

    /// The canonical form.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn register(version: u8, hash: &[u8; 32]) -> Measurement {
    let mut bytes = [0; 48];
    let (first, rest) = bytes.split_at_mut(1);
    first.fill(version);
    if let Some(place) = rest.first_chunk_mut() {
        *place = *hash;
    }
    Measurement::from_bytes(bytes)
}
