//! What has to be so before an application under a contract gets a CVM.

use cloister_app_compose::{AppId, ComposeHash, OsImageHash};
use cloister_contracts::abi::Kms;
use cloister_contracts::{B256, SolEvent};
use cloister_management_api::{CreateCvmRequest, ErrorCode, OnChainStatus};
use serde_json::json;

use crate::api::Api;
use crate::api::approvals::cannot_tell;
use crate::api::error::{ApiError, ApiResult};
use crate::governance::{
    self, Address, AllowedBy, CannotTell, ContractReceipt, KmsQuestion, LOOKS, PAUSE, Question, ReceiptLog,
    Standing, needed,
};
use crate::kms::KmsContract;
use crate::store::ProvisionRow;

/// A CVM that is to be made.
struct Wanted<'a> {
    api: &'a Api,
    provision: &'a ProvisionRow,
    contract: KmsContract,
    app_id: AppId,
    device_id: [u8; 32],
}

/// What keeps it from being made, as the chain is now.
enum Obstacle {
    /// Nothing is at its address.
    Undeployed,
    /// The contract of the service does not know it.
    Unregistered,
    /// It does not allow the document, the device or both.
    Refuses(Standing),
}

/// Refuses a CVM unless its application's contract is registered with the contract of the key management service and
/// allows the document on the node's device, and the latter allows the image.
pub(super) async fn check(
    api: &Api,
    provision: &ProvisionRow,
    contract: KmsContract,
    request: &CreateCvmRequest,
) -> ApiResult<()> {
    let app_id = request.app_id.0;
    if provision.awaits_contract == 0 && provision.app_id != app_id {
        let message = format!("app_id must be the provisioned 0x{}", provision.app_id);
        return Err(ApiError::explained(ErrorCode::IncompatibleParameters, message)
            .about("app_id", app_id.to_string()));
    }
    check_contract_address(app_id, request.contract_address.as_deref())?;
    let deployer = deployer(request.deployer_address.as_deref())?;
    let allowed_by = AllowedBy::parse(request.transaction_hash.as_deref().unwrap_or_default());
    let allowed_by =
        allowed_by.map_err(|error| ApiError::explained(ErrorCode::TransactionInvalid, error.to_string()))?;
    let device_id = device_of(api, provision).await?;
    let wanted = Wanted { api, provision, contract, app_id, device_id };
    if let AllowedBy::Transaction(hash) = allowed_by {
        wanted.check_transaction(hash, deployer).await?;
    }
    wanted.check_state().await?;
    check_image(api, contract, provision.os_image_hash, &provision.os_image_name).await
}

/// Refuses an image on which the contract lets no application have keys.
pub(crate) async fn check_image(
    api: &Api,
    contract: KmsContract,
    os_image_hash: OsImageHash,
    name: &str,
) -> ApiResult<()> {
    let question = KmsQuestion { os_images: vec![*os_image_hash.as_bytes()], ..KmsQuestion::default() };
    let said = api.contracts.kms(contract, question).await.map_err(cannot_tell)?;
    if said.os_images.first() == Some(&true) {
        return Ok(());
    }
    let (address, chain_id) = (contract.hex_address(), contract.chain_id);
    let message = format!(
        "KMS contract {address} on chain {chain_id} does not allow this image: CVMs would get no keys with it"
    );
    Err(ApiError::explained(ErrorCode::NoCompatibleImage, message).about("image", name).suggest(format!(
        "Choose another image, or have the contract's owner call addOsImageHash(0x{os_image_hash})"
    )))
}

/// The device that the CVM would run on.
async fn device_of(api: &Api, provision: &ProvisionRow) -> ApiResult<[u8; 32]> {
    let now = governance::device_of_node(&api.store, provision.node_id).await?;
    let provisioned = || crate::api::governance::device_bytes(provision.device_id.as_deref()?);
    now.or_else(provisioned).ok_or_else(|| unproved(provision.node_id))
}

/// Why nothing can be made for a contract on this node.
pub(crate) fn unproved(node_id: i64) -> ApiError {
    let message =
        "the node has not proved which device it is, so that no contract can allow it; name another node";
    ApiError::explained(ErrorCode::NodeNotAccessible, message).about("teepod_id", node_id)
}

/// Clients name the application twice.
fn check_contract_address(app_id: AppId, named: Option<&str>) -> ApiResult<()> {
    match named.filter(|text| !text.is_empty()) {
        Some(text) if text.parse() != Ok(app_id) => {
            let message =
                "contract_address and app_id name two contracts; an application's id is its contract";
            Err(ApiError::explained(ErrorCode::IncompatibleParameters, message)
                .about("contract_address", text))
        }
        _ => Ok(()),
    }
}

fn deployer(named: Option<&str>) -> ApiResult<Option<Address>> {
    let Some(text) = named.filter(|text| !text.is_empty()) else { return Ok(None) };
    let address: Result<AppId, _> = text.parse();
    let address = address.map_err(|_| {
        let message = "deployer_address must have 40 hex digits";
        ApiError::explained(ErrorCode::InvalidParameter, message).about("deployer_address", text)
    })?;
    Ok(Some(*address.as_bytes()))
}

