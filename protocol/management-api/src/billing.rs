//! What is used, what it costs, and who pays.

use cloister_app_compose::{AppId, members};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amounts::{Amount, Money};
use crate::ids::{CreditId, TokenId, WorkspaceId};
use crate::requests::GpuConfig;

/// What a CVM used of one kind in one hour (specification, 2.8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageRecord {
    /// UUID of the CVM.
    pub instance_id: String,
    /// Number of the project; a workspace has one, with its own number.
    pub project_id: i64,
    /// Number of the workspace.
    pub team_id: i64,
    /// Until when the record tells of the hour.
    #[schema(value_type = String, format = DateTime)]
    pub timestamp: Timestamp,
    /// Always `usage`.
    pub event_type: String,
    /// What it costs.
    #[schema(value_type = f64)]
    pub cost: Money,
    /// JSON text: what was used for how many minutes at which rate.
    pub details: String,
    /// `compute`, `gpu` or `storage`.
    pub usage_type: String,
    /// When the first minute began.
    #[schema(value_type = String, format = DateTime)]
    pub billing_start: Timestamp,
    /// When the last minute ended.
    #[schema(value_type = String, format = DateTime)]
    pub billing_end: Timestamp,
    /// Minutes that were used, 1 to 60.
    pub duration_minutes: i64,
    /// Names the record for ever: importing it again changes nothing.
    pub billing_key: String,
    /// The hour.
    pub billing_hour: String,
    /// The day.
    pub billing_day: String,
}

/// `GET /apps/{app_id}/usage`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppUsage {
    /// Records of the page, newest hour first.
    pub usage: Vec<UsageRecord>,
    /// Records of the whole window.
    pub total: u64,
    /// What all of them cost.
    #[schema(value_type = f64)]
    pub total_cost: Money,
}

/// How a workspace pays, and what it has. Amounts are exact decimal texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Billing {
    /// Whose.
    pub workspace_id: WorkspaceId,
    /// Code of the currency of every amount, such as `USD`.
    pub currency: String,
    /// Whether it pays afterwards. A workspace that does not starts nothing without credit.
    pub is_post_paid: bool,
    /// Credit that is left; below zero it is what is owed.
    pub balance: String,
    /// The part of it that was granted. It is used up first.
    pub granted_balance: String,
    /// What is owed, `0` where nothing is.
    pub outstanding_amount: String,
    /// All that was ever credited.
    pub credited: String,
    /// All that was ever used.
    pub used: String,
    /// The running month in UTC.
    pub month: BillingMonth,
    /// What everything that runs or is kept now costs in an hour.
    pub hourly_rate: String,
    /// When the credit is used up if that goes on; null for post-paid workspaces and where nothing costs anything.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub empty_at: Option<Timestamp>,
    /// Whether CVMs can be created and started.
    pub can_start: bool,
    /// The newest credits, newest first, at most 50.
    pub credits: Vec<Credit>,
}

/// A month's costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BillingMonth {
    /// Which, such as `2026-11`.
    pub month: String,
    /// What was used in it so far, inference included.
    pub cost: String,
    /// The part of it that inference cost.
    pub inference_cost: String,
}

/// What an API key used of a model in an hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InferenceUsageRecord {
    /// When the hour began (UTC).
    #[schema(value_type = String, format = DateTime)]
    pub hour: Timestamp,
    /// The model that was asked for.
    pub model: String,
    /// The key that asked.
    #[schema(value_type = String)]
    pub token_id: TokenId,
    /// Its name.
    pub token_name: String,
    /// Requests that were answered.
    pub requests: i64,
    /// Attempts that were not. A request is tried more than once where it has several routes.
    pub failed_attempts: i64,
    /// Tokens that were sent.
    pub prompt_tokens: i64,
    /// Tokens that came back.
    pub completion_tokens: i64,
    /// What they cost, exact decimal text.
    pub cost: String,
}

/// `GET /workspace/inference-usage`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InferenceUsage {
    /// Records of the page, newest hour first.
    pub usage: Vec<InferenceUsageRecord>,
    /// Records of the whole window.
    pub total: i64,
    /// What all of them cost, exact decimal text.
    pub total_cost: String,
    /// Code of the currency of every amount, such as `USD`.
    pub currency: String,
}

/// Why an amount was credited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CreditKind {
    /// It was paid.
    Payment,
    /// It was given.
    Grant,
    /// An earlier entry was wrong; the only kind that may be negative.
    Correction,
}

impl CreditKind {
    const ALL: [(&'static str, Self); 3] =
        [("payment", Self::Payment), ("grant", Self::Grant), ("correction", Self::Correction)];

    /// Name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// No credit is of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Input should be 'payment', 'grant' or 'correction'")]
pub struct NotACreditKind;

impl std::str::FromStr for CreditKind {
    type Err = NotACreditKind;

    fn from_str(text: &str) -> Result<Self, NotACreditKind> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, kind)| *kind).ok_or(NotACreditKind)
    }
}

