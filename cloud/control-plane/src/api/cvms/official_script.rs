//! `GET /cvms/{cvm_id}/pre-launch-script/upgrade-status` and
//! `POST /cvms/{cvm_id}/pre-launch-script/upgrade-to-latest-official`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{CvmUpdate, ErrorBody, ErrorCode, PreLaunchScriptStatus};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::changes::{self, Approval, Edit, Manner};
use crate::api::error::{ApiError, ApiResult};
use crate::api::responses::{OnApproval, OnChange, OnCvm, OnPower};
use crate::api::target::Target;
use crate::api::view::Shown;

/// The scripts that this service has published, oldest first. One that was published never changes: a CVM that has it is
/// known by it, and its hash is part of measured documents.
const OFFICIAL: [&str; 1] = [include_str!("official_scripts/1.sh")];

/// The newest of them.
const fn latest() -> &'static str {
    let [.., latest] = OFFICIAL;
    latest
}

fn status(script: Option<&str>) -> PreLaunchScriptStatus {
    let hash = |text: &str| hex::encode(Sha256::digest(text));
    let is_official = script.is_some_and(|script| OFFICIAL.contains(&script));
    let is_latest = script == Some(latest());
    PreLaunchScriptStatus {
        current_hash: script.map(hash),
        latest_official_hash: hash(latest()),
        is_official,
        is_latest,
        can_upgrade: script.is_none() || (is_official && !is_latest),
    }
}

fn script_of(app_compose: &str) -> Option<String> {
    let script = Shown::of(app_compose).pre_launch_script.map(std::borrow::Cow::into_owned);
    script.filter(|script| !script.is_empty())
}

/// Get whether a CVM has the official pre-launch script
///
/// The official script logs in to a private registry with names from the sealed environment; see the page about public
/// clients.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/pre-launch-script/upgrade-status", tag = "CVMs",
    operation_id = "get_cvm_pre_launch_script_status",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses((status = 200, description = "How it stands", body = PreLaunchScriptStatus), OnCvm),
)]
pub(crate) async fn upgrade_status(Target(cvm): Target) -> Json<PreLaunchScriptStatus> {
    Json(status(script_of(&cvm.app_compose).as_deref()))
}

/// Give a CVM the newest official pre-launch script
///
/// Like `PATCH /cvms/{cvm_id}/pre-launch-script` with that script. A script of the tenant's own is not replaced.
#[utoipa::path(
    post, path = "/cvms/{cvm_id}/pre-launch-script/upgrade-to-latest-official", tag = "CVMs",
    operation_id = "upgrade_cvm_pre_launch_script",
    params(
        ("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name"),
        ("X-Compose-Hash" = Option<String>, Header, description = "Refuse a change that does not give this hash"),
        ("X-Transaction-Hash" = Option<String>, Header, description = "Transaction that allowed the hash; `already-registered` has only the contract asked"),
        ("X-Prepare-Only" = Option<String>, Header, description = "`true`: only prepare the change, and answer with its token"),
    ),
    responses(
        (status = 202, description = "Accepted; the CVM is restarted with the script", body = CvmUpdate),
        (status = 200, description = "It has the newest one already; nothing is done", body = CvmUpdate),
        (status = 400, description = "The CVM has a script of its own (ERR-02-009)", body = ErrorBody),
        OnCvm, OnChange, OnApproval, OnPower,
    ),
)]
pub(crate) async fn upgrade(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    approval: Approval,
) -> ApiResult<(StatusCode, Json<CvmUpdate>)> {
    let present = status(script_of(&cvm.app_compose).as_deref());
    if !present.can_upgrade && !present.is_latest {
        let message = "the CVM has a pre-launch script of its own, which is not replaced by the official one; replace \
                       it with PATCH /api/v1/cvms/{cvm_id}/pre-launch-script, or remove it there first";
        return Err(ApiError::explained(ErrorCode::IncompatibleParameters, message));
    }
    let mut edit = Edit::of(&cvm);
    edit.members(vec![("pre_launch_script", json!(latest()))])?;
    changes::answer(&api, &caller, edit, Manner::of(approval)).await
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Output};

    use super::*;

    /// Runs the newest script as guests do: sourced, with nothing but the sealed environment.
    fn run(variables: &[(&str, &str)], config: &std::path::Path) -> Output {
        let mut bash = Command::new("bash");
        bash.args(["-c", "set -u; . /dev/stdin; env", "pre-launch"]).env_clear();
        bash.env("PATH", "/usr/bin:/bin").env("DOCKER_CONFIG", config).envs(variables.iter().copied());
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        fs::write(&script, latest()).unwrap();
        bash.stdin(fs::File::open(script).unwrap()).output().unwrap()
    }

    const LOGIN: [(&str, &str); 2] =
        [("DSTACK_DOCKER_USERNAME", "ada"), ("DSTACK_DOCKER_PASSWORD", "a\"b c")];

    #[test]
    fn the_script_writes_what_container_tools_read() {
        let directory = tempfile::tempdir().unwrap();
        for (registry, key) in [("", "https://index.docker.io/v1/"), ("ghcr.io:443", "ghcr.io:443")] {
            let config = directory.path().join(key.len().to_string());
            let mut variables = LOGIN.to_vec();
            variables.push(("DSTACK_DOCKER_REGISTRY", registry));
            let output = run(&variables, &config);
            assert!(output.status.success(), "{output:?}");
            let file = config.join("config.json");
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            let written: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
            // What `printf 'ada:a"b c' | base64` gives.
            assert_eq!(written, json!({"auths": {key: {"auth": "YWRhOmEiYiBj"}}}));
            let environment = String::from_utf8(output.stdout).unwrap();
            assert!(environment.contains(&format!("DOCKER_CONFIG={}", config.display())));
            assert!(!environment.contains("cloister_registry="), "{environment}");
        }
    }

    #[test]
    fn without_a_login_it_does_nothing_and_a_wrong_registry_stops_the_boot() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config");
        assert!(run(&LOGIN[..1], &config).status.success());
        let wrong = [LOGIN[0], LOGIN[1], ("DSTACK_DOCKER_REGISTRY", "x\",\"y")];
        let output = run(&wrong, &config);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("host[:port]"));
        assert!(!config.exists());
    }

    #[test]
    fn what_can_be_upgraded() {
        let of = |script| {
            let status = status(script);
            (status.is_official, status.is_latest, status.can_upgrade)
        };
        assert_eq!(of(None), (false, false, true));
        assert_eq!(of(Some(latest())), (true, true, false));
        assert_eq!(of(Some("echo mine")), (false, false, false));
    }

    /// A script that was published is in measured documents: it may be followed by another one, never changed.
    #[test]
    fn published_scripts_stay_as_they_are() {
        let hashes: Vec<_> = OFFICIAL.iter().map(|script| hex::encode(Sha256::digest(script))).collect();
        insta::assert_debug_snapshot!(hashes);
    }
}
