//! Changes of a CVM: requests and answers. Null equals absent.

use cloister_app_compose::{AppId, ComposeHash, Draft, members};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::names::CvmName;
use crate::refs::KmsInfo;
use crate::requests::{GpuConfig, Instant, Optional, Parsed, SealedEnv};

members! {
    /// Body of `PATCH /cvms/{cvm_id}`. Members that are left out or null stay as they are; all others come
    /// with one operation and one restart.
    #[derive(Debug, Clone, Default, PartialEq, ToSchema)]
    pub struct UpdateCvmRequest {
        /// Compose file: YAML text with at least one service. Changes the compose hash.
        pub docker_compose_file: Option<String>,
        /// Script that runs right before the application starts; empty removes it. Changes the compose hash.
        pub pre_launch_script: Option<String>,
        /// Names that may come from the sealed environment. Changes the compose hash.
        pub allowed_envs["env_keys"]: Option<Vec<String>>,
        /// Whether logs are served to anybody. Changes the compose hash.
        pub public_logs: Option<bool>,
        /// Whether system figures are served to anybody. Changes the compose hash.
        pub public_sysinfo: Option<bool>,
        /// Whether measurements are served to anybody. Changes the compose hash.
        pub public_tcbinfo: Option<bool>,
        /// Sealed environment in hex, 61 bytes to 256 KiB; empty leaves it.
        #[schema(value_type = Option<String>)]
        pub encrypted_env: Option<Optional<SealedEnv>>,
        /// Configuration that is not measured: JSON text.
        pub user_config: Option<String>,
        /// GPUs.
        pub gpus: Option<GpuConfig>,
        /// Catalogue id of the size; given sizes win over it.
        #[schema(example = "tdx.medium")]
        pub instance_type: Option<String>,
        /// Virtual CPUs.
        pub vcpu: Option<u32>,
        /// Memory in MiB.
        pub memory: Option<u32>,
        /// Data disk in GiB; it only grows.
        pub disk_size: Option<u32>,
        /// Name or slug of the OS image.
        pub image: Option<String>,
        /// Seconds that the guest gets to shut down. Left out: the usual time.
        #[schema(minimum = 10, maximum = 1200)]
        pub shutdown_timeout: Option<i64>,
        /// Take the power of a guest away that does not shut down in time; otherwise the change fails then.
        #[schema(required = false)]
        pub allow_force_stop: bool = false,
        /// `false`: refuse what would restart a CVM that is up. Also read as 0 or 1.
        pub allow_restart: Option<bool>,
        /// Whether a change that does not become healthy is taken back by itself. Restarts nothing.
        pub rollback_on_failure: Option<bool>,
        /// Seconds that a changed CVM gets to become healthy after its boot. Restarts nothing.
        #[schema(minimum = 30, maximum = 3600)]
        pub health_timeout: Option<i64>,
    }
}

members! {
    /// Body of `PATCH /cvms/{cvm_id}/compose_file`.
    #[derive(Debug, Clone, PartialEq, ToSchema)]
    pub struct ApplyComposeRequest {
        /// Hash that `POST …/compose_file/provision` gave.
        #[schema(value_type = String)]
        pub compose_hash: Parsed<ComposeHash>,
        /// Sealed environment in hex, 61 bytes to 256 KiB; left out or empty, the present one stays.
        #[schema(value_type = Option<String>)]
        pub encrypted_env: Option<Optional<SealedEnv>>,
        /// Names in it.
        pub env_keys: Option<Vec<String>>,
        /// Make `env_keys` the names that the document allows, which gives it another hash.
        #[schema(required = false)]
        pub update_env_vars: bool = false,
    }
}

