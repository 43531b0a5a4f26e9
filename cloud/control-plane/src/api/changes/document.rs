//! The rules for another compose document of a CVM that exists.

use axum::http::StatusCode;
use cloister_app_compose::{AppCompose, ComposeError, KeyProvider};
use cloister_management_api::ErrorCode;
use serde_json::{Map, Value};

use crate::api::error::{ApiError, ApiResult};
use crate::api::provisioning;

/// Settings that stay as the CVM has them when a whole new document does not mention them: a default that
/// opens logs to everybody must not come back with an update that is about something else.
const KEPT: [&str; 11] = [
    "allowed_envs",
    "kms_enabled",
    "key_provider",
    "key_provider_id",
    "local_key_provider_enabled",
    "no_instance_id",
    "public_logs",
    "public_sysinfo",
    "public_tcbinfo",
    "secure_time",
    "storage_fs",
];

/// One switch under two names.
const GATEWAY: [&str; 2] = ["gateway_enabled", "tproxy_enabled"];

/// A new document with the settings that it leaves open taken from the present one.
pub(crate) fn with_kept_settings(mut new: Map<String, Value>, present: &AppCompose) -> Map<String, Value> {
    let is_open = |new: &Map<String, Value>, member: &str| new.get(member).is_none_or(Value::is_null);
    let mut kept: Vec<&str> = KEPT.into_iter().filter(|member| is_open(&new, member)).collect();
    if GATEWAY.iter().all(|member| is_open(&new, member)) {
        kept.extend(GATEWAY);
    }
    for member in kept {
        if let Some(value) = present.document().get(member) {
            new.insert(member.to_owned(), value.clone());
        }
    }
    new
}

/// Refuses a document with which the CVM would lose the way to its disk.
pub(super) fn check_immutable(present: &AppCompose, new: &AppCompose) -> ApiResult<()> {
    let (old_members, new_members) = (present.members(), new.members());
    if old_members.storage_fs != new_members.storage_fs {
        return Err(immutable("storage_fs", new_members.storage_fs.as_str(), "its disk has its file system"));
    }
    if old_members.no_instance_id != new_members.no_instance_id {
        let reason = "the key of its disk is of the instance";
        return Err(immutable("no_instance_id", new_members.no_instance_id, reason));
    }
    let wanted = KeyProvider::of(new).map_err(|error| {
        ApiError::explained(ErrorCode::IncompatibleParameters, error.to_string())
            .about("key_provider", Value::Null)
    })?;
    let wants_keys = |provider: &KeyProvider| matches!(provider, KeyProvider::Kms { .. });
    match KeyProvider::of(present) {
        Ok(had) if wants_keys(&had) == wants_keys(&wanted) => Ok(()),
        _ => {
            let reason = "whether its disk is encrypted with keys of a key management service is settled";
            Err(immutable("kms_enabled", wants_keys(&wanted), reason))
        }
    }
}

fn immutable(member: &str, value: impl Into<Value>, reason: &str) -> ApiError {
    let message =
        format!("{member} cannot change after the creation of a CVM: {reason}; create a new CVM instead");
    ApiError::explained(ErrorCode::IncompatibleParameters, message).about(member, value)
}

/// Why a document was refused for a CVM that exists; `root` is where it stood in the request.
pub(crate) fn compose_error(error: ComposeError, root: &[&str]) -> ApiError {
    match error {
        ComposeError::Members(mut faults) => {
            for fault in &mut faults {
                fault.loc.splice(..0, root.iter().map(ToString::to_string));
            }
            ApiError::faults(faults)
        }
        // The interface says 422 for updates, where a provision answers 400.
        error @ ComposeError::ComposeFile(_) => {
            provisioning::compose_error(error).with_status(StatusCode::UNPROCESSABLE_ENTITY)
        }
        error => provisioning::compose_error(error),
    }
}

#[cfg(test)]
mod tests {
    use cloister_app_compose::decode::{Source, decode};
    use cloister_app_compose::{Additions, Draft};
    use serde_json::json;

    use super::*;

    fn compose(members: &Value) -> AppCompose {
        let mut document = json!({"name": "web-1", "docker_compose_file": "services: {web: {image: nginx}}"});
        for (member, value) in members.as_object().unwrap() {
            document[member] = value.clone();
        }
        let draft: Draft = decode(&document, Source::Json, &[]).unwrap();
        draft.prepare(&Additions::default()).unwrap()
    }

    #[test]
    fn what_the_disk_depends_on_stays() {
        let present = compose(&json!({}));
        for (members, allowed) in [
            (json!({}), true),
            (json!({"public_logs": false, "features": [], "salt": "x"}), true),
            (json!({"storage_fs": "zfs"}), true),
            (json!({"storage_fs": "ext4"}), false),
            (json!({"no_instance_id": true}), false),
            (json!({"kms_enabled": false}), false),
            (json!({"kms_enabled": false, "key_provider": "kms"}), true),
            (json!({"key_provider": "none"}), false),
            (json!({"key_provider": "tpm"}), false),
            (json!({"key_provider_id": "ab"}), true),
            (json!({"key_provider_id": "xyz"}), false),
        ] {
            assert_eq!(check_immutable(&present, &compose(&members)).is_ok(), allowed, "{members}");
        }
        let without_keys = compose(&json!({"kms_enabled": false}));
        assert!(check_immutable(&without_keys, &without_keys).is_ok());
        assert!(check_immutable(&without_keys, &present).is_err());
    }

    #[test]
    fn settings_are_kept_and_programs_are_not() {
        let present = compose(&json!({
            "public_logs": false, "gateway_enabled": false, "pre_launch_script": "echo", "salt": "x",
            "key_provider_id": "ab",
        }));
        let new = json!({"name": "web-1", "docker_compose_file": "x", "public_sysinfo": false, "public_logs": null});
        let kept = Value::Object(with_kept_settings(new.as_object().unwrap().clone(), &present));
        assert_eq!((&kept["public_logs"], &kept["public_sysinfo"]), (&json!(false), &json!(false)));
        assert_eq!((&kept["gateway_enabled"], &kept["storage_fs"]), (&json!(false), &json!("zfs")));
        assert_eq!(kept["key_provider_id"], "ab");
        assert!(kept.get("pre_launch_script").is_none() && kept.get("salt").is_none());
        let renamed = json!({"tproxy_enabled": true});
        let kept = with_kept_settings(renamed.as_object().unwrap().clone(), &present);
        assert!(!kept.contains_key("gateway_enabled"));
    }
}
