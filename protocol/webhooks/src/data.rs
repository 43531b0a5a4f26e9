//! What is told of each kind of event: the member `data` of the body.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What happened to a CVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CvmEventData)]
pub struct CvmData {
    /// UUID of the CVM, with dashes.
    #[schema(format = "uuid")]
    pub cvm_id: String,
    /// Its name.
    pub cvm_name: String,
    /// Its application: `0x` and 40 hexadecimal digits.
    #[schema(pattern = "^0x[0-9a-f]{40}$")]
    pub app_id: String,
    /// Its status after the event, such as `running`; `deleted` when it is gone.
    pub status: String,
    /// Why it failed, in words for people; only in events of failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A change that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PendingApprovalEventData)]
pub struct PendingApprovalData {
    /// UUID of the CVM that is to be changed, or that the further one is to be like.
    #[schema(format = "uuid")]
    pub cvm_id: String,
    /// Its name.
    pub cvm_name: String,
    /// Hash of the compose document that has to be allowed: 64 hexadecimal digits.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub compose_hash: String,
    /// The application: `0x` and 40 hexadecimal digits.
    #[schema(pattern = "^0x[0-9a-f]{40}$")]
    pub app_id: String,
    /// The device that has to be allowed, 64 hexadecimal digits; empty where any device may run it.
    #[schema(pattern = "^([0-9a-f]{64})?$")]
    pub device_id: String,
    /// The contract that decides for the key management service; null where owners decide by signatures.
    #[schema(required)]
    pub kms: Option<Kms>,
    /// The first call that would allow the change; null when none is needed, or none is on a chain.
    #[schema(required)]
    pub onchain_action: Option<OnchainAction>,
    /// All calls that are needed.
    pub onchain_actions: Vec<OnchainAction>,
    /// What the change is committed with: treat it as a password.
    #[schema(format = "uuid")]
    pub commit_token: String,
    /// Page for people that commits the change.
    #[schema(format = "uri")]
    pub commit_url: String,
    /// Call for programs that commits the change.
    #[schema(format = "uri")]
    pub api_commit_url: String,
    /// Until when it can be committed.
    #[schema(format = "date-time")]
    pub expires_at: String,
    /// Who asked for it.
    pub initiated_by: Initiator,
}

/// The contract of a key management service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EventKms)]
pub struct Kms {
    /// Number of the chain.
    pub chain_id: u64,
    /// Address of the contract.
    #[schema(pattern = "^0x[0-9a-f]{40}$")]
    pub contract_address: String,
}

/// A call of an application's contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EventOnchainAction)]
pub struct OnchainAction {
    /// Address of the contract.
    #[schema(pattern = "^0x[0-9a-f]{40}$")]
    pub to: String,
    /// Function that is called.
    pub method: String,
    /// What it is called with, `0x` and hexadecimal digits.
    #[schema(pattern = "^0x[0-9a-f]*$")]
    pub calldata: String,
}

/// Who asked for a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EventInitiator)]
pub struct Initiator {
    /// Id of the user.
    #[schema(pattern = "^usr_")]
    pub user_id: String,
    /// Login name of the user.
    pub username: String,
}

/// What an application cost this month, against its budget. Amounts are exact decimals in US dollars.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BudgetEventData)]
pub struct BudgetData {
    /// The application: `0x` and 40 hexadecimal digits.
    #[schema(pattern = "^0x[0-9a-f]{40}$")]
    pub app_id: String,
    /// The month, as `YYYY-MM` in UTC.
    #[schema(pattern = "^[0-9]{4}-[0-9]{2}$")]
    pub month: String,
    /// Budget of a month.
    #[schema(pattern = "^[0-9]+(\\.[0-9]+)?$")]
    pub monthly_limit: String,
    /// What it cost in this month so far.
    #[schema(pattern = "^[0-9]+(\\.[0-9]+)?$")]
    pub spent: String,
    /// Share of the budget, in percent, that was passed.
    pub percent: u32,
    /// Whether the CVMs of the application are being stopped for it.
    pub stop: bool,
}
