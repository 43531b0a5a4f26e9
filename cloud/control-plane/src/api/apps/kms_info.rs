//! `GET /apps/{app_id}/kms-info`

use axum::Json;
use axum::extract::State;
use cloister_management_api::{AppGovernance, DeployerType, PlainError};

use super::own::OwnApp;
use crate::api::Api;
use crate::api::auth::Auth;
use crate::api::error::ApiResult;
use crate::api::governance::{Subject, chain_reads, hex_address};
use crate::api::responses::Authenticated;
use crate::governance::{Address, Governance};

/// Get who decides about an application
///
/// Its contract and the owner of that, as the chain says now. The owner is null while the chain cannot be asked.
#[utoipa::path(
    get, path = "/apps/{app_id}/kms-info", tag = "Apps", operation_id = "get_app_kms_info",
    params(("app_id" = String, Path, description = "App id, with or without `0x` or `app_`")),
    responses(
        (status = 200, description = "The contracts, or `is_onchain_kms: false` where none decides", body = AppGovernance),
        (status = 404, description = "The workspace has no such application", body = PlainError),
        (status = 429, description = "The workspace asks too often at the same time", body = PlainError),
        Authenticated,
    ),
)]
pub(crate) async fn kms_info(
    State(api): State<Api>,
    Auth(caller): Auth,
    app: OwnApp,
) -> ApiResult<Json<AppGovernance>> {
    let _turn = chain_reads(&api, &caller)?;
    let subject = Subject::of_app(&api, &caller, app.app_id).await?;
    let Governance::Contract(contract) = subject.governance else {
        return Ok(Json(AppGovernance::default()));
    };
    let said = api.contracts.app(contract, app.app_id).await;
    if let Err(error) = &said {
        tracing::warn!(app_id = %app.app_id, %error, "the contract of an application cannot be asked");
    }
    let said = said.ok();
    let owner = said.as_ref().and_then(|app| app.owner);
    let is_contract = said.is_some_and(|app| app.owner_is_contract) && owner.is_some();
    let deployer_type = match owner {
        None => None,
        Some(owner) if is_contract => Some(kind_of_contract(&api, contract.chain_id, owner).await),
        Some(_) => Some(DeployerType::Eoa),
    };
    Ok(Json(AppGovernance {
        is_onchain_kms: true,
        chain_id: Some(contract.wire_chain_id()),
        kms_contract_address: Some(contract.hex_address()),
        app_contract_address: Some(subject.contract()),
        deployer_address: owner.as_ref().map(hex_address),
        deployer_type,
        is_contract,
        safe_app_url: None,
    }))
}

/// What the contract is that owns another one. A chain that does not say leaves it a contract.
async fn kind_of_contract(api: &Api, chain_id: u64, owner: Address) -> DeployerType {
    match api.contracts.is_safe(chain_id, owner).await {
        Ok(true) => DeployerType::Safe,
        Ok(false) => DeployerType::Contract,
        Err(error) => {
            tracing::warn!(%error, "the owner of a contract cannot be asked what it is");
            DeployerType::Contract
        }
    }
}
