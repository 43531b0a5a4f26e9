//! `GET /cvms/{cvm_id}/available-os-images`

use std::cmp::Reverse;
use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use cloister_app_compose::OsImageHash;
use cloister_management_api::{AvailableOsImage, AvailableOsImages, OsVersion, PlainError, VERSION_HEADER};
use cloister_node_api::NodeImage;

use super::image_rules::may_change;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::governance::chain_reads;
use crate::api::placing::wire_version;
use crate::api::responses::OnCvm;
use crate::api::target::Target;
use crate::fleet::NodeStanding;
use crate::governance::{KmsContractView, KmsQuestion};
use crate::kms::KmsContract;
use crate::store::CvmRow;

/// List the OS images that a CVM may change to
///
/// Those of its node, of its own kind (production or development), that drive its GPUs and that its key management
/// service lets in, newest version first. Where a contract decides and cannot be asked, only its own is listed. Requests without `X-Phala-Version` get versions as objects.
#[utoipa::path(
    get, path = "/cvms/{cvm_id}/available-os-images", tag = "CVMs", operation_id = "list_available_os_images",
    params(("cvm_id" = String, Path, description = "Id, UUID, app id, instance id or name")),
    responses(
        (status = 200, description = "The images by version", body = Vec<AvailableOsImages>),
        (status = 429, description = "The workspace asks too often at the same time", body = PlainError),
        OnCvm,
    ),
)]
pub(crate) async fn available_os_images(
    State(api): State<Api>,
    Auth(caller): Auth,
    Target(cvm): Target,
    headers: HeaderMap,
) -> ApiResult<Json<Vec<AvailableOsImages>>> {
    let asks = cvm.kms_id.is_some_and(|id| api.kmses.is_of_contract(id));
    let _turn = asks.then(|| chain_reads(&api, &caller)).transpose()?;
    let node = api.fleet.standing(cvm.node_id).await?;
    let images = node.as_ref().map(NodeStanding::images).unwrap_or_default();
    let allowed = allowed_by_kms(&api, &cvm, images).await;
    let own = images.iter().find(|image| image.os_image_hash == cvm.os_image_hash);
    let is_offered = |image: &NodeImage| {
        image.os_image_hash == cvm.os_image_hash
            || node.as_ref().is_none_or(|node| !node.retired.contains(&image.os_image_hash))
    };
    let fits = |image: &&NodeImage| {
        is_offered(image)
            && may_change(own, !cvm.gpus.0.is_empty(), image)
            && allowed.as_ref().is_none_or(|allowed| allowed.contains(&image.os_image_hash))
    };
    let as_list = headers.contains_key(VERSION_HEADER);
    Ok(Json(by_version(images.iter().filter(fits), cvm.os_image_hash, as_list)))
}

/// What the service that the CVM's keys come from lets in; `None` where that is not known to be restricted.
async fn allowed_by_kms(api: &Api, cvm: &CvmRow, images: &[NodeImage]) -> Option<Vec<OsImageHash>> {
    let kms = api.kmses.get(cvm.kms_id?)?;
    if let Some(contract) = kms.contract() {
        return Some(allowed_by_contract(api, contract, cvm, images).await);
    }
    match kms.allowed_images().await {
        Ok(allowed) => allowed,
        // It has the last word in any case: a machine that it does not know gets no keys.
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(kms = kms.slug(), error, "a KMS does not say which images it lets in");
            None
        }
    }
}

/// The images that a contract allows, and the one that the CVM has. Nothing else is offered while the contract
/// cannot be asked: a CVM with an image that it turns out not to allow would get no keys.
async fn allowed_by_contract(
    api: &Api,
    contract: KmsContract,
    cvm: &CvmRow,
    images: &[NodeImage],
) -> Vec<OsImageHash> {
    let hashes: Vec<OsImageHash> = images.iter().map(|image| image.os_image_hash).collect();
    let os_images = hashes.iter().map(|hash| *hash.as_bytes()).collect();
    let said = api.contracts.kms(contract, KmsQuestion { os_images, ..KmsQuestion::default() }).await;
    let said = said.unwrap_or_else(|error| {
        tracing::warn!(%error, "the contract of a KMS does not say which images it allows");
        KmsContractView::default()
    });
    let allowed =
        hashes.iter().zip(&said.os_images).filter_map(|(hash, is_allowed)| is_allowed.then_some(*hash));
    allowed.chain([cvm.os_image_hash]).collect()
}

/// One entry for each version, newest first, with one image of each kind: the CVM's own before others.
fn by_version<'n>(
    images: impl Iterator<Item = &'n NodeImage>,
    current: OsImageHash,
    as_list: bool,
) -> Vec<AvailableOsImages> {
    let mut images: Vec<_> = images.collect();
    images.sort_by_key(|image| {
        (image.os_image_hash != current, image.name.clone(), image.os_image_hash.to_string())
    });
    let mut versions: BTreeMap<Reverse<Vec<u32>>, AvailableOsImages> = BTreeMap::new();
    for image in images {
        let numbers = wire_version(&image.version);
        let entry = versions.entry(Reverse(numbers.clone())).or_insert_with(|| AvailableOsImages {
            version: if as_list { OsVersion::List(numbers) } else { OsVersion::keyed(&numbers) },
            prod: None,
            dev: None,
        });
        let place = if image.is_dev { &mut entry.dev } else { &mut entry.prod };
        place.get_or_insert_with(|| AvailableOsImage {
            name: image.name.clone(),
            slug: image.name.clone(),
            os_image_hash: Some(image.os_image_hash),
            is_current: image.os_image_hash == current,
        });
    }
    versions.into_values().collect()
}
