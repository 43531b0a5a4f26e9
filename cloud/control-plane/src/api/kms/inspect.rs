//! `GET /kms/{kms_id}/info`

use axum::Json;
use axum::extract::{Path, State};
use cloister_app_compose::members;
use cloister_kms_api::Meta;
use cloister_management_api::{
    KmsBootstrapInfo, KmsId, KmsInspection, KmsRoot, KmsRpcInfo, KmsTeepod, KmsTeepodImage, PlainError,
};
use utoipa::IntoParams;

use super::named_for;
use super::on_chain::contract_says;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::governance::chain_reads;
use crate::api::input::Query;
use crate::api::responses::Authenticated;
use crate::fleet::{NodeStanding, NodeStatus};
use crate::kms::{Kms, KmsMachine, address};

members! {
    /// Query of `GET /kms/{kms_id}/info`.
    #[derive(Debug, IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct InspectQuery {
        /// Application, with or without `0x` or `app_`: a kind in the path stands for the service of its CVMs in the workspace.
        #[param(required = false)]
        pub app_id: Option<String>,
    }
}

/// Inspect a key management service
///
/// Asks the service itself. What cannot be asked is null, with the reason beside it.
#[utoipa::path(
    get, path = "/kms/{kms_id}/info", tag = "KMS", operation_id = "inspect_kms",
    params(("kms_id" = String, Path, description = "Id, slug, or a kind (`phala`, `ethereum`, `base`) for that of the application's CVMs, else the first one of the kind"), InspectQuery),
    responses(
        (status = 200, description = "What could be found out", body = KmsInspection),
        (status = 400, description = "That is no app id", body = PlainError),
        (status = 404, description = "There is no such service", body = PlainError),
        (status = 429, description = "The workspace asks the chain too often at the same time", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn inspect(
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(kms_id): Path<String>,
    Query(query): Query<InspectQuery>,
) -> ApiResult<Json<KmsInspection>> {
    let kms = named_for(&api, &kms_id, query.app_id.as_deref(), Some(caller.workspace_id)).await?;
    let _turn = kms.contract().map(|_| chain_reads(&api, &caller)).transpose()?;
    let before = kms.known();
    let nodes = api.fleet.standings().await?;
    let asked = kms.look().await;
    let db_version = match (&before, &asked) {
        (Some(meta), _) | (None, Ok((meta, _))) => meta.version.clone(),
        (None, Err(_)) => kms.info().version,
    };
    let mut machine = None;
    let (rpc, rpc_error, guest_agent_error) = match asked {
        Ok((meta, certificate)) => {
            let outcome = KmsMachine::of(certificate, &api.verifier).await;
            let why_not = outcome.as_ref().err().map(ToString::to_string);
            machine = outcome.ok();
            (Some(rpc(&meta, &db_version)), None, why_not)
        }
        Err(error) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "a KMS that is inspected does not answer"
            );
            (None, Some(error.to_string()), Some("the service did not answer".to_owned()))
        }
    };
    let on_chain = match kms.contract() {
        Some(contract) => Some(contract_says(&api, contract, rpc.as_ref(), machine.as_ref()).await),
        None => None,
    };
    Ok(Json(KmsInspection {
        id: KmsId(kms.id()),
        slug: Some(kms.slug().to_owned()),
        endpoint: address(kms.guest_url()),
        kms_type: kms.kind().to_owned(),
        db_version,
        rpc,
        rpc_error,
        guest_agent: machine.as_ref().map(shown),
        guest_agent_error,
        teepods: nodes.iter().map(|node| teepod(node, kms)).collect(),
        on_chain,
    }))
}

fn rpc(meta: &Meta, before: &str) -> KmsRpcInfo {
    let current = meta.roots.last();
    let attestation = meta.bootstrap_info.as_ref().map_or(0, |info| info.attestation.0.len());
    KmsRpcInfo {
        version: meta.version.clone(),
        is_dev: meta.is_dev,
        chain_id: meta.chain_id.and_then(|id| i64::try_from(id).ok()),
        kms_contract_address: meta.kms_contract_address.clone(),
        gateway_app_id: meta.gateway_app_id.clone(),
        bootstrap_info: KmsBootstrapInfo {
            k256_pubkey: hex::encode(&meta.k256_pubkey),
            ca_pubkey: current.map_or_else(String::new, |root| hex::encode(&root.ca_pubkey)),
            quote_length: attestation,
            eventlog_length: 0,
        },
        version_synced: meta.version == before,
        roots: meta
            .roots
            .iter()
            .map(|root| KmsRoot {
                version: root.version,
                k256_pubkey: hex::encode(&root.k256_pubkey),
                ca_pubkey: hex::encode(&root.ca_pubkey),
                created_at: root.created_at,
                predecessor_signature: root.predecessor_signature.as_ref().map(hex::encode),
            })
            .collect(),
    }
}

fn shown(machine: &KmsMachine) -> cloister_management_api::KmsMachine {
    cloister_management_api::KmsMachine {
        device_id: hex::encode(machine.device_id),
        mr_aggregated: Some(hex::encode(machine.mr_aggregated)),
        os_image_hash: machine.os_image_hash.map(hex::encode),
        instance_id: machine.instance_id.map(|id| id.to_string()),
        app_id: machine.app_id.map(|id| id.to_string()),
        mr_key_provider: machine.key_provider.map(hex::encode),
        compose_hash: machine.compose_hash.map(|hash| hash.to_string()),
    }
}

fn teepod(node: &NodeStanding, kms: &Kms) -> KmsTeepod {
    let version = node.report.as_ref().map(|report| report.version.clone());
    let is_online = node.status != NodeStatus::Offline;
    KmsTeepod {
        id: node.node.id,
        name: node.node.name.clone(),
        teepod_version_db: version.clone(),
        teepod_version_real: version.filter(|_| is_online),
        kms_url: Some(address(kms.guest_url())),
        kms_urls: vec![address(kms.guest_url())],
        available_os_images: node
            .images()
            .iter()
            .map(|image| KmsTeepodImage {
                name: image.name.clone(),
                version: image.version.clone(),
                is_dev: image.is_dev,
            })
            .collect(),
        error: (!is_online).then(|| "the node does not report".to_owned()),
    }
}
