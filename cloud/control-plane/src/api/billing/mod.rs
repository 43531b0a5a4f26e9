//! Who pays, and what there is to pay with.

pub(crate) mod admin;
pub(crate) mod inference;
pub(crate) mod workspace;

use cloister_management_api::{Billing, BillingMonth, Credit, CreditId, WorkspaceId, amount_text};
use jiff::Timestamp;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use super::Api;
use super::error::ApiResult;
use super::view::time;
use crate::billing::Month;
use crate::store::{CreditRow, Funds, UsageScope};

/// Credits that an answer shows.
const SHOWN_CREDITS: i64 = 50;
const HOUR_MS: u32 = 60 * 60 * 1000;

/// How a workspace pays, and what it has.
async fn billing(api: &Api, workspace_id: i64) -> ApiResult<Billing> {
    let now_ms = api.clock.now_ms();
    let scope = UsageScope { workspace_id, app_id: None };
    let month = Month::of(now_ms);
    let funds = api.store.funds(workspace_id, now_ms).await?;
    let cost = api.store.usage_cost(scope, month.window(), now_ms).await?;
    let inference = api.store.inference_cost(workspace_id, month.window()).await?;
    let hourly = api.store.usage_rate(scope).await?;
    let credits = api.store.credits(workspace_id, SHOWN_CREDITS).await?;
    Ok(Billing {
        workspace_id: WorkspaceId(workspace_id),
        currency: api.store.prices().currency().to_owned(),
        is_post_paid: !funds.is_prepaid,
        balance: amount_text(funds.balance()),
        granted_balance: amount_text(funds.granted_balance()),
        outstanding_amount: amount_text(funds.outstanding()),
        credited: amount_text(funds.credited),
        used: amount_text(funds.used),
        month: BillingMonth {
            month: month.name(),
            cost: amount_text(cost.saturating_add(inference)),
            inference_cost: amount_text(inference),
        },
        hourly_rate: amount_text(hourly),
        empty_at: empty_at(&funds, hourly, now_ms),
        can_start: funds.suffice(),
        credits: credits.into_iter().map(shown).collect(),
    })
}

/// When the credit of a prepaid workspace is used up if everything goes on as it is.
fn empty_at(funds: &Funds, hourly: Decimal, now_ms: i64) -> Option<Timestamp> {
    if !funds.is_prepaid || hourly <= Decimal::ZERO {
        return None;
    }
    let hours = funds.balance().max(Decimal::ZERO).checked_div(hourly)?;
    let ms = hours.checked_mul(Decimal::from(HOUR_MS))?.to_i64()?;
    Timestamp::from_millisecond(now_ms.checked_add(ms)?).ok()
}

fn shown(row: CreditRow) -> Credit {
    Credit {
        id: CreditId(row.id),
        kind: row.kind,
        amount: amount_text(row.amount),
        reason: row.reason,
        idempotency_key: row.idempotency_key,
        created_at: time(row.created_at_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_lasts_as_long_as_it_is_more_than_what_runs_costs() {
        let funds = |credited: i64, used: i64| Funds {
            is_prepaid: true,
            credited: Decimal::from(credited),
            granted: Decimal::ZERO,
            used: Decimal::from(used),
        };
        let hours = |funds: &Funds, hourly: i64| {
            empty_at(funds, Decimal::from(hourly), 0).map(|at| at.as_second() / 3600)
        };
        assert_eq!(hours(&funds(10, 4), 2), Some(3));
        assert_eq!(hours(&funds(4, 10), 2), Some(0));
        assert_eq!(hours(&funds(10, 4), 0), None);
        assert_eq!(hours(&Funds { is_prepaid: false, ..funds(10, 4) }, 2), None);
        // Longer than calendars go.
        let tiny = Decimal::new(1, 9);
        assert_eq!(empty_at(&funds(999_999_999, 0), tiny, 0), None);
    }
}
