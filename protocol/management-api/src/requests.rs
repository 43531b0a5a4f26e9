//! Bodies of requests. Unknown members are ignored, null equals absent, integers may come as floats
//! with a zero fraction.

use std::fmt;

use cloister_app_compose::decode::{self, Decode, Reader};
use cloister_app_compose::{AppId, ComposeHash, Draft, StorageFs, members};
use jiff::{Timestamp, civil, tz};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::names::CvmName;

/// Fewest bytes of a sealed environment: public key, nonce, tag and something between.
pub const MIN_SEALED_BYTES: usize = 61;
/// Most bytes of a sealed environment.
pub const MAX_SEALED_BYTES: usize = 256 * 1024;

/// Kinds of key management services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KmsType {
    /// Off chain.
    Phala,
    /// Owned by contracts on Ethereum.
    Ethereum,
    /// Owned by contracts on Base.
    Base,
    /// From before kinds existed.
    Legacy,
}

impl Decode for KmsType {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        let text = String::decode(value, reader)?;
        // Public clients write the name in capitals.
        let kind = match text.to_ascii_lowercase().as_str() {
            "phala" => Some(Self::Phala),
            "ethereum" => Some(Self::Ethereum),
            "base" => Some(Self::Base),
            "legacy" => Some(Self::Legacy),
            _ => None,
        };
        if kind.is_none() {
            reader.fault("enum", "Input should be 'phala', 'ethereum', 'base' or 'legacy'");
        }
        kind
    }
}

/// An instant: RFC 3339, or without an offset as UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instant(pub Timestamp);

impl std::str::FromStr for Instant {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let naive = || -> Option<Timestamp> {
            Some(text.parse::<civil::DateTime>().ok()?.to_zoned(tz::TimeZone::UTC).ok()?.timestamp())
        };
        text.parse().ok().or_else(naive).map(Self).ok_or("Input should be a valid datetime")
    }
}

impl Decode for Instant {
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        decode::parsed(value, reader)
    }
}

/// Reads identifiers that only the request gives a type, through [`std::str::FromStr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed<T>(pub T);

impl<T> Decode for Parsed<T>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        decode::parsed(value, reader).map(Self)
    }
}

/// Like [`Parsed`]; an empty text stands for nothing, as some clients write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Optional<T>(pub Option<T>);

impl<T> Decode for Optional<T>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    fn decode(value: &Value, reader: &mut Reader) -> Option<Self> {
        if value.as_str() == Some("") {
            return Some(Self(None));
        }
        decode::parsed(value, reader).map(|value| Self(Some(value)))
    }
}

/// A sealed environment: hex of what only the application's key opens.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedEnv(String);

impl fmt::Debug for SealedEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} sealed bytes]", self.0.len() / 2)
    }
}

/// A text that cannot be a sealed environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("encrypted_env must be hex of {MIN_SEALED_BYTES} to {MAX_SEALED_BYTES} bytes")]
pub struct InvalidSealedEnv;

