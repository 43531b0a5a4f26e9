//! `GET /kms/{slug}/nodes`

use axum::Json;
use axum::extract::{Path, State};
use cloister_management_api::{KmsId, KmsNode, KmsNodes, PlainError};

use super::named;
use crate::api::Api;
use crate::api::error::ApiResult;
use crate::api::responses::Authenticated;
use crate::kms::Kms;

/// List the services of a contract
///
/// Key management services that one contract decides for hold the same keys. One without a contract stands alone.
#[utoipa::path(
    get, path = "/kms/{kms_id}/nodes", tag = "KMS", operation_id = "list_kms_nodes",
    params(("kms_id" = String, Path, description = "Slug or id of any of them, or a kind (`phala`, `ethereum`, `base`) for the first one of it")),
    responses(
        (status = 200, description = "The services", body = KmsNodes),
        (status = 404, description = "There is no such service", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn nodes(State(api): State<Api>, Path(kms_id): Path<String>) -> ApiResult<Json<KmsNodes>> {
    let kms = named(&api, &kms_id)?;
    let items: Vec<KmsNode> = api.kmses.of_same_contract(kms).map(|kms| node(kms)).collect();
    Ok(Json(KmsNodes { total: items.len(), items }))
}

fn node(kms: &Kms) -> KmsNode {
    let info = kms.info();
    KmsNode {
        id: KmsId(kms.id()),
        slug: info.slug,
        url: info.url,
        version: info.version,
        kms_type: kms.kind().to_owned(),
    }
}
