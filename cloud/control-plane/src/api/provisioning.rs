//! Caching a provision: what both kinds of provision share.

use std::sync::Arc;

use cloister_app_compose::{AppCompose, AppId, ComposeError, KeyProvider};
use cloister_management_api::{ErrorCode, KmsContractId, KmsId, ProvisionResponse, SealedEnv};

use super::Api;
use super::cvms::contract_app::unproved;
use super::error::{ApiError, ApiResult};
use super::kms::{Selection, call_error};
use super::placing::Wish;
use crate::kms::Kms;
use crate::store::{Caller, Change, GpuSlots, ProvisionRow};

/// How long a provision can be created from.
pub(crate) const LIFETIME_MS: i64 = 14 * 24 * 60 * 60 * 1000;
/// Expired provisions that are cleared away with each new one.
const CLEARED_AT_ONCE: i64 = 100;
/// Provisions that a workspace may have in the cache.
const MAX_PROVISIONS: i64 = 1_000;
/// Nonces that are tried for an app id that nobody uses.
const MAX_NONCE_ATTEMPTS: usize = 100;

/// A provision that was checked as far as it can be without the store.
pub(crate) struct Draft {
    pub(crate) name: String,
    pub(crate) compose: AppCompose,
    pub(crate) wish: Wish,
    pub(crate) listed: bool,
    /// The app id that it is for.
    pub(crate) app_id: AppIdWish,
    pub(crate) user_config: Option<String>,
    /// Where keys come from, if the document wants any.
    pub(crate) kms: Option<Arc<Kms>>,
    pub(crate) encrypted_env: Option<SealedEnv>,
}

/// Which app id a provision is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppIdWish {
    /// The next one of the workspace's wallet; where a contract decides, that of a contract that is still to be
    /// deployed.
    Next,
    /// The one that the workspace's wallet gives for this nonce.
    OfWallet(AppId, u64),
    /// That of a contract that exists.
    Contract(AppId),
}

impl AppIdWish {
    /// What a request says, for applications with keys from this service.
    pub(crate) fn of(app_id: Option<AppId>, nonce: Option<u64>, kms: Option<&Kms>) -> ApiResult<Self> {
        let is_of_contract = kms.is_some_and(|kms| kms.contract().is_some());
        let message = match (app_id, nonce) {
            (None, None) => return Ok(Self::Next),
            (Some(app_id), Some(nonce)) if !is_of_contract => return Ok(Self::OfWallet(app_id, nonce)),
            (Some(app_id), None) if is_of_contract => return Ok(Self::Contract(app_id)),
            (_, Some(_)) if is_of_contract => {
                "a contract decides for this key management service: app_id is the address of the application's \
                 contract, and no wallet has a nonce for it"
            }
            _ => "app_id and nonce go together",
        };
        Err(ApiError::explained(ErrorCode::IncompatibleParameters, message))
    }
}

/// The service that a document's keys come from: the one that the request means, if the document wants any.
pub(crate) fn kms_of(
    api: &Api,
    compose: &AppCompose,
    selection: Selection<'_>,
) -> ApiResult<Option<Arc<Kms>>> {
    let chosen = selection.choose(&api.kmses)?;
    let wanted = matches!(KeyProvider::of(compose), Ok(KeyProvider::Kms { .. }));
    Ok(chosen.filter(|_| wanted))
}

/// What a sealed environment is answered with where nothing could open it.
pub(crate) fn nothing_opens_it() -> ApiError {
    let message = "no key management service could open encrypted_env for this application; leave it out, or \
                   let the compose document want keys in an installation with a KMS";
    ApiError::explained(ErrorCode::IncompatibleParameters, message)
}

