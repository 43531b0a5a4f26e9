//! `GET /kms/on-chain/{chain}`

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use cloister_management_api::{OnChainKms, PlainError};

use crate::api::error::{ApiError, ApiResult};
use crate::api::responses::Authenticated;

/// Chains that contracts of key management services can be on.
const CHAINS: [(&str, i64); 2] = [("ethereum", 1), ("base", 8453)];

/// List contracts of key management services on a chain
///
/// There are none: no service of this installation belongs to a contract.
#[utoipa::path(
    get, path = "/kms/on-chain/{chain}", tag = "KMS", operation_id = "get_kms_onchain_detail",
    params(("chain" = String, Path, description = "`ethereum` or `base`, or the chain's number")),
    responses(
        (status = 200, description = "The chain and its contracts", body = OnChainKms),
        (status = 400, description = "That is no chain", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn on_chain(Path(chain): Path<String>) -> ApiResult<Json<OnChainKms>> {
    let is_named = |(name, id): &&(&str, i64)| name.eq_ignore_ascii_case(&chain) || id.to_string() == chain;
    let Some((name, chain_id)) = CHAINS.iter().find(is_named) else {
        return Err(ApiError::plain(StatusCode::BAD_REQUEST, "chain must be ethereum or base"));
    };
    Ok(Json(OnChainKms { chain_name: (*name).to_owned(), chain_id: *chain_id, contracts: Vec::new() }))
}
