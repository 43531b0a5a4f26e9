//! `POST /cvms/workload`

use axum::Json;
use axum::extract::State;
use cloister_app_compose::Additions;
use cloister_app_compose::Draft;
use cloister_app_compose::decode::{self, Source};
use cloister_management_api::{ErrorBody, ErrorCode, KmsType, Vm, WorkloadRequest};
use serde_json::json;

use super::create::create_error;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::kms::Selection;
use crate::api::negotiate::Version;
use crate::api::placing::Wish;
use crate::api::provisioning::{self, AppIdWish, compose_error};
use crate::api::responses::Authenticated;
use crate::api::scene::Scene;
use crate::api::sizes;
use crate::api::view::View;
use crate::operations::CreateRequest;

/// The model server, as a release that is known to serve the interface of OpenAI; operators of production fleets
/// mirror it and pin it by its digest.
pub(crate) const MODEL_SERVER_IMAGE: &str = "docker.io/vllm/vllm-openai:v0.11.0";
/// Longest name of a model.
const MAX_MODEL_ID: usize = 200;

/// Create a CVM that serves a model
///
/// In one step: a GPU node is chosen, and the CVM runs a model server with this model on its GPUs, with the
/// interface of OpenAI on port 8000. It boots a production image, never a development image.
#[utoipa::path(
    post, path = "/cvms/workload", tag = "CVMs", operation_id = "create_workload_cvm",
    request_body(content = WorkloadRequest, example = json!({
        "name": "my-model", "instance_type": "h200.small", "model_id": "Qwen/Qwen3-8B",
    })),
    responses(
        (status = 200, description = "Accepted", body = Vm),
        (status = 400, description = "No such GPU size, or no node has the GPUs free, or a production image for them (ERR-02-…)", body = ErrorBody),
        (status = 409, description = "A CVM of the workspace has this name (ERR-01-004)", body = ErrorBody),
        Authenticated,
    ),
)]
pub(crate) async fn workload(
    State(api): State<Api>,
    Auth(caller): Auth,
    Version(version): Version,
    Body(request): Body<WorkloadRequest>,
) -> ApiResult<Json<Vm>> {
    let gpus = check(&api, &request)?;
    let document = json!({
        "name": request.name.as_str(),
        "docker_compose_file": compose_file(MODEL_SERVER_IMAGE, &request.model_id, gpus),
    });
    let draft: Draft = decode::decode(&document, Source::Json, &["body"]).map_err(ApiError::faults)?;
    let compose = draft.prepare(&Additions::default()).map_err(compose_error)?;
    let draft = provisioning::Draft {
        kms: provisioning::kms_of(&api, &compose, without_contract(&api)?)?,
        compose,
        encrypted_env: None,
        // Nothing in the request could refuse the console of a development image.
        wish: Wish { instance_type: Some(request.instance_type), prefer_dev: Some(false), ..Wish::default() },
        app_id: AppIdWish::Next,
        name: request.name.to_string(),
        listed: true,
        user_config: None,
    };
    let provision = provisioning::provision(&api, &caller, draft).await?;
    let app_id = provision.app_id.ok_or_else(ApiError::unexpected)?;
    let create = CreateRequest {
        compose_hash: provision.compose_hash,
        app_id,
        is_allowed_by_contract: false,
        encrypted_env: None,
        scheduled_delete_at_ms: request.scheduled_delete_at.map(|at| at.0.as_millisecond()),
    };
    let cvm = api.lifecycle.create(&caller, create).await.map_err(create_error)?;
    let scene = Scene::of(&api, std::slice::from_ref(&cvm)).await?;
    Ok(Json(View::new(&api, &scene, &cvm).vm(version)))
}

/// In one step nobody can deploy a contract, so that keys come from a service without one.
fn without_contract(api: &Api) -> ApiResult<Selection<'static>> {
    let selection = Selection { kind: Some(KmsType::Phala), ..Selection::default() };
    selection.choose(&api.kmses).map(|_| selection).map_err(|_| {
        let message = "a contract decides for every key management service here, and a model server is made in one \
                       step; provision it with POST /api/v1/cvms/provision instead";
        ApiError::explained(ErrorCode::NoMatchingKms, message)
    })
}

/// How many GPUs the size has, if everything about the request can be had.
fn check(api: &Api, request: &WorkloadRequest) -> ApiResult<u32> {
    let named = Some(request.instance_type.as_str());
    let about = |error: ApiError| error.about("instance_type", request.instance_type.as_str());
    let prices = api.store.prices();
    if sizes::get(prices, named).is_none() {
        return Err(about(ApiError::coded(ErrorCode::InstanceTypeUnknown)));
    }
    let (gpus, _) = sizes::gpus_of(prices, named).ok_or_else(|| {
        let message = "the instance type has no GPUs; choose one from GET /api/v1/instance-types/gpu";
        about(ApiError::explained(ErrorCode::IncompatibleParameters, message))
    })?;
    if !is_model_id(&request.model_id) {
        let message = "model_id is a name such as Qwen/Qwen3-8B: letters, digits, dots, hyphens and underscores, \
                       with an organisation before a slash";
        let error = ApiError::explained(ErrorCode::InvalidParameter, message);
        return Err(error.about("model_id", request.model_id.chars().take(MAX_MODEL_ID).collect::<String>()));
    }
    match request.scheduled_delete_at {
        Some(at) if at.0.as_millisecond() <= api.clock.now_ms() => {
            let error =
                ApiError::explained(ErrorCode::InvalidParameter, "scheduled_delete_at must be in the future");
            Err(error.about("scheduled_delete_at", at.0.to_string()))
        }
        _ => Ok(gpus),
    }
}

/// `organisation/model`, or a model alone: nothing that a compose file or a command line reads as anything else.
fn is_model_id(text: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphanumeric())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    text.len() <= MAX_MODEL_ID && text.split('/').count() <= 2 && text.split('/').all(is_part)
}

/// JSON is YAML: quoting needs no second set of rules.
fn compose_file(image: &str, model_id: &str, gpus: u32) -> String {
    let model = json!({
        "image": image,
        "restart": "unless-stopped",
        "command": ["--model", model_id, "--tensor-parallel-size", gpus.to_string(), "--port", "8000"],
        "ports": ["8000:8000"],
        "ipc": "host",
        "volumes": ["models:/root/.cache/huggingface"],
        "deploy": {"resources": {"reservations": {"devices": [
            {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]},
        ]}}},
    });
    json!({"services": {"model": model}, "volumes": {"models": {}}}).to_string()
}

#[cfg(test)]
mod tests {
    use cloister_app_compose::ComposeFile;

    use super::*;

    #[test]
    fn names_of_models() {
        for good in ["Qwen/Qwen3-8B", "gpt-oss-20b", "a/b", "meta-llama/Llama-3.1_8B"] {
            assert!(is_model_id(good), "{good}");
        }
        let long = "a".repeat(201);
        for bad in
            ["", "/", "a/", "/a", "a/b/c", "-a", "a b", "../x", "a/--port", "$HOME", "ä", long.as_str()]
        {
            assert!(!is_model_id(bad), "{bad}");
        }
    }

    #[test]
    fn the_compose_file_is_one() {
        let text = compose_file(MODEL_SERVER_IMAGE, "Qwen/Qwen3-8B", 2);
        assert_eq!(ComposeFile::parse(&text).unwrap().images().collect::<Vec<_>>(), [MODEL_SERVER_IMAGE]);
        assert!(text.contains(r#""--tensor-parallel-size","2""#));
    }
}
