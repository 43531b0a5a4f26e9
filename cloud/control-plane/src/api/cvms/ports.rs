//! `GET` and `PUT /cvms/{cvm_id}/ports`

use std::collections::HashSet;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{
    ErrorBody, ErrorCode, MappedPort, PlainError, PortMappingEntry, PortMappingId, UpdatePortMappingsRequest,
};
use cloister_node_api::{PortMapping, PortProtocol};

use super::power::request_error;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::{OnCvm, OnPower};
use crate::api::scene::Scene;
use crate::api::target::Target;
use crate::api::view::View;
use crate::operations::{MAX_PORTS, MapPortsError, WantedPort};
use crate::store::CvmRow;

/// List the mapped ports of a CVM
///
/// Ports of the node that lead to ports of the CVM, beside the ingress.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/ports", tag = "CVMs", operation_id = "get_cvm_ports",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses((status = 200, description = "The ports", body = Vec<MappedPort>), OnCvm),
)]
pub(crate) async fn get(State(api): State<Api>, Target(cvm): Target) -> ApiResult<Json<Vec<MappedPort>>> {
    let mapped = cvm.port_mappings();
    show(&api, &cvm, mapped).await
}

/// Replace the mapped ports of a CVM
///
/// Ports of the node are chosen by the service; a port that was mapped before keeps its own, and its id. A CVM
/// that is up goes on undisturbed. An empty list removes all.
#[utoipa::path(
    put, path = "/cvms/{cvm_id}/ports", tag = "CVMs", operation_id = "set_cvm_ports",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body(content = UpdatePortMappingsRequest, example = json!({"ports": [{"vm_port": 5432, "protocol": "tcp"}]})),
    responses(
        (status = 200, description = "All ports that are mapped now", body = Vec<MappedPort>),
        (status = 400, description = "The node has no free port left (ERR-02-008), the CVM is in error, or several match", body = ErrorBody),
        (status = 403, description = "The node maps no ports, or the CVM belongs to another workspace", body = PlainError),
        OnCvm, OnPower,
    ),
)]
pub(crate) async fn set(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    Body(request): Body<UpdatePortMappingsRequest>,
) -> ApiResult<Json<Vec<MappedPort>>> {
    let wanted = wanted(&request.ports)?;
    let mapped = api.lifecycle.map_ports(cvm.id, &wanted, caller.user_id).await.map_err(map_error)?;
    show(&api, &cvm, mapped).await
}

fn wanted(entries: &[PortMappingEntry]) -> ApiResult<Vec<WantedPort>> {
    if entries.len() > MAX_PORTS {
        let message = format!("List should have at most {MAX_PORTS} items");
        return Err(ApiError::fault(&["body", "ports"], "too_long", message));
    }
    let mut seen = HashSet::new();
    let read = |(index, entry): (usize, &PortMappingEntry)| {
        let index = index.to_string();
        let fault = |member: &str, kind, message: &str| {
            ApiError::fault(&["body", "ports", &index, member], kind, message)
        };
        let port = u16::try_from(entry.vm_port).ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| fault("vm_port", "out_of_range", "Input should be from 1 to 65535"))?;
        let protocol = match entry.protocol.as_str() {
            "tcp" => PortProtocol::Tcp,
            "udp" => PortProtocol::Udp,
            _ => return Err(fault("protocol", "enum", "Input should be 'tcp' or 'udp'")),
        };
        if !seen.insert((protocol, port)) {
            return Err(fault("vm_port", "value_error", "Each port of the CVM can be mapped once"));
        }
        Ok((protocol, port))
    };
    entries.iter().enumerate().map(read).collect()
}

fn map_error(error: MapPortsError) -> ApiError {
    let text = error.to_string();
    match error {
        MapPortsError::Request(error) => request_error(error),
        MapPortsError::NotOffered(_) => ApiError::plain(StatusCode::FORBIDDEN, text),
        MapPortsError::NoneFree(_) => ApiError::explained(ErrorCode::InvalidParameter, text),
    }
}

/// Name of a protocol on the wire.
pub(super) fn protocol(mapping: &PortMapping) -> &'static str {
    match mapping.protocol {
        PortProtocol::Tcp => "tcp",
        PortProtocol::Udp => "udp",
    }
}

/// A mapping is named by what is unique about it, so that its id stays while it does.
fn id(cvm: &CvmRow, mapping: &PortMapping) -> PortMappingId {
    let is_udp = i64::from(mapping.protocol == PortProtocol::Udp);
    PortMappingId((cvm.id << 17) | (is_udp << 16) | i64::from(mapping.host_port))
}

async fn show(api: &Api, cvm: &CvmRow, mapped: Vec<PortMapping>) -> ApiResult<Json<Vec<MappedPort>>> {
    let scene = Scene::of(api, std::slice::from_ref(cvm)).await?;
    let node = View::new(api, &scene, cvm).ingress_domain().unwrap_or_default();
    let wire = |mapping: PortMapping| MappedPort {
        id: id(cvm, &mapping),
        host_port: mapping.host_port,
        vm_port: mapping.vm_port,
        protocol: protocol(&mapping).to_owned(),
        host_address: if mapping.host_address.is_empty() { node.clone() } else { mapping.host_address },
    };
    Ok(Json(mapped.into_iter().map(wire).collect()))
}
