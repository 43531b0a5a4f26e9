//! Bodies of requests. Unknown members are ignored, null equals absent, integers may come as floats
//! with a zero fraction.

mod values;

use cloister_app_compose::{AppId, ComposeHash, Draft, StorageFs, members};
use serde_json::Value;
use utoipa::ToSchema;

pub use values::{
    DeviceId, Instant, InvalidDeviceId, InvalidSealedEnv, KmsType, MAX_SEALED_BYTES, MIN_SEALED_BYTES,
    Optional, Parsed, SealedEnv,
};

use crate::names::CvmName;
use crate::scopes::KeyScope;

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
        #[schema(required = false)]
        pub listed: bool = true,
        /// Kind of key management service, in any case, also read as `kms_type`.
        pub kms["kms_type"]: Option<KmsType>,
        /// A node of a key management service.
        pub kms_id: Option<String>,
        /// Contract of a key management service.
        pub kms_contract: Option<String>,
        /// App id to use: together with `nonce` one of the workspace's wallet, or alone the address of a contract that
        /// exists, where a contract decides for the key management service; also read as `custom_app_id`.
        #[schema(value_type = Option<String>)]
        pub app_id["custom_app_id"]: Option<Parsed<AppId>>,
        /// Nonce of the workspace's wallet that gives `app_id`.
        pub nonce: Option<u32>,
        /// Names that may come from the sealed environment, in addition to those of the document.
        #[schema(required = false)]
        pub env_keys: Vec<String> = Vec::new(),
        /// Sealed environment in hex, 61 bytes to 256 KiB, for a creation that brings none; empty for none.
        #[schema(value_type = Option<String>)]
        pub encrypted_env: Option<Optional<SealedEnv>>,
        /// Configuration that is not measured: JSON text.
        pub user_config: Option<String>,
        /// Keys that may log in, in OpenSSH's form, at most 100; they become part of `user_config`.
        #[schema(required = false)]
        pub ssh_authorized_keys: Vec<String> = Vec::new(),
        /// Host port forwards; the ingress takes their place.
        #[schema(required = false)]
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
        #[schema(required = false)]
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
        /// Who deployed that contract, if that was not who sent the transaction.
        pub deployer_address: Option<String>,
        /// Transaction that deployed or registered it; left out, empty or `already-registered` for a look at what is
        /// on chain alone.
        pub transaction_hash: Option<String>,
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
        #[schema(required = false)]
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
        /// What it may do: `read`, `deploy` or `admin`. Left out: what the key of this request may; never more.
        #[schema(value_type = Option<KeyScope>)]
        pub scope: Option<Parsed<KeyScope>>,
    }
}

members! {
    /// Body of `POST /tokens/{token_id}/refresh`; may be left out.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct RefreshTokenRequest {
        /// Days from now until it stops working, 1 to 365. Left out: the time that it has stays.
        pub expires_in_days: Option<u32>,
        /// Whether requests that name no version are answered in the newest one from now on.
        #[schema(required = false)]
        pub upgrade_version: bool = true,
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
mod tests;