impl SealedEnv {
    /// Lower-case hex without `0x`.
    #[must_use]
    pub fn as_hex(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for SealedEnv {
    type Err = InvalidSealedEnv;

    fn from_str(text: &str) -> Result<Self, InvalidSealedEnv> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let wellformed = (2 * MIN_SEALED_BYTES..=2 * MAX_SEALED_BYTES).contains(&digits.len())
            && digits.len().is_multiple_of(2)
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if wellformed { Ok(Self(digits.to_ascii_lowercase())) } else { Err(InvalidSealedEnv) }
    }
}

members! {
    /// Body of `POST /cvms/provision`.
    #[derive(Debug, Clone, PartialEq, ToSchema)]
    pub struct ProvisionAppRequest {
        /// Name of the CVM: 5 to 63 letters, digits and single hyphens, a letter first.
        #[schema(value_type = String, example = "my-app-01")]
        pub name: CvmName,
        /// The compose document.
        #[schema(value_type = crate::AppComposeV2)]
        pub compose_file: Draft,
        /// Catalogue id of the size; given sizes win over it. Left out: `tdx.small`.
        #[schema(example = "tdx.small")]
        pub instance_type: Option<String>,
        /// Virtual CPUs.
        pub vcpu: Option<u32>,
        /// Memory in MiB.
        pub memory: Option<u32>,
        /// Data disk in GiB, at least 20.
        pub disk_size: Option<u32>,
        /// Name or slug of the OS image. Left out: the newest that fits.
        pub image: Option<String>,
        /// Whether a development image is wanted; whoever runs the node has a root shell in those. Left out: by
        /// the name of the image, and without one a development image where the node has one. What is secret
        /// says `false`.
        pub prefer_dev: Option<bool>,
        /// Number of the node, also read as `node_id`. Left out: chosen by the service.
        pub teepod_id["node_id"]: Option<i64>,
        /// Only nodes of this region; case does not matter.
        pub region: Option<String>,
        /// Whether the CVM is shown to people outside of the workspace.
        pub listed: bool = true,
        /// Kind of key management service, in any case, also read as `kms_type`.
        pub kms["kms_type"]: Option<KmsType>,
        /// A node of a key management service.
        pub kms_id: Option<String>,
        /// Contract of a key management service.
        pub kms_contract: Option<String>,
        /// App id to use, together with `nonce`; also read as `custom_app_id`.
        #[schema(value_type = Option<String>)]
        pub app_id["custom_app_id"]: Option<Parsed<AppId>>,
        /// Nonce of the workspace's wallet that gives `app_id`.
        pub nonce: Option<u32>,
        /// Names that may come from the sealed environment, in addition to those of the document.
        pub env_keys: Vec<String> = Vec::new(),
        /// Sealed environment in hex, 61 bytes to 256 KiB, for a creation that brings none; empty for none.
        #[schema(value_type = Option<String>)]
        pub encrypted_env: Option<Optional<SealedEnv>>,
        /// Configuration that is not measured: JSON text.
        pub user_config: Option<String>,
        /// Keys that may log in, in OpenSSH's form, at most 100; they become part of `user_config`.
        pub ssh_authorized_keys: Vec<String> = Vec::new(),
        /// Host port forwards; the ingress takes their place.
        pub ports: Vec<PortMapping> = Vec::new(),
        /// GPUs.
        pub gpus: Option<GpuConfig>,
        /// For a compose document that does not say.
        pub secure_time: Option<bool>,
        /// For a compose document that does not say: `ext4` or `zfs`.
        #[schema(value_type = Option<String>)]
        pub storage_fs: Option<StorageFs>,
    }
}

members! {
    /// A forward from a port of the host.
    #[derive(Debug, Clone, PartialEq, ToSchema)]
    pub struct PortMapping {
        /// `tcp` or `udp`.
        pub protocol: String,
        /// Port of the host.
        pub host_port: u32,
        /// Port of the CVM.
        pub vm_port: u32,
        /// Address of the host.
        pub host_address: Option<String>,
    }
}

members! {
    /// Wanted GPUs: listed, counted, or all of a node.
    #[derive(Debug, Clone, PartialEq, ToSchema)]
    pub struct GpuConfig {
        /// One element for each GPU: `slot`, its PCI address, and `product_id`; without slots they are counted.
        #[schema(value_type = Vec<Object>)]
        pub gpus: Vec<serde_json::Map<String, Value>> = Vec::new(),
        /// `listed` or `all`.
        pub attach_mode: Option<String>,
        /// How many, instead of a list.
        pub count: Option<u32>,
        /// Name or id of their product, with `count`.
        pub product_name: Option<String>,
    }
}

members! {
    /// Body of `POST /cvms/provision/agentapp`.
    #[derive(Debug, Clone, PartialEq, ToSchema)]
    pub struct ProvisionAgentAppRequest {
        /// Name of the CVM.
        #[schema(value_type = String, example = "my-agent")]
        pub name: CvmName,
        /// The agent's character file: JSON text.
        pub characterfile: String,
        /// Names that come from the sealed environment.
        pub env_keys: Vec<String>,
        /// Number of the node. Left out: chosen by the service.
        pub teepod_id["node_id"]: Option<i64>,
        /// Name or slug of the OS image. Left out: the newest that fits.
        pub image: Option<String>,
        /// A node of a key management service.
        pub kms_id: Option<String>,
    }
}

members! {
    /// Body of `POST /cvms` and `POST /cvms/agentapp`.
    #[derive(Debug, Clone, PartialEq, ToSchema)]
    pub struct CreateCvmRequest {
        /// App id from the provision answer.
        #[schema(value_type = String)]
        pub app_id: Parsed<AppId>,
        /// Compose hash from the provision answer.
        #[schema(value_type = String)]
        pub compose_hash: Parsed<ComposeHash>,
        /// Sealed environment in hex, 61 bytes to 256 KiB; empty for none.
        #[schema(value_type = Option<String>)]
        pub encrypted_env: Option<Optional<SealedEnv>>,
        /// A node of a key management service: id or slug.
        pub kms_id: Option<String>,
        /// Contract of the application.
        pub contract_address: Option<String>,
        /// Who deployed that contract.
        pub deployer_address: Option<String>,
        /// Names that come from the sealed environment.
        pub env_keys: Option<Vec<String>>,
    }
}

members! {
    /// Body of `PATCH /cvms/{cvm_id}/envs`.
    #[derive(Debug, Clone, PartialEq, ToSchema)]
    pub struct UpdateCvmEnvsRequest {
        /// Sealed environment in hex, 61 bytes to 256 KiB. It replaces the old one as a whole.
        #[schema(value_type = String)]
        pub encrypted_env: Parsed<SealedEnv>,
        /// Names in it. Left out: those that the compose document allows.
        pub env_keys: Option<Vec<String>>,
        /// Compose hash that was registered with a contract.
        pub compose_hash: Option<String>,
        /// Transaction that registered it.
        pub transaction_hash: Option<String>,
    }
}

members! {
    /// Body of `POST /cvms/{cvm_id}/restart`; may be left out.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ToSchema)]
    pub struct RestartRequest {
        /// Take the power away instead of shutting down.
        pub force: bool = false,
    }
}

members! {
    /// Body of `POST /status/batch`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct BatchStatusRequest {
        /// Identities of the CVMs; the answer uses the same spelling.
        pub vm_uuids: Vec<String>,
    }
}

