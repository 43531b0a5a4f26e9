//! Requests that make CVMs in one step: further ones of an application, and model servers.

use cloister_app_compose::{ComposeHash, members};
use utoipa::ToSchema;

use crate::names::CvmName;
use crate::requests::{Instant, Optional};

members! {
    /// Body of `POST /cvms/{cvm_id}/replicas`; may be left out.
    #[derive(Debug, Clone, Default, PartialEq, ToSchema)]
    pub struct ReplicateRequest {
        /// Number of the node, also read as `teepod_id`. Left out: the node of the source.
        pub node_id["teepod_id"]: Option<i64>,
        /// Sealed environment in hex, 61 bytes to 256 KiB. Left out or empty: that of the source.
        pub encrypted_env: Option<String>,
        /// Which configuration, when the application's CVMs have several.
        #[schema(value_type = Option<String>)]
        pub compose_hash: Option<Optional<ComposeHash>>,
    }
}

members! {
    /// Body of `POST /apps/{app_id}/instances`; may be left out.
    #[derive(Debug, Clone, Default, PartialEq, ToSchema)]
    pub struct AddInstanceRequest {
        /// Number of the node, also read as `teepod_id`. Left out: chosen by the service, as far from the
        /// application's other CVMs as possible.
        pub node_id["teepod_id"]: Option<i64>,
        /// Sealed environment in hex, 61 bytes to 256 KiB. Left out or empty: that of the application.
        pub encrypted_env: Option<String>,
        /// Which configuration, when the application's CVMs have several.
        #[schema(value_type = Option<String>)]
        pub compose_hash: Option<Optional<ComposeHash>>,
        /// Another compose file for this instance.
        pub docker_compose_file: Option<String>,
        /// Another pre-launch script for this instance.
        pub pre_launch_script: Option<String>,
        /// Name of the CVM. Left out: made from that of the application's CVM.
        #[schema(value_type = Option<String>)]
        pub name: Option<CvmName>,
        /// Commit token of a change that a contract had to allow.
        pub token: Option<String>,
        /// Transaction that allowed it.
        pub transaction_hash: Option<String>,
    }
}

members! {
    /// Body of `POST /cvms/workload`.
    #[derive(Debug, Clone, PartialEq, ToSchema)]
    pub struct WorkloadRequest {
        /// Name of the CVM.
        #[schema(value_type = String, example = "my-model")]
        pub name: CvmName,
        /// Catalogue id of a size with GPUs.
        #[schema(example = "h200.small")]
        pub instance_type: String,
        /// The model: a name such as `Qwen/Qwen3-8B`.
        #[schema(example = "Qwen/Qwen3-8B")]
        pub model_id: String,
        /// When the CVM is deleted by itself.
        #[schema(value_type = Option<jiff::Timestamp>)]
        pub scheduled_delete_at: Option<Instant>,
    }
}
