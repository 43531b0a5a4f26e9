//! Which software runs on a machine, and whether the operator accepts it.

use cloister_app_compose::{ComposeHash, images_only};
use serde_json::Value;

use super::provenance::Provenance;
use super::reason::Reason;
use super::target::Accepted;

const RUNNER: &str = "docker-compose";
/// Members of a compose document that do not decide what its images do.
const INDIFFERENT: [&str; 18] = [
    "default_gateway_domain",
    "event_log_version",
    "features",
    "gateway_enabled",
    "key_provider",
    "key_provider_id",
    "kms_enabled",
    "local_key_provider_enabled",
    "name",
    "no_instance_id",
    "public_logs",
    "public_sysinfo",
    "public_tcbinfo",
    "salt",
    "secure_time",
    "storage_fs",
    "swap_size",
    "tproxy_enabled",
];
/// Members that may stand there as long as they say nothing: scripts that run before the containers, credentials of
/// a registry, and an environment that whoever deploys the document chooses.
const EMPTY: [&str; 5] = ["allowed_envs", "bash_script", "docker_config", "init_script", "pre_launch_script"];

/// Why the software is one that the operator accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Its application: whoever the KMS lets run it, with whatever document.
    Subject,
    /// Its compose document, byte for byte.
    Document,
    /// Its images, since nothing else runs.
    Images,
}

impl By {
    /// The reason in words.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Subject => "the measured application is one that the operator accepts",
            Self::Document => "the measured compose document is one that the operator accepts",
            Self::Images => {
                "the measured compose document runs nothing but images that the operator accepts, as they are"
            }
        }
    }
}

/// Whether the software of a machine is accepted, by the strongest of the reasons there are. `app_compose` is the
/// measured document, `subject` the measured application.
pub(super) fn acceptance(
    accepted: &Accepted,
    subject: &str,
    provenance: &Provenance,
    app_compose: &str,
) -> Result<By, Reason> {
    let hash = ComposeHash::of(app_compose.as_bytes()).to_string();
    let is_named =
        || provenance.image_digest.as_ref().is_some_and(|digest| accepted.image_digests.contains(digest));
    if accepted.compose_hashes.contains(&hash) {
        Ok(By::Document)
    } else if is_named() && runs_only(app_compose, &accepted.image_digests) {
        Ok(By::Images)
    } else if accepted.subjects.iter().any(|one| one == subject) {
        Ok(By::Subject)
    } else {
        Err("the measured application is not an accepted one".into())
    }
}

/// Whether a measured compose document runs nothing but accepted images, as they are. What a service says of itself is
/// not bound to its evidence; this is. A member that is not known here might decide what runs.
fn runs_only(app_compose: &str, accepted: &[String]) -> bool {
    let Ok(Value::Object(document)) = cloister_aci::parse(app_compose.as_bytes()) else { return false };
    let is_plain = document.iter().all(|(name, value)| match name.as_str() {
        "manifest_version" => matches!(value.as_u64(), Some(1 | 2)),
        "runner" => value.as_str() == Some(RUNNER),
        "docker_compose_file" => value.is_string(),
        name if EMPTY.contains(&name) => is_empty(value),
        name => INDIFFERENT.contains(&name),
    });
    let file = document.get("docker_compose_file").and_then(Value::as_str);
    let images = file.filter(|_| is_plain && document.contains_key("runner")).and_then(images_only);
    images.is_some_and(|images| {
        images.iter().all(|image| {
            image.split_once('@').is_some_and(|(_, digest)| accepted.iter().any(|one| one == digest))
        })
    })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
