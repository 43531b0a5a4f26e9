//! The unified request for a change.

use cloister_management_api::{ResizeRequest, UpdateCvmRequest};
use serde_json::{Value, json};

use super::{Approval, Edit, Manner};
use crate::api::Api;
use crate::api::error::{ApiError, ApiResult};
use crate::store::{CvmRow, PolicyChange};

/// The configuration that a request asks for, from what the CVM has.
pub(crate) async fn edit_of<'a>(
    api: &Api,
    cvm: &'a CvmRow,
    request: &UpdateCvmRequest,
) -> ApiResult<Edit<'a>> {
    let mut edit = Edit::of(cvm);
    let members = members(request);
    if !members.is_empty() {
        if request.docker_compose_file.is_some() {
            edit.check_runner()?;
        }
        edit.members(members)?;
    }
    if let Some(names) = &request.allowed_envs {
        edit.allow_names(names)?;
    }
    if let Some(env) = request.encrypted_env.as_ref().and_then(|env| env.0.as_ref()) {
        edit.seal(api, env).await?;
    }
    if let Some(text) = &request.user_config {
        edit.user_config(text)?;
    }
    if let Some(gpus) = &request.gpus {
        edit.gpus(api, gpus).await?;
    }
    let size = ResizeRequest {
        instance_type: request.instance_type.clone(),
        vcpu: request.vcpu,
        memory: request.memory,
        disk_size: request.disk_size,
        allow_restart: None,
    };
    if size != ResizeRequest::default() {
        edit.resize(api.store.prices(), &size)?;
    }
    // Whoever gets GPUs needs an image that drives them, also when it is the present one.
    let own = cvm.os_image_hash.to_string();
    if let Some(name) = request.image.as_deref().or(request.gpus.as_ref().map(|_| own.as_str())) {
        edit.image(api, name).await?;
    }
    edit.check_restart(request.allow_restart)?;
    Ok(edit)
}

/// Members of the document that the request names, its environment's names aside.
fn members(request: &UpdateCvmRequest) -> Vec<(&'static str, Value)> {
    let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
    let flag = |flag: Option<bool>| flag.map(|flag| json!(flag));
    let all = [
        ("docker_compose_file", text(&request.docker_compose_file)),
        ("pre_launch_script", text(&request.pre_launch_script)),
        ("public_logs", flag(request.public_logs)),
        ("public_sysinfo", flag(request.public_sysinfo)),
        ("public_tcbinfo", flag(request.public_tcbinfo)),
    ];
    all.into_iter().filter_map(|(member, value)| Some((member, value?))).collect()
}

/// How a request wants the change carried out.
pub(crate) fn manner_of(request: &UpdateCvmRequest, approval: Approval) -> ApiResult<Manner> {
    let shutdown_timeout = bounded("shutdown_timeout", request.shutdown_timeout, 10, 1200)?;
    let health_timeout_s = bounded("health_timeout", request.health_timeout, 30, 3600)?;
    Ok(Manner {
        shutdown_timeout_s: shutdown_timeout.and_then(|seconds| u32::try_from(seconds).ok()),
        allow_force_stop: request.allow_force_stop,
        policy: PolicyChange { rollback_on_failure: request.rollback_on_failure, health_timeout_s },
        approval,
    })
}

fn bounded(member: &str, value: Option<i64>, low: i64, high: i64) -> ApiResult<Option<i64>> {
    match value {
        Some(seconds) if !(low..=high).contains(&seconds) => {
            let message = format!("Input should be from {low} to {high}");
            Err(ApiError::fault(&["body", member], "out_of_range", message))
        }
        value => Ok(value),
    }
}
