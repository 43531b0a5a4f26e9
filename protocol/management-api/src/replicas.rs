//! Requests that add CVMs to an application.

use cloister_app_compose::{ComposeHash, members};
use utoipa::ToSchema;

use crate::names::CvmName;
use crate::requests::Optional;

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