impl Wanted<'_> {
    const fn compose_hash(&self) -> ComposeHash {
        self.provision.compose_hash
    }

    const fn question(&self) -> Question {
        Question { compose_hash: self.compose_hash(), device_id: Some(self.device_id) }
    }

    /// Refuses a transaction that did not make or register this application.
    async fn check_transaction(&self, hash: [u8; 32], deployer: Option<Address>) -> ApiResult<()> {
        let chain_id = self.contract.chain_id;
        let mut receipt = None;
        for look in 0..LOOKS {
            if look > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            receipt = self.api.contracts.receipt(chain_id, hash).await.map_err(cannot_tell)?;
            if receipt.is_some() {
                break;
            }
        }
        let why = match &receipt {
            None => {
                "the chain has no such transaction in a confirmed block (yet); wait for its confirmations and \
                     repeat the request"
            }
            Some(receipt) if !receipt.succeeded => {
                "the transaction was reverted: it changed nothing; send it again with what it needs"
            }
            Some(receipt) if made(receipt, self.contract.address, *self.app_id.as_bytes(), deployer) => {
                return Ok(());
            }
            Some(_) => {
                "the transaction neither deployed nor registered this application at the contract of the key \
                 management service, or somebody else than the deployer did"
            }
        };
        let shown = format!("0x{}", hex::encode(hash));
        Err(ApiError::explained(ErrorCode::TransactionInvalid, why).about("transaction_hash", shown))
    }

    /// Refuses what the chain does not allow. The endpoint that answers may be behind the one that a transaction was
    /// sent through, so that a refusal counts only when it lasts.
    async fn check_state(&self) -> ApiResult<()> {
        let mut obstacle = self.look().await?;
        for _ in 1..LOOKS {
            if obstacle.is_none() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            obstacle = self.look().await?;
        }
        obstacle.map_or(Ok(()), |obstacle| Err(self.denied(&obstacle)))
    }

    async fn look(&self) -> ApiResult<Option<Obstacle>> {
        let contracts = &self.api.contracts;
        let (app, standings) = tokio::join!(
            contracts.app(self.contract, self.app_id),
            contracts.standings(self.contract.chain_id, self.app_id, vec![self.question()]),
        );
        match app {
            Err(CannotTell::NoContract { .. }) => return Ok(Some(Obstacle::Undeployed)),
            Err(error) => return Err(cannot_tell(error)),
            Ok(app) if !app.is_registered => return Ok(Some(Obstacle::Unregistered)),
            Ok(_) => {}
        }
        let standing = match standings {
            Err(CannotTell::NoContract { .. }) => return Ok(Some(Obstacle::Undeployed)),
            Err(error) => return Err(cannot_tell(error)),
            Ok(standings) => standings.first().copied().unwrap_or_default(),
        };
        Ok((!standing.is_allowed(true)).then_some(Obstacle::Refuses(standing)))
    }

    fn denied(&self, obstacle: &Obstacle) -> ApiError {
        let (app, kms) = (format!("0x{}", self.app_id), self.contract.hex_address());
        let chain = self.contract.chain_id;
        let nothing = Standing::default();
        let (message, remedy, standing) = match obstacle {
            Obstacle::Undeployed => (
                format!("there is no contract at {app} on chain {chain}"),
                format!(
                    "Deploy it with deployAndRegisterApp at KMS contract {kms}; its address is the app_id"
                ),
                &nothing,
            ),
            Obstacle::Unregistered => (
                format!("contract {app} is not registered at KMS contract {kms} on chain {chain}"),
                format!("Call registerApp({app}) at {kms}; anybody may"),
                &nothing,
            ),
            Obstacle::Refuses(standing) => {
                let calls = needed(&self.question(), *standing);
                let calls =
                    calls.iter().map(|call| format!("{}(0x{})", call.method, hex::encode(call.argument)));
                let calls = calls.collect::<Vec<_>>().join(" and ");
                (
                    format!("contract {app} on chain {chain} does not allow this document on this device"),
                    format!("Have the contract's owner call {calls}, then repeat the request"),
                    standing,
                )
            }
        };
        let kms_info = self.provision.kms_id.and_then(|id| self.api.kmses.get(id)).map(|kms| kms.info());
        let status = OnChainStatus {
            compose_hash_allowed: standing.compose_hash_allowed,
            device_id_allowed: standing.device_id_allowed,
            is_allowed: standing.is_allowed(true),
        };
        ApiError::explained(ErrorCode::HashDenied, message)
            .about("compose_hash", self.compose_hash().to_string())
            .about("app_id", self.app_id.to_string())
            .about("device_id", hex::encode(self.device_id))
            .about("kms_info", json!(kms_info))
            .about("onchain_status", json!(status))
            .suggest(remedy)
    }
}

/// Whether a transaction made an application at the contract of a key management service, by the account or wallet
/// that is said to have deployed it, or registered one that was there.
fn made(receipt: &ContractReceipt, kms: Address, app: Address, deployer: Option<Address>) -> bool {
    let logs = || receipt.logs.iter().filter(|log| log.address == kms);
    let makers: Vec<Address> = logs()
        .filter_map(decode::<Kms::AppDeployedViaFactory>)
        .filter(|event| event.appId.0 == app)
        .map(|event| *event.deployer.0)
        .collect();
    if makers.is_empty() {
        return logs().filter_map(decode::<Kms::AppRegistered>).any(|event| event.appId.0 == app);
    }
    deployer.is_none_or(|named| named == receipt.from || makers.contains(&named))
}

fn decode<E: SolEvent>(log: &ReceiptLog) -> Option<E> {
    E::decode_raw_log_validate(log.topics.iter().map(|topic| B256::from(*topic)), &log.data).ok()
}