members! {
    /// Body of `POST /cvms/{cvm_id}/compose_file`.
    #[derive(Debug, Clone, PartialEq, ToSchema)]
    pub struct ReplaceComposeRequest {
        /// The complete document.
        #[schema(value_type = crate::AppComposeV2)]
        pub compose_file: Draft,
        /// SHA-256 of its canonical form, compact or indented.
        #[schema(value_type = String)]
        pub compose_hash: Parsed<ComposeHash>,
        /// Sealed environment in hex, 61 bytes to 256 KiB; left out or empty, the present one stays.
        #[schema(value_type = Option<String>)]
        pub encrypted_env: Option<Optional<SealedEnv>>,
        /// Names in it.
        pub env_keys: Option<Vec<String>>,
    }
}

members! {
    /// Body of `PUT /cvms/{cvm_id}/compose`.
    #[derive(Debug, Clone, PartialEq, ToSchema)]
    pub struct LegacyComposeRequest {
        /// Members of the document that change.
        #[schema(value_type = Object)]
        pub compose_manifest: Map<String, Value>,
        /// Sealed environment in hex, 61 bytes to 256 KiB; left out or empty, the present one stays.
        #[schema(value_type = Option<String>)]
        pub encrypted_env: Option<Optional<SealedEnv>>,
        /// Names in it.
        pub env_keys: Option<Vec<String>>,
        /// `false`: refuse to restart a CVM that is up. Also read as 0 or 1.
        pub allow_restart: Option<bool>,
    }
}

members! {
    /// Body of `PATCH /cvms/{cvm_id}/resources`.
    #[derive(Debug, Clone, Default, PartialEq, Eq, ToSchema)]
    pub struct ResizeRequest {
        /// Catalogue id of the size; given sizes win over it.
        #[schema(example = "tdx.medium")]
        pub instance_type: Option<String>,
        /// Virtual CPUs.
        pub vcpu: Option<u32>,
        /// Memory in MiB.
        pub memory: Option<u32>,
        /// Data disk in GiB; it only grows.
        pub disk_size: Option<u32>,
        /// `false`: refuse to restart a CVM that is up. Also read as 0 or 1.
        pub allow_restart: Option<bool>,
    }
}

members! {
    /// Body of `PATCH /cvms/{cvm_id}/os-image`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct OsImageRequest {
        /// Name, slug or hash of the image.
        #[schema(example = "cloister-0.1.0")]
        pub os_image_name: String,
    }
}

members! {
    /// Body of `PATCH /cvms/{cvm_id}/visibility`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
    pub struct VisibilityRequest {
        /// Whether system figures are served to anybody.
        pub public_sysinfo: bool,
        /// Whether logs are served to anybody.
        pub public_logs: bool,
        /// Whether measurements are served to anybody.
        pub public_tcbinfo: Option<bool>,
    }
}

members! {
    /// Body of `PATCH /cvms/{cvm_id}/name`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct RenameRequest {
        /// New name: 5 to 63 letters, digits and single hyphens, a letter first.
        #[schema(value_type = String, example = "my-app-02")]
        pub name: CvmName,
    }
}

members! {
    /// Body of `PATCH /cvms/{cvm_id}/listed`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
    pub struct ListedRequest {
        /// Whether the CVM is shown to people outside of the workspace.
        pub listed: bool,
    }
}

members! {
    /// Body of `PATCH /cvms/{cvm_id}/scheduled-delete`; may be left out.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ToSchema)]
    pub struct ScheduledDeleteRequest {
        /// When the CVM is deleted by itself; without an offset in UTC. Left out or null: never.
        #[schema(value_type = Option<String>, format = DateTime)]
        pub scheduled_delete_at: Option<Instant>,
    }
}

members! {
    /// Body of `POST /cvms/batch-stop`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct BatchStopRequest {
        /// Ids of the CVMs, `cvm_…`, at most 50.
        pub cvm_ids: Vec<String>,
    }
}

/// Answer of `POST /cvms/batch-stop`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchStopResponse {
    /// Ids in the request.
    pub total: usize,
    /// CVMs whose power is being taken away.
    pub stopped: usize,
    /// CVMs that are off already, or that another operation works on.
    pub skipped: usize,
    /// Ids that stand for no CVM of the workspace, or whose CVM could not be stopped.
    pub errors: Vec<BatchStopError>,
}