/// Places and caches a provision; repeating it starts its 14 days anew. Nothing is reserved.
///
/// Where a contract decides, the application is the contract: without one that exists, the answer tells the document
/// and the device that its owner has to allow, and the app id is the caller's to bring.
pub(crate) async fn provision(api: &Api, caller: &Caller, mut draft: Draft) -> ApiResult<ProvisionResponse> {
    let is_of_contract = draft.kms.as_ref().is_some_and(|kms| kms.contract().is_some());
    if is_of_contract && draft.wish.image.is_none() {
        // What is worth a contract is not run where its operator can look into it, unless somebody says so.
        draft.wish.prefer_dev.get_or_insert(false);
    }
    if draft.encrypted_env.is_some() && draft.kms.is_none() {
        return Err(nothing_opens_it());
    }
    let placement = draft.wish.place(&api.fleet, api.store.prices()).await?;
    if api.store.cvm_by_name(caller.workspace_id, &draft.name).await?.is_some() {
        return Err(ApiError::coded(ErrorCode::NameTaken).about("name", draft.name));
    }
    if let AppIdWish::OfWallet(app_id, nonce) = draft.app_id {
        check_app_id(api, caller, app_id, nonce).await?;
    }
    let device = api.store.device_of_node(placement.node_id).await?;
    if is_of_contract && device.is_none() {
        return Err(unproved(placement.node_id));
    }
    let (fmspc, device_id) = device.map(|device| (device.fmspc, device.device_id)).unzip();
    let now_ms = api.clock.now_ms();
    let mut change = api.store.change().await?;
    let compose_hash = draft.compose.compose_hash();
    if change.count_other_provisions(caller.workspace_id, compose_hash, now_ms).await? >= MAX_PROVISIONS {
        let message = format!("the workspace has {MAX_PROVISIONS} provisions, which are kept for 14 days");
        return Err(ApiError::explained(ErrorCode::QuotaExceeded, message));
    }
    let app_id = match draft.app_id {
        AppIdWish::OfWallet(app_id, _) | AppIdWish::Contract(app_id) => Some(app_id),
        AppIdWish::Next if is_of_contract => None,
        AppIdWish::Next => Some(free_app_id(api, &mut change, caller, &draft.compose, now_ms).await?),
    };
    let row = ProvisionRow {
        workspace_id: caller.workspace_id,
        compose_hash,
        app_id: app_id.unwrap_or(AppId::from_bytes([0; 20])),
        name: draft.name,
        app_compose: String::from_utf8_lossy(draft.compose.bytes()).into_owned(),
        node_id: placement.node_id,
        os_image_hash: placement.image.os_image_hash,
        os_image_name: placement.image.name,
        instance_type: placement.instance_type,
        vcpu: placement.needs.vcpu,
        memory_mb: placement.needs.memory_mb,
        disk_gb: placement.needs.disk_gb,
        listed: i64::from(draft.listed),
        env_keys: serde_json::json!(draft.compose.members().allowed_envs).to_string(),
        user_config: draft.user_config,
        kms_id: draft.kms.as_ref().map(|kms| kms.id()),
        env_pubkey: None,
        encrypted_env: draft.encrypted_env.map(|env| env.as_hex().to_owned()),
        gpus: GpuSlots(placement.gpus),
        awaits_contract: i64::from(app_id.is_none()),
        device_id: device_id.clone().filter(|_| is_of_contract),
        expires_at_ms: now_ms.saturating_add(LIFETIME_MS),
    };
    change.put_provision(&row).await?;
    change.delete_expired_provisions(now_ms, CLEARED_AT_ONCE).await?;
    change.commit().await?;
    let env_pubkey = match (&draft.kms, app_id) {
        (Some(kms), Some(_)) => Some(env_pubkey(api, kms, &row).await?),
        _ => None,
    };
    Ok(ProvisionResponse {
        compose_hash: row.compose_hash,
        app_id,
        app_env_encrypt_pubkey: env_pubkey,
        kms_info: draft.kms.as_ref().map(|kms| kms.info()),
        fmspc,
        device_id,
        os_image_hash: Some(row.os_image_hash),
        instance_type: row.instance_type,
        teepod_id: Some(row.node_id),
        node_id: Some(row.node_id),
        kms_id: draft.kms.as_ref().map(|kms| KmsId(kms.id()).to_string()),
        kms_contract_id: draft.kms.as_ref().map(|kms| KmsContractId(kms.id()).to_string()),
    })
}

/// The key to seal the environment to. Asked for after the provision is kept, because its app id is certain
/// only then and no transaction may wait for a service; whoever repeats a provision that failed here gets the
/// same app id.
async fn env_pubkey(api: &Api, kms: &Kms, row: &ProvisionRow) -> ApiResult<String> {
    let key = kms.env_public_key(row.app_id).await.map_err(|error| call_error(&error))?;
    let env_pubkey = hex::encode(&key.public_key);
    // The service's answer, not what anybody wanted.
    let mut change = api.store.upkeep().await?;
    change.set_provision_env_pubkey(row, &env_pubkey).await?;
    change.commit().await?;
    Ok(env_pubkey)
}

/// Whether the workspace's wallet gives this app id for this nonce.
async fn check_app_id(api: &Api, caller: &Caller, app_id: AppId, nonce: u64) -> ApiResult<()> {
    let workspace = api.store.workspace(caller.workspace_id).await?;
    let wallet: Option<AppId> = workspace.and_then(|workspace| workspace.wallet.parse().ok());
    match wallet.map(|wallet| AppId::from_wallet(wallet.as_bytes(), nonce)) {
        Some(derived) if derived == app_id => Ok(()),
        _ => Err(ApiError::explained(
            ErrorCode::IncompatibleParameters,
            "app_id is not what the workspace's wallet gives for this nonce",
        )
        .about("app_id", app_id.to_string())),
    }
}

/// The app id of an earlier provision of the same document, else the next free one of the wallet.
async fn free_app_id(
    api: &Api,
    change: &mut Change,
    caller: &Caller,
    compose: &AppCompose,
    now_ms: i64,
) -> ApiResult<AppId> {
    let earlier = change.provision(caller.workspace_id, compose.compose_hash(), now_ms).await?;
    let of_wallet = |earlier: &ProvisionRow| {
        earlier.awaits_contract == 0 && !earlier.kms_id.is_some_and(|id| api.kmses.is_of_contract(id))
    };
    if let Some(earlier) = earlier.filter(of_wallet)
        && !change.app_in_use(earlier.app_id).await?
    {
        return Ok(earlier.app_id);
    }
    for _ in 0..MAX_NONCE_ATTEMPTS {
        let (wallet, nonce) = change.take_app_nonce(caller.workspace_id).await?;
        let derived = wallet.parse::<AppId>().ok().zip(u64::try_from(nonce).ok());
        let Some(app_id) = derived.map(|(wallet, nonce)| AppId::from_wallet(wallet.as_bytes(), nonce)) else {
            break;
        };
        if !change.app_in_use(app_id).await? {
            return Ok(app_id);
        }
    }
    tracing::error!(workspace_id = caller.workspace_id, "the workspace's wallet gives no free app id");
    Err(ApiError::unexpected())
}

/// Why a compose document was refused, in the words of the catalogue.
pub(crate) fn compose_error(error: ComposeError) -> ApiError {
    match error {
        ComposeError::Members(mut faults) => {
            for fault in &mut faults {
                fault.loc.splice(..0, ["body".to_owned(), "compose_file".to_owned()]);
            }
            ApiError::faults(faults)
        }
        ComposeError::MissingProgram(_) => ApiError::explained(ErrorCode::ComposeMissing, error.to_string()),
        other => ApiError::explained(ErrorCode::ComposeInvalid, other.to_string()),
    }
}
