//! `GET /cvms/{cvm_id}/composition`

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use cloister_management_api::{Composition, Container};
use serde::Deserialize;

use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::responses::OnCvm;
use crate::api::signed_url::Signer;
use crate::api::target::Target;
use crate::api::view::{RUNNER_VERSION, Shown};
use crate::operations::CvmStatus;
use crate::store::CvmRow;

/// The guest agent's list, as far as it is shown.
#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    containers: Vec<ListedContainer>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct ListedContainer {
    id: String,
    names: Vec<String>,
    image: String,
    image_id: String,
    command: Option<String>,
    created: i64,
    state: String,
    status: String,
}

/// Get what runs in a CVM
///
/// Asks the guest. A CVM that does not answer is described with `is_online: false` and a reason.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/composition", tag = "CVMs", operation_id = "get_cvm_composition",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses((status = 200, description = "What runs", body = Composition), OnCvm),
)]
pub(crate) async fn composition(State(api): State<Api>, Target(cvm): Target) -> ApiResult<Json<Composition>> {
    let listed = listed(&api, &cvm).await;
    let shown = Shown::of(&cvm.app_compose);
    let signer = Signer::new(&api.log_url_key, &api.public_url, api.clock.now_ms());
    let (containers, error) = match listed {
        Ok(containers) => (Some(containers), None),
        Err(reason) => (None, Some(reason)),
    };
    let wire = |container: ListedContainer| Container {
        log_endpoint: Some(signer.container_log(cvm.vm_uuid, &container.id)),
        id: container.id,
        names: container.names,
        image: container.image,
        image_id: container.image_id,
        command: container.command,
        created: container.created,
        state: container.state,
        status: container.status,
    };
    Ok(Json(Composition {
        is_online: error.is_none(),
        is_public: shown.public_logs,
        error,
        manifest_version: Some(shown.manifest_version),
        version: Some(RUNNER_VERSION.to_owned()),
        features: Some(shown.features()),
        runner: Some(shown.runner.into_owned()),
        docker_compose_file: shown.docker_compose_file.map(Cow::into_owned),
        containers: containers.map(|containers| containers.into_iter().map(wire).collect()),
    }))
}

/// Whether there may be a guest to ask; if not, why.
pub(super) fn powered(cvm: &CvmRow) -> Result<(), String> {
    match cvm.status {
        CvmStatus::Stopped | CvmStatus::Removing => Err(format!("the CVM is {}", cvm.status)),
        _ => Ok(()),
    }
}

async fn listed(api: &Api, cvm: &CvmRow) -> Result<Vec<ListedContainer>, String> {
    powered(cvm)?;
    let document = api.fleet.containers(cvm.node_id, cvm.vm_uuid).await.map_err(|error| error.to_string())?;
    // The guest belongs to the tenant: what it says is only shown.
    serde_json::from_value(document)
        .map(|listed: Listed| listed.containers)
        .map_err(|_| "the guest answered with something else than a list of containers".to_owned())
}
