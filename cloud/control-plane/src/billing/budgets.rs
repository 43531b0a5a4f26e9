//! Watches what applications cost in a month.
//!
//! A threshold is told of once in a month: the event is written in the transaction that notes it. An application with
//! `stop` whose budget is used up is kept stopped until the month ends or the budget is raised or removed: every look
//! has those of its CVMs stopped that run up costs.

use std::error::Error;

use cloister_management_api::{BudgetState, amount_text};
use cloister_webhooks::{BudgetData, EventKind};
use rust_decimal::Decimal;
use tracing::{info, warn};

use super::Month;
use crate::App;
use crate::audit::{self, System};
use crate::operations::{CvmStatus, LifecycleRequest, OperationKind, RequestError};
use crate::store::{BudgetRow, StoreError, UsageScope};
use crate::webhooks::{Emission, EmitError, Subject, emit};

/// How long after a look at a budget the next one is.
const LOOK_AGAIN_MS: i64 = 60 * 1000;
/// Budgets of a round; the next round takes the next ones.
const BATCH: i64 = 200;

/// Looks at the budgets that are due. One that fails does not hold up the others.
pub(super) async fn round(app: &App) -> Result<(), StoreError> {
    let due = app.store.due_budgets(app.clock.now_ms(), BATCH).await?;
    for budget in &due {
        if let Err(error) = look(app, budget).await {
            let app_id = budget.app_id.to_string();
            warn!(app_id, error = &error as &dyn Error, "a budget could not be looked at");
        }
    }
    Ok(())
}

/// What an application cost in a month, and how that stands against its budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) month: Month,
    pub(crate) spent: Decimal,
    pub(crate) state: BudgetState,
}

/// How a budget stands now.
pub(crate) async fn standing(app: &App, budget: &BudgetRow) -> Result<Standing, StoreError> {
    let now_ms = app.clock.now_ms();
    let month = Month::of(now_ms);
    let scope = UsageScope { workspace_id: budget.workspace_id, app_id: Some(budget.app_id) };
    let spent = app.store.usage_cost(scope, month.window(), now_ms).await?;
    Ok(Standing { month, spent, state: state(budget, spent) })
}

fn state(budget: &BudgetRow, spent: Decimal) -> BudgetState {
    let share = Decimal::from(budget.alert_percent) / Decimal::from(100);
    if spent >= budget.monthly_limit {
        BudgetState::Exceeded
    } else if spent >= budget.monthly_limit.saturating_mul(share) {
        BudgetState::Alert
    } else {
        BudgetState::Ok
    }
}

async fn look(app: &App, budget: &BudgetRow) -> Result<(), EmitError> {
    let now = standing(app, budget).await?;
    let month = now.month.number();
    let (is_alert, is_exceeded) = match now.state {
        BudgetState::Ok => (false, false),
        BudgetState::Alert => (true, false),
        BudgetState::Exceeded => (true, true),
    };
    // What was told of stays told of: a clock that steps back tells nothing twice.
    let told = |before: i64, reached: bool| if reached { before.max(month) } else { before };
    let (alerted, exceeded) =
        (told(budget.alerted_month, is_alert), told(budget.exceeded_month, is_exceeded));
    let now_ms = app.clock.now_ms();
    let mut change = app.store.change().await?;
    change.lock_workspace(budget.workspace_id).await?;
    if !change.take_budget(budget, alerted, exceeded, now_ms.saturating_add(LOOK_AGAIN_MS)).await? {
        return Ok(());
    }
    let thresholds = [
        (EventKind::BudgetAlert, alerted > budget.alerted_month, budget.alert_percent),
        (EventKind::BudgetExceeded, exceeded > budget.exceeded_month, 100),
    ];
    for (kind, is_new, percent) in thresholds {
        if is_new {
            emit(&mut change, app.random, &emission(budget, &now, kind, percent), now_ms).await?;
            info!(app_id = %budget.app_id, event = kind.as_str(), "an application reached a share of its budget");
        }
    }
    change.commit().await?;
    if budget.stop && is_exceeded {
        let work = stop_cvms(app, budget);
        audit::as_system(System::Budget, ("stop_cvm", "cvm"), budget.workspace_id, &app.clock, work).await?;
    }
    Ok(())
}

fn emission(budget: &BudgetRow, now: &Standing, kind: EventKind, percent: u32) -> Emission {
    let data = BudgetData {
        app_id: format!("0x{}", budget.app_id),
        month: now.month.name(),
        monthly_limit: amount_text(budget.monthly_limit),
        spent: amount_text(now.spent),
        percent,
        stop: budget.stop && kind == EventKind::BudgetExceeded,
    };
    Emission {
        workspace_id: budget.workspace_id,
        kind,
        subject: Subject::App(budget.app_id),
        operation: None,
        data: serde_json::to_value(data).unwrap_or_default(),
    }
}

/// Has the CVMs of an application stopped that run up costs. Those that an operation works on are left to the next
/// look.
async fn stop_cvms(app: &App, budget: &BudgetRow) -> Result<(), StoreError> {
    for id in app.store.serving_cvms(budget.workspace_id, budget.app_id).await? {
        let Some(cvm) = app.store.cvm(id).await? else { continue };
        let kind = match cvm.status {
            CvmStatus::Running => OperationKind::Shutdown,
            // Its guest did not end by itself, or is not asked any more.
            CvmStatus::Error => OperationKind::PowerOff,
            _ => continue,
        };
        let request = LifecycleRequest { kind, force: false };
        match app.lifecycle.request(id, request, budget.set_by).await {
            Ok(_) => info!(cvm_id = id, "a CVM is stopped because of its application's budget"),
            Err(RequestError::Store(error)) => return Err(error),
            Err(error) => {
                warn!(cvm_id = id, error = &error as &dyn Error, "a CVM cannot be stopped yet");
            }
        }
    }
    Ok(())
}
