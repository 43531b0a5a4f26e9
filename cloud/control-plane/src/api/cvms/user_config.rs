//! `GET /cvms/{cvm_id}/user_config`

use axum::Json;
use axum::http::StatusCode;
use cloister_management_api::{CvmUserConfig, PlainError};
use serde_json::{Map, Value, json};

use crate::api::error::{ApiError, ApiResult};
use crate::api::responses::OnCvm;
use crate::api::target::Target;

/// Member of the configuration that holds the keys which may log in.
const KEYS: &str = "ssh_authorized_keys";

/// Get the unmeasured configuration of a CVM
///
/// The members that are known of what the CVM gets as its `user_config`.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/user_config", tag = "CVMs", operation_id = "get_cvm_user_config",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses(
        (status = 200, description = "The configuration", body = CvmUserConfig),
        (status = 502, description = "It is no JSON object with members of these types", body = PlainError),
        OnCvm,
    ),
)]
pub(crate) async fn user_config(Target(cvm): Target) -> ApiResult<Json<CvmUserConfig>> {
    read(cvm.user_config.as_deref()).map(Json).ok_or_else(|| {
        let text = "The CVM's user_config is no JSON object with hostname, ssh_authorized_keys and \
                    default_gateway_domain; provision it with one that is";
        ApiError::plain(StatusCode::BAD_GATEWAY, text)
    })
}

/// The known members of a configuration; `None` when it is of another form.
pub(super) fn read(text: Option<&str>) -> Option<CvmUserConfig> {
    let mut members = object(text)?;
    // Null stands for an absent member.
    members.retain(|_, value| !value.is_null());
    serde_json::from_value(Value::Object(members)).ok()
}

/// A configuration with other keys in it; `None` when it is no JSON object.
pub(super) fn with_ssh_keys(text: Option<&str>, keys: &[String]) -> Option<String> {
    let mut members = object(text)?;
    members.insert(KEYS.to_owned(), json!(keys));
    Some(Value::Object(members).to_string())
}

fn object(text: Option<&str>) -> Option<Map<String, Value>> {
    match text.map(str::trim) {
        None | Some("") => Some(Map::new()),
        Some(text) => serde_json::from_str(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_read_with_what_is_known_of_them() {
        let text = r#"{"hostname": "web", "ssh_authorized_keys": null, "more": [1]}"#;
        let config = read(Some(text)).unwrap();
        assert_eq!((config.hostname.as_deref(), config.ssh_authorized_keys.len()), (Some("web"), 0));
        for empty in [None, Some(""), Some(" \n"), Some("{}")] {
            assert_eq!(read(empty), Some(CvmUserConfig::default()));
        }
        for other in ["{", "[]", "7", r#"{"hostname": 1}"#, r#"{"ssh_authorized_keys": "a"}"#] {
            assert_eq!(read(Some(other)), None, "{other}");
        }
    }

    #[test]
    fn keys_replace_keys_and_nothing_else() {
        let keys = ["b".to_owned()];
        let text = with_ssh_keys(Some(r#"{"x": 1, "ssh_authorized_keys": ["a"]}"#), &keys).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!({"x": 1, KEYS: ["b"]}));
        assert_eq!(with_ssh_keys(None, &[]).unwrap(), r#"{"ssh_authorized_keys":[]}"#);
        assert_eq!(with_ssh_keys(Some("[]"), &keys), None);
    }
}
