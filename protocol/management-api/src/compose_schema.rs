//! The compose document as the interface describes it; it is read by `cloister-app-compose`.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// The compose document. Members that are not listed are kept and hashed too.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "only its schema is used; the document is read by cloister-app-compose")]
pub struct AppComposeV2 {
    /// Name of the application; when empty, the name of the CVM.
    name: String,
    /// Version of the document's rules: 1 or 2.
    #[schema(default = 2)]
    manifest_version: Option<i64>,
    /// `docker-compose` or `bash`.
    #[schema(default = "docker-compose")]
    runner: Option<String>,
    /// Compose file: YAML text with at least one service. With the pre-launch script at most 204800 bytes.
    docker_compose_file: Option<String>,
    /// Script for the runner `bash`.
    bash_script: Option<String>,
    /// Script that runs on every boot before the container engine starts.
    init_script: Option<String>,
    /// Script that runs right before the application starts; an empty one is dropped.
    pre_launch_script: Option<String>,
    /// Names that may come from the sealed environment.
    allowed_envs: Option<Vec<String>>,
    /// Legacy feature names.
    #[schema(default = json!(["kms", "tproxy-net"]))]
    features: Option<Vec<String>>,
    /// Keys come from a key management service.
    #[schema(default = true)]
    kms_enabled: Option<bool>,
    /// The ingress routes to the application.
    #[schema(default = true)]
    gateway_enabled: Option<bool>,
    /// Older name of `gateway_enabled`, which wins.
    #[schema(deprecated)]
    tproxy_enabled: Option<bool>,
    /// Keys come from the host's sealing provider.
    #[schema(default = false)]
    local_key_provider_enabled: Option<bool>,
    /// The CVM has no identity of its own among those of its application.
    #[schema(default = false)]
    no_instance_id: Option<bool>,
    /// Logs are served to anybody.
    #[schema(default = true)]
    public_logs: Option<bool>,
    /// System figures are served to anybody.
    #[schema(default = true)]
    public_sysinfo: Option<bool>,
    /// Measurements are served to anybody.
    #[schema(default = true)]
    public_tcbinfo: Option<bool>,
    /// The boot waits for a synchronised clock.
    #[schema(default = false)]
    secure_time: Option<bool>,
    /// File system of the data disk, `ext4` or `zfs`; cannot change later.
    #[schema(default = "zfs")]
    storage_fs: Option<String>,
    /// Domain that the guest uses for its own links.
    default_gateway_domain: Option<String>,
    /// Makes otherwise equal documents differ.
    salt: Option<String>,
    /// Members that are not listed.
    #[serde(flatten)]
    more: BTreeMap<String, Value>,
}
