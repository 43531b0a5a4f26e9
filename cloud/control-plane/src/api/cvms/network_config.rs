//! `GET` and `PATCH /cvms/{cvm_id}/network-config`

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use cloister_management_api::{NetworkConfig, NetworkConfigPort, PlainError, UpdateNetworkConfigRequest};
use cloister_node_api::PortMapping;
use serde_json::json;
use url::Url;

use super::composition::powered;
use super::ports::protocol;
use super::power;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::input::Body;
use crate::api::responses::{OnCvm, OnPower};
use crate::api::target::Target;
use crate::operations::{NodeCallError, OperationKind, kms_urls};
use crate::store::CvmRow;

/// Most addresses of a kind.
const MAX_URLS: usize = 16;
/// Longest address, in bytes.
const MAX_URL_BYTES: usize = 1024;

/// Get the network configuration of a CVM
///
/// Ports are those that the node has mapped now, for a CVM that is off those that its next start brings.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/network-config", tag = "CVMs", operation_id = "get_cvm_network_config",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses(
        (status = 200, description = "The configuration", body = NetworkConfig),
        (status = 500, description = "The node does not answer", body = PlainError),
        OnCvm,
    ),
)]
pub(crate) async fn get(State(api): State<Api>, Target(cvm): Target) -> ApiResult<Json<NetworkConfig>> {
    let ports = if powered(&cvm).is_ok() {
        let seen = api.fleet.network(cvm.node_id, cvm.vm_uuid).await;
        let failed =
            |error: NodeCallError| ApiError::plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
        seen.map_err(failed)?.ports
    } else {
        cvm.port_mappings()
    };
    show(&api, &cvm, ports).map(Json)
}

/// Change the network configuration of a CVM
///
/// What is left out stays. It takes effect with the next start of the CVM, which `restart` asks for.
#[utoipa::path(
    patch, path = "/cvms/{cvm_id}/network-config", tag = "CVMs", operation_id = "update_cvm_network_config",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    request_body = UpdateNetworkConfigRequest,
    responses((status = 200, description = "The configuration", body = NetworkConfig), OnCvm, OnPower),
)]
pub(crate) async fn update(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    Body(request): Body<UpdateNetworkConfigRequest>,
) -> ApiResult<Json<NetworkConfig>> {
    let kms = addresses("kms_urls", request.kms_urls.as_deref())?;
    let gateways = addresses("gateway_urls", request.gateway_urls.as_deref())?;
    let stored = api.lifecycle.set_addresses(cvm.id, kms.as_deref(), gateways.as_deref()).await;
    let cvm = stored.map_err(power::request_error)?;
    if request.restart {
        power::accept(&api, &caller, &cvm, OperationKind::Restart, false).await?;
    }
    show(&api, &cvm, cvm.port_mappings()).map(Json)
}

/// A list of addresses as it is stored, if there is one.
fn addresses(member: &str, urls: Option<&[String]>) -> ApiResult<Option<String>> {
    let Some(urls) = urls else { return Ok(None) };
    if urls.len() > MAX_URLS {
        let message = format!("List should have at most {MAX_URLS} items");
        return Err(ApiError::fault(&["body", member], "too_long", message));
    }
    for (index, url) in urls.iter().enumerate() {
        if !is_address(url) {
            let message = "Input should be an address such as https://kms.example:9443, without a user name";
            return Err(ApiError::fault(&["body", member, &index.to_string()], "url_parsing", message));
        }
    }
    Ok(Some(json!(urls).to_string()))
}

fn is_address(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    text.len() <= MAX_URL_BYTES
        && url.scheme() == "https"
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
}

fn show(api: &Api, cvm: &CvmRow, ports: Vec<PortMapping>) -> ApiResult<NetworkConfig> {
    let kms_urls = kms_urls(cvm, &api.kmses).map_err(|error| ApiError::internal(&error))?;
    let gateway_urls = cvm.gateway_urls.as_deref().and_then(|urls| serde_json::from_str(urls).ok());
    let port = |mapping: PortMapping| NetworkConfigPort {
        host_port: mapping.host_port,
        vm_port: mapping.vm_port,
        protocol: protocol(&mapping).to_owned(),
        host_address: mapping.host_address,
    };
    Ok(NetworkConfig {
        kms_urls,
        gateway_urls: gateway_urls.unwrap_or_default(),
        ports: ports.into_iter().map(port).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_services() {
        for good in ["https://kms.example", "https://10.0.0.1:9443/", "https://[::1]:1/x"] {
            assert!(is_address(good), "{good}");
        }
        let long = format!("https://a/{}", "x".repeat(MAX_URL_BYTES));
        for bad in ["", "kms", "http://a", "https://", "https://u:p@a", "https://a?x", "https://a#x", &long] {
            assert!(!is_address(bad), "{bad}");
        }
        let many = vec!["https://a".to_owned(); MAX_URLS + 1];
        assert!(addresses("kms_urls", Some(&many)).is_err());
        assert_eq!(addresses("kms_urls", Some(&many[..1])).unwrap().unwrap(), r#"["https://a"]"#);
        assert_eq!(addresses("kms_urls", None).unwrap(), None);
    }
}