impl cloister_app_compose::decode::Decode for CreditKind {
    fn decode(value: &serde_json::Value, reader: &mut cloister_app_compose::decode::Reader) -> Option<Self> {
        cloister_app_compose::decode::parsed(value, reader)
    }
}

/// An entry of a workspace's ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Credit {
    /// Id.
    pub id: CreditId,
    /// Why.
    pub kind: CreditKind,
    /// How much, exact decimal text.
    pub amount: String,
    /// What for, in words.
    pub reason: String,
    /// The key under which it can be sent again without being credited twice.
    pub idempotency_key: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

members! {
    /// Body of `POST /admin/workspaces/{workspace}/credits`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct CreditRequest {
        /// How much: a decimal text or a number.
        #[schema(value_type = String, example = "50.00")]
        pub amount: Amount,
        /// Why; a payment if left out.
        #[schema(required = false)]
        pub kind: Option<CreditKind>,
        /// What for, in words, 1 to 500 characters.
        #[schema(example = "invoice 2026-11")]
        pub reason: String,
        /// The same key credits once, however often it is sent; 1 to 100 printable characters.
        #[schema(example = "invoice-2026-11")]
        pub idempotency_key: String,
    }
}

members! {
    /// Body of `PUT /admin/workspaces/{workspace}/billing`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct BillingModeRequest {
        /// Whether the workspace has to have credit before it starts anything.
        pub prepaid: bool,
    }
}

/// How an application's costs of the running month stand against its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BudgetState {
    /// Below the share for alerts.
    Ok,
    /// The share for alerts is reached.
    Alert,
    /// All of it is used.
    Exceeded,
}

/// What an application may cost in a month. Amounts are exact decimal texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppBudget {
    /// Application.
    #[schema(value_type = String)]
    pub app_id: AppId,
    /// Code of the currency of every amount.
    pub currency: String,
    /// Most that a month may cost.
    pub monthly_limit: String,
    /// Share of it, in percent, at which `app.budget.alert` is told.
    pub alert_percent: u32,
    /// Whether the CVMs of the application are stopped, and kept so, when a month costs more.
    pub stop: bool,
    /// The running month in UTC, such as `2026-11`.
    pub month: String,
    /// What it cost so far.
    pub spent: String,
    /// How that stands.
    pub state: BudgetState,
    /// When the budget was set.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

members! {
    /// Body of `PUT /apps/{app_id}/budget`.
    #[derive(Debug, Clone, PartialEq, Eq, ToSchema)]
    pub struct AppBudgetRequest {
        /// Most that a month may cost, above zero: a decimal text or a number.
        #[schema(value_type = String, example = "100.00")]
        pub monthly_limit: Amount,
        /// Share of it, in percent, at which `app.budget.alert` is told, 1 to 99.
        #[schema(minimum = 1, maximum = 99, default = 80)]
        #[schema(required = false)]
        pub alert_percent: u32 = 80,
        /// Whether the CVMs of the application are stopped, and kept so, when a month costs more.
        #[schema(default = false)]
        #[schema(required = false)]
        pub stop: bool = false,
    }
}

members! {
    /// Body of `POST /cvms/estimate`: the members of a provision that say how large it is.
    #[derive(Debug, Clone, PartialEq, ToSchema)]
    pub struct EstimateRequest {
        /// Size from the catalogue; the usual one if left out.
        #[schema(required = false, example = "tdx.small")]
        pub instance_type: Option<String>,
        /// Virtual CPUs instead of the size's.
        pub vcpu: Option<u32>,
        /// Memory in MiB instead of the size's.
        pub memory: Option<u32>,
        /// Data disk in GiB instead of the size's.
        pub disk_size: Option<u32>,
        /// GPUs instead of the size's.
        pub gpus: Option<GpuConfig>,
        /// How many such CVMs, 1 to 1000.
        #[schema(minimum = 1, maximum = 1000, default = 1)]
        #[schema(required = false)]
        pub count: u32 = 1,
    }
}

/// What CVMs of a size would cost. Amounts are exact decimal texts; a month has 730 hours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Estimate {
    /// Code of the currency of every amount.
    pub currency: String,
    /// Size from the catalogue, if it is one.
    pub instance_type: Option<String>,
    /// Virtual CPUs of each.
    pub vcpu: u32,
    /// Memory of each in MiB.
    pub memory_mb: u32,
    /// Data disk of each in GiB.
    pub disk_gb: u32,
    /// GPUs of each.
    pub gpu_count: u32,
    /// How many CVMs.
    pub count: u32,
    /// What makes up the costs of all of them.
    pub parts: Vec<EstimatePart>,
    /// All of it while they run.
    pub hourly: String,
    /// The same for a day.
    pub daily: String,
    /// The same for a month.
    pub monthly: String,
    /// What a month costs in which they are stopped throughout: their disks.
    pub monthly_while_stopped: String,
}

/// A part of the costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EstimatePart {
    /// `compute`, `gpu` or `storage`.
    pub usage_type: String,
    /// What of it, in words.
    pub what: String,
    /// For an hour.
    pub hourly: String,
    /// For a day.
    pub daily: String,
    /// For a month.
    pub monthly: String,
}