members! {
    /// Body of `POST /tokens`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct CreateTokenRequest {
        /// Name for people, 1 to 100 characters.
        pub name: String,
        /// Days until it stops working, 1 to 365. Left out: it works until it is deleted.
        pub expires_in_days: Option<u32>,
    }
}

members! {
    /// Body of `PUT /admin/nodes/{node_id}/maintenance`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
    pub struct MaintenanceRequest {
        /// Whether the node takes no new CVMs and no changes.
        pub maintenance: bool,
    }
}

#[cfg(test)]
mod tests {
    use cloister_app_compose::decode::{Source, decode};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::ValidationError;

    fn read<T: Decode>(value: &Value) -> Result<T, ValidationError> {
        decode(value, Source::Json, &["body"]).map_err(ValidationError::from)
    }

    #[test]
    fn accepts_what_public_clients_send() {
        let request: ProvisionAppRequest = read(&json!({
            "name": "my-app-01", "compose_file": {"name": "", "docker_compose_file": "services: {}"},
            "vcpu": 2.0, "memory": 4096.0, "kms": "PHALA", "node_id": 3, "listed": 0, "gpus": null,
            "env_keys": null, "ports": null, "something_new": [1],
            "custom_app_id": "0x6f809b3214eb9a69571ad008289d9551fa9a4272",
        }))
        .unwrap();
        assert_eq!((request.vcpu, request.memory, request.teepod_id), (Some(2), Some(4096), Some(3)));
        assert_eq!((request.kms, request.listed), (Some(KmsType::Phala), false));
        assert!(request.app_id.is_some());
    }

    #[test]
    fn faults_of_a_provision() {
        let error = read::<ProvisionAppRequest>(&json!({
            "name": "ab--cd", "compose_file": {"allowed_envs": [1]}, "vcpu": 1.5, "memory": "much",
            "disk_size": -1, "kms": "mine", "ports": [{"protocol": "tcp"}], "listed": "yes",
        }))
        .unwrap_err();
        insta::assert_json_snapshot!(error);
        let error = read::<ProvisionAppRequest>(&json!([])).unwrap_err();
        assert_eq!(error.detail[0].loc, ["body"]);
    }

    #[test]
    fn sealed_environments_are_hex_of_a_plausible_length() {
        let hex = |bytes: usize| "AB".repeat(bytes);
        let sealed: SealedEnv = hex(61).parse().unwrap();
        assert_eq!(sealed.as_hex(), "ab".repeat(61));
        assert_eq!(format!("{sealed:?}"), "[61 sealed bytes]");
        assert!(format!("0x{}", hex(61)).parse::<SealedEnv>().is_ok());
        for text in [hex(60), hex(MAX_SEALED_BYTES + 1), "zz".repeat(61), hex(61) + "a", String::new()] {
            assert_eq!(text.parse::<SealedEnv>(), Err(InvalidSealedEnv));
        }
    }

    #[test]
    fn instants_without_an_offset_are_utc() {
        let at = |text: &str| text.parse::<Instant>().map(|instant| instant.0.to_string());
        for text in [
            "2026-01-21T10:00:00Z",
            "2026-01-21T10:00:00",
            "2026-01-21T11:00:00+01:00",
            "2026-01-21 10:00:00",
        ] {
            assert_eq!(at(text).unwrap(), "2026-01-21T10:00:00Z", "{text}");
        }
        assert!(at("yesterday").is_err());
    }

    proptest! {
        #[test]
        fn no_document_panics(text in r#"[{}\[\]":,a-z_0-9. \\]{0,200}"#) {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                let _: Result<ProvisionAppRequest, _> = read(&value);
                let _: Result<CreateCvmRequest, _> = read(&value);
            }
        }
    }
}