/// A CVM that was not stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchStopError {
    /// As it was sent.
    pub cvm_id: String,
    /// Why.
    pub error: String,
}

/// Answer of a change of a CVM; its work goes on afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CvmUpdate {
    /// `in_progress`; `no_change` where everything is so already; `completed` where nothing is left to do.
    #[schema(example = "in_progress")]
    pub status: String,
    /// The same for people.
    pub message: String,
    /// The operation that does it; empty where there is none.
    pub correlation_id: String,
}

/// Answer of `GET /cvms/{cvm_id}/pre-launch-script/upgrade-status`. Hashes are SHA-256 of the script's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PreLaunchScriptStatus {
    /// Hash of the CVM's script; null where there is none.
    pub current_hash: Option<String>,
    /// Hash of the newest official script.
    pub latest_official_hash: String,
    /// Whether the CVM's script is an official one.
    pub is_official: bool,
    /// Whether it is the newest of them.
    pub is_latest: bool,
    /// Whether the newest can take its place: it is an older official one, or there is none.
    pub can_upgrade: bool,
}

/// Answer of `PUT /cvms/{cvm_id}/compose`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LegacyComposeUpdate {
    /// What happens, for people.
    pub detail: String,
    /// The operation that does it; empty where there is none.
    pub correlation_id: String,
}

/// Answer of `POST /cvms/{cvm_id}/compose_file/provision`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ComposeProvision {
    /// The CVM's application.
    #[schema(value_type = Option<String>)]
    pub app_id: Option<AppId>,
    /// Identity of the CVM's platform, once it is proved.
    pub device_id: Option<String>,
    /// Hash to apply the document by.
    #[schema(value_type = String)]
    pub compose_hash: ComposeHash,
    /// Where the application's keys come from.
    pub kms_info: Option<KmsInfo>,
    /// Whether it can be applied at once; true where no contract has to allow it.
    pub compose_hash_registered: bool,
}

#[cfg(test)]
mod tests {
    use cloister_app_compose::decode::{Decode, Source, decode};
    use serde_json::json;

    use super::*;

    fn read<T: Decode>(value: &Value) -> T {
        decode(value, Source::Json, &["body"]).unwrap()
    }

    #[test]
    fn null_and_absent_leave_everything() {
        let nulls: Map<String, Value> = [
            "docker_compose_file",
            "pre_launch_script",
            "allowed_envs",
            "public_logs",
            "public_sysinfo",
            "public_tcbinfo",
            "encrypted_env",
            "user_config",
            "gpus",
            "vcpu",
            "memory",
            "disk_size",
            "image",
            "shutdown_timeout",
            "allow_force_stop",
            "rollback_on_failure",
            "health_timeout",
        ]
        .map(|member| (member.to_owned(), Value::Null))
        .into_iter()
        .collect();
        assert_eq!(read::<UpdateCvmRequest>(&Value::Object(nulls)), UpdateCvmRequest::default());
        assert_eq!(read::<UpdateCvmRequest>(&json!({"id": 3, "unknown": {}})), UpdateCvmRequest::default());
    }

    #[test]
    fn sizes_may_be_floats_and_flags_digits() {
        let request: ResizeRequest = read(&json!({
            "vcpu": 2.0, "memory": 4096.0, "disk_size": 40.0, "allow_restart": 0, "id": "cvm_x", "name": "x",
        }));
        assert_eq!((request.vcpu, request.memory, request.disk_size), (Some(2), Some(4096), Some(40)));
        assert_eq!(request.allow_restart, Some(false));
        let fraction = decode::<ResizeRequest>(&json!({"vcpu": 1.5}), Source::Json, &["body"]);
        assert_eq!(fraction.unwrap_err()[0].kind, "int_from_float");
    }
}
