//! What deprecated commands of published clients send and read: a CVM in two calls, by its configuration.

use cloister_app_compose::{Draft, members};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::CvmName;
use crate::requests::{Optional, SealedEnv};

members! {
    /// Body of `POST /cvms/pubkey/from_cvm_configuration` and `POST /cvms/from_cvm_configuration`.
    #[derive(Debug, Clone, PartialEq, ToSchema)]
    pub struct LegacyCvmConfiguration {
        /// Name of the CVM: 5 to 63 letters, digits and single hyphens, a letter first.
        #[schema(value_type = String, example = "my-app-01")]
        pub name: CvmName,
        /// The compose document.
        #[schema(value_type = crate::AppComposeV2)]
        pub compose_manifest: Draft,
        /// Virtual CPUs.
        pub vcpu: Option<u32>,
        /// Memory in MiB.
        pub memory: Option<u32>,
        /// Data disk in GiB, at least 20.
        pub disk_size: Option<u32>,
        /// Name or slug of the OS image. Left out: the newest that fits.
        pub image: Option<String>,
        /// Number of the node, also read as `node_id`. Left out: chosen by the service.
        pub teepod_id["node_id"]: Option<i64>,
        /// Whether the CVM is shown to people outside of the workspace.
        pub listed: bool = false,
        /// Names that may come from the sealed environment, in addition to those of the document.
        pub env_keys: Vec<String> = Vec::new(),
        /// Sealed environment in hex, 61 bytes to 256 KiB; empty for none. Creation only.
        #[schema(value_type = Option<String>)]
        pub encrypted_env: Option<Optional<SealedEnv>>,
        /// The key that it was sealed to, as the first call told it. Creation only.
        pub app_env_encrypt_pubkey: Option<String>,
        /// What the first call told with the key. Creation only.
        pub app_id_salt: Option<String>,
    }
}

/// Answer of `POST /cvms/pubkey/from_cvm_configuration`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LegacyCvmPubkey {
    /// X25519 key of the application to seal the environment to, 64 hex digits.
    pub app_env_encrypt_pubkey: String,
    /// To be sent back with the configuration: says for which document the key is.
    pub app_id_salt: String,
}
