//! `GET /kms/on-chain/{chain}`, and what a contract says of its service.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cloister_app_compose::OsImageHash;
use cloister_management_api::{
    KmsOnChain, KmsOnChainKeys, KmsOnChainVerification, KmsRpcInfo, OnChainDevice, OnChainKms,
    OnChainKmsContract, OnChainOsImage, PlainError,
};
use cloister_node_api::NodeImage;

use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::{ApiError, ApiResult};
use crate::api::governance::{chain_reads, device_bytes, hex_address};
use crate::api::responses::Authenticated;
use crate::fleet::NodeStanding;
use crate::governance::{KmsContractView, KmsQuestion, KnownChain, PublishedKeys};
use crate::kms::{KmsContract, KmsMachine};

/// Chains of the public interface; they are known whether this installation has contracts there or not.
const PUBLIC_CHAINS: [(&str, u64); 2] = [("ethereum", 1), ("base", 8453)];
/// Most devices, and most images, that a contract is asked about at once.
const MAX_ASKED: usize = 256;

/// List contracts of key management services on a chain
///
/// Those that decide for services of this installation, with what they say of its nodes' devices and of its guest
/// images. What could not be asked is null.
#[utoipa::path(
    get, path = "/kms/on-chain/{chain}", tag = "KMS", operation_id = "get_kms_onchain_detail",
    params(("chain" = String, Path, description = "`ethereum`, `base` or another chain of this installation, or the chain's number")),
    responses(
        (status = 200, description = "The chain and its contracts", body = OnChainKms),
        (status = 400, description = "This installation knows no such chain", body = PlainError),
        (status = 429, description = "The workspace asks the chain too often at the same time", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn on_chain(
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(chain): Path<String>,
) -> ApiResult<Json<OnChainKms>> {
    let chain = known_chain(api.contracts.chains(), &chain).ok_or_else(|| {
        ApiError::plain(
            StatusCode::BAD_REQUEST,
            "chain must be ethereum, base or a chain of this installation",
        )
    })?;
    let _turn = chain_reads(&api, &caller)?;
    let nodes = api.fleet.standings().await?;
    let of_chain = api.kmses.all().iter().filter_map(|kms| kms.contract());
    let contracts: BTreeSet<KmsContract> =
        of_chain.filter(|contract| contract.chain_id == chain.id).collect();
    let mut shown = Vec::with_capacity(contracts.len());
    for contract in contracts {
        shown.push(listed(&api, &chain, contract, &nodes).await);
    }
    let chain_id = i64::try_from(chain.id).unwrap_or(i64::MAX);
    Ok(Json(OnChainKms { chain_name: chain.name, chain_id, contracts: shown }))
}

/// The chain that a text names.
fn known_chain(configured: Vec<KnownChain>, text: &str) -> Option<KnownChain> {
    let public = PUBLIC_CHAINS.iter().map(|(name, id)| KnownChain { id: *id, name: (*name).to_owned() });
    let is_named = |chain: &KnownChain| chain.name.eq_ignore_ascii_case(text) || chain.id.to_string() == text;
    configured.into_iter().chain(public).find(is_named)
}

async fn listed(
    api: &Api,
    chain: &KnownChain,
    contract: KmsContract,
    nodes: &[NodeStanding],
) -> OnChainKmsContract {
    let (devices, images) = (devices(nodes), images(nodes));
    let question = KmsQuestion {
        devices: devices.iter().map(|(id, _)| *id).collect(),
        os_images: images.keys().map(|hash| *hash.as_bytes()).collect(),
        aggregated_mrs: Vec::new(),
    };
    let view = match api.contracts.kms(contract, question).await {
        Ok(view) => Some(view),
        Err(error) => {
            tracing::warn!(chain_id = contract.chain_id, %error, "the contract of a KMS cannot be asked");
            None
        }
    };
    let said = |of: fn(&KmsContractView) -> &Vec<bool>, at: usize| {
        view.as_ref().and_then(|view| of(view).get(at).copied())
    };
    let devices = devices.into_iter().enumerate().map(|(at, (id, name))| OnChainDevice {
        device_id: hex::encode(id),
        node_name: Some(name),
        on_chain_allowed: said(|view| &view.devices, at),
    });
    let os_images = images.into_iter().enumerate().map(|(at, (hash, (name, version)))| OnChainOsImage {
        name,
        version,
        os_image_hash: Some(hash),
        on_chain_allowed: said(|view| &view.os_images, at),
    });
    let keys = view.as_ref().and_then(|view| view.keys.as_ref());
    OnChainKmsContract {
        contract_address: contract.hex_address(),
        chain_id: contract.wire_chain_id(),
        chain_name: chain.name.clone(),
        devices: devices.collect(),
        os_images: os_images.collect(),
        k256_pubkey: keys.map(|keys| hex::encode(&keys.k256_pubkey)),
        ca_pubkey: keys.map(|keys| hex::encode(&keys.ca_pubkey)),
        gateway_contract_address: view.as_ref().and_then(gateway),
    }
}

/// Devices of nodes that proved which they are, with the nodes' names.
fn devices(nodes: &[NodeStanding]) -> Vec<([u8; 32], String)> {
    let device =
        |node: &NodeStanding| Some((device_bytes(&node.device.as_ref()?.device_id)?, node.node.name.clone()));
    nodes.iter().filter_map(device).take(MAX_ASKED).collect()
}

/// Name and version of every image that a node has, by hash.
fn images(nodes: &[NodeStanding]) -> BTreeMap<OsImageHash, (String, String)> {
    let of = |image: &NodeImage| (image.os_image_hash, (image.name.clone(), image.version.clone()));
    nodes.iter().flat_map(NodeStanding::images).map(of).take(MAX_ASKED).collect()
}

fn gateway(view: &KmsContractView) -> Option<String> {
    Some(view.gateway_app_id.clone()).filter(|gateway| !gateway.is_empty())
}

/// What a contract says, and whether it is about the service that answered and the machine that it is on.
pub(super) async fn contract_says(
    api: &Api,
    contract: KmsContract,
    rpc: Option<&KmsRpcInfo>,
    machine: Option<&KmsMachine>,
) -> KmsOnChain {
    let question = KmsQuestion {
        devices: machine.map(|machine| machine.device_id).into_iter().collect(),
        os_images: machine.and_then(|machine| machine.os_image_hash).into_iter().collect(),
        aggregated_mrs: machine.map(|machine| machine.mr_aggregated).into_iter().collect(),
    };
    match api.contracts.kms(contract, question).await {
        Err(error) => KmsOnChain { error: Some(error.to_string()), ..KmsOnChain::default() },
        Ok(view) => KmsOnChain {
            verification: verification(&view, rpc),
            gateway_app_id: gateway(&view),
            owner: view.owner.as_ref().map(hex_address),
            kms_info: view.keys.as_ref().map(keys),
            error: None,
        },
    }
}

fn keys(published: &PublishedKeys) -> KmsOnChainKeys {
    KmsOnChainKeys {
        k256_pubkey: hex::encode(&published.k256_pubkey),
        ca_pubkey: hex::encode(&published.ca_pubkey),
        quote_length: published.quote_length,
        eventlog_length: published.eventlog_length,
    }
}

fn verification(view: &KmsContractView, rpc: Option<&KmsRpcInfo>) -> KmsOnChainVerification {
    let published = view.keys.as_ref();
    let same = |published: &[u8], actual: &str| hex::encode(published).eq_ignore_ascii_case(actual);
    let both = published.zip(rpc.map(|rpc| &rpc.bootstrap_info));
    KmsOnChainVerification {
        k256_pubkey_match: both.map(|(keys, own)| same(&keys.k256_pubkey, &own.k256_pubkey)),
        ca_pubkey_match: both.map(|(keys, own)| same(&keys.ca_pubkey, &own.ca_pubkey)),
        gateway_app_id_match: rpc.map(|rpc| rpc.gateway_app_id == gateway(view)),
        device_id_allowed: view.devices.first().copied(),
        os_image_allowed: view.os_images.first().copied(),
        mr_aggregated_allowed: view.aggregated_mrs.first().copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_have_a_name_and_a_number() {
        let configured = || vec![KnownChain { id: 31337, name: "development".to_owned() }];
        for (text, id) in
            [("base", 8453), ("ETHEREUM", 1), ("8453", 8453), ("Development", 31337), ("31337", 31337)]
        {
            assert_eq!(known_chain(configured(), text).unwrap().id, id, "{text}");
        }
        for text in ["moon", "", "0x1", "+1", "01"] {
            assert!(known_chain(configured(), text).is_none(), "{text}");
        }
    }
}
