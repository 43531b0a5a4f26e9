//! `POST /cvms/provision/agentapp`

use axum::Json;
use axum::extract::State;
use cloister_app_compose::decode::{self, Source};
use cloister_app_compose::{Additions, Draft};
use cloister_management_api::{
    ErrorBody, ErrorCode, PlainError, ProvisionAgentAppRequest, ProvisionResponse,
};
use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::kms::Selection;
use crate::api::placing::Wish;
use crate::api::provisioning::{self, AppIdWish, compose_error};
use crate::api::responses::Authenticated;

/// The agent runtime that character files are written for.
const IMAGE: &str = "docker.io/elizaos/eliza:latest";
/// Where the runtime looks for its character.
const CHARACTER_VARIABLE: &str = "CHARACTER_JSON";

/// Provision an agent app
///
/// Makes the compose file of an agent from its character file and provisions it like
/// `POST /cvms/provision`. Create the CVM with `POST /cvms/agentapp`.
#[utoipa::path(
    post, path = "/cvms/provision/agentapp", tag = "CVMs", operation_id = "provision_agent_app",
    request_body(content = ProvisionAgentAppRequest, example = json!({
        "name": "my-agent", "characterfile": "{\"name\": \"Ada\"}", "env_keys": ["OPENAI_API_KEY"],
    })),
    responses(
        (status = 200, description = "Kept; create the CVM with this hash and app id", body = ProvisionResponse),
        (status = 400, description = "Invalid configuration, or nothing matches it", body = ErrorBody),
        (status = 409, description = "A CVM of the workspace has this name (ERR-01-004)", body = ErrorBody),
        (status = 503, description = "The key management service does not answer; repeat the request after `Retry-After`", body = PlainError),
        (status = 413, description = "The body has more than 1 MiB", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn provision_agentapp(
    State(api): State<Api>,
    Auth(caller): Auth,
    Body(request): Body<ProvisionAgentAppRequest>,
) -> ApiResult<Json<ProvisionResponse>> {
    if serde_json::from_str::<Map<String, Value>>(&request.characterfile).is_err() {
        let message = "characterfile must be the text of a JSON object";
        return Err(ApiError::explained(ErrorCode::InvalidParameter, message));
    }
    let document = json!({
        "name": request.name.as_str(),
        "docker_compose_file": compose_file(&request.characterfile, &request.env_keys),
        "allowed_envs": request.env_keys,
    });
    let draft: Draft = decode::decode(&document, Source::Json, &["body"]).map_err(ApiError::faults)?;
    let compose = draft.prepare(&Additions::default()).map_err(compose_error)?;
    let selection = Selection { id: request.kms_id.as_deref(), ..Selection::default() };
    let draft = provisioning::Draft {
        kms: provisioning::kms_of(&api, &compose, selection)?,
        compose,
        encrypted_env: None,
        wish: Wish { node_id: request.teepod_id, image: request.image, ..Wish::default() },
        app_id: AppIdWish::Next,
        name: request.name.to_string(),
        listed: true,
        user_config: None,
    };
    provisioning::provision(&api, &caller, draft).await.map(Json)
}

/// JSON is YAML: quoting needs no second set of rules.
fn compose_file(characterfile: &str, env_keys: &[String]) -> String {
    // A compose engine replaces single dollar signs by variables.
    let character = characterfile.replace('$', "$$");
    let mut environment: Map<String, Value> =
        env_keys.iter().map(|key| (key.clone(), format!("${{{key}}}").into())).collect();
    environment.insert(CHARACTER_VARIABLE.to_owned(), character.into());
    let agent = json!({
        "image": IMAGE, "restart": "unless-stopped", "environment": environment, "ports": ["80:3000"],
    });
    json!({"services": {"agent": agent}}).to_string()
}

#[cfg(test)]
mod tests {
    use cloister_app_compose::ComposeFile;

    use super::*;

    #[test]
    fn the_character_survives_the_compose_file() {
        let text = compose_file("{\"price\": \"$5\",\n \"quote\": \"\\\"\"}", &["KEY".to_owned()]);
        insta::assert_snapshot!(text);
        assert_eq!(ComposeFile::parse(&text).unwrap().images().collect::<Vec<_>>(), [IMAGE]);
    }
}
