//! What applications may cost in a month.

use cloister_app_compose::AppId;
use rust_decimal::Decimal;
use sqlx::FromRow;

use super::billing::{Stored, stored};
use super::{Change, Result, Store};

/// The budget of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetRow {
    /// Whose.
    pub workspace_id: i64,
    /// Application.
    pub app_id: AppId,
    /// Most that a month may cost.
    pub monthly_limit: Decimal,
    /// Share of it, in percent, that is told of.
    pub alert_percent: u32,
    /// The application's CVMs are stopped when it is used up.
    pub stop: bool,
    /// Who set it.
    pub set_by: i64,
    /// When.
    pub updated_at_ms: i64,
    /// The last month in which the alert was told of.
    pub alerted_month: i64,
    /// The last month in which the excess was told of.
    pub exceeded_month: i64,
    /// When it is looked at next.
    pub due_at_ms: i64,
}

/// A budget to be set.
#[derive(Debug, Clone)]
pub struct NewBudget {
    /// Whose.
    pub workspace_id: i64,
    /// Application.
    pub app_id: AppId,
    /// Most that a month may cost.
    pub monthly_limit: Decimal,
    /// Share of it, in percent, that is told of.
    pub alert_percent: u32,
    /// The application's CVMs are stopped when it is used up.
    pub stop: bool,
    /// By whom.
    pub set_by: i64,
}

#[derive(Debug, FromRow)]
struct Columns {
    workspace_id: i64,
    #[sqlx(try_from = "String")]
    app_id: AppId,
    #[sqlx(try_from = "String")]
    monthly_limit: Stored,
    alert_percent: i64,
    stop: i64,
    set_by: i64,
    updated_at_ms: i64,
    alerted_month: i64,
    exceeded_month: i64,
    due_at_ms: i64,
}

impl From<Columns> for BudgetRow {
    fn from(row: Columns) -> Self {
        Self {
            workspace_id: row.workspace_id,
            app_id: row.app_id,
            monthly_limit: row.monthly_limit.0,
            alert_percent: u32::try_from(row.alert_percent).unwrap_or(100),
            stop: row.stop != 0,
            set_by: row.set_by,
            updated_at_ms: row.updated_at_ms,
            alerted_month: row.alerted_month,
            exceeded_month: row.exceeded_month,
            due_at_ms: row.due_at_ms,
        }
    }
}

macro_rules! select_budget {
    ($condition:literal) => {
        concat!(
            "SELECT workspace_id, app_id, monthly_limit, alert_percent, stop, set_by, updated_at_ms, \
             alerted_month, exceeded_month, due_at_ms FROM app_budgets WHERE ",
            $condition
        )
    };
}

const OF_APP: &str = select_budget!("workspace_id = $1 AND app_id = $2");
const DUE: &str = select_budget!("due_at_ms <= $1 ORDER BY due_at_ms, workspace_id, app_id LIMIT $2");
// What was told of is another matter when the threshold is another.
const PUT: &str = "INSERT INTO app_budgets (workspace_id, app_id, monthly_limit, alert_percent, stop, set_by, \
     updated_at_ms, alerted_month, exceeded_month, due_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, 0) \
     ON CONFLICT (workspace_id, app_id) DO UPDATE SET \
     alerted_month = CASE WHEN app_budgets.monthly_limit = excluded.monthly_limit \
         AND app_budgets.alert_percent = excluded.alert_percent THEN app_budgets.alerted_month ELSE 0 END, \
     exceeded_month = CASE WHEN app_budgets.monthly_limit = excluded.monthly_limit \
         THEN app_budgets.exceeded_month ELSE 0 END, \
     monthly_limit = excluded.monthly_limit, alert_percent = excluded.alert_percent, stop = excluded.stop, \
     set_by = excluded.set_by, updated_at_ms = excluded.updated_at_ms, due_at_ms = 0";
const TAKE: &str = "UPDATE app_budgets SET due_at_ms = $3, alerted_month = $4, exceeded_month = $5 \
     WHERE workspace_id = $1 AND app_id = $2 AND due_at_ms = $6 AND alerted_month = $7 AND exceeded_month = $8 \
     AND monthly_limit = $9 AND alert_percent = $10 AND stop = $11";
const SERVING: &str = "SELECT DISTINCT cvm_id FROM usage_intervals WHERE workspace_id = $1 AND app_id = $2 \
     AND usage_type <> 'storage' AND to_ms = 9223372036854775807 ORDER BY cvm_id";

impl Store {
    /// The budget of an application.
    pub async fn budget(&self, workspace_id: i64, app_id: AppId) -> Result<Option<BudgetRow>> {
        let row: Option<Columns> = sqlx::query_as(OF_APP)
            .bind(workspace_id)
            .bind(app_id.to_string())
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(Into::into))
    }

    /// Budgets that are to be looked at, at most so many.
    pub async fn due_budgets(&self, now_ms: i64, limit: i64) -> Result<Vec<BudgetRow>> {
        let rows: Vec<Columns> = sqlx::query_as(DUE).bind(now_ms).bind(limit).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(Into::into).collect())
    }

    /// The CVMs of an application that run up costs beside their disks.
    pub async fn serving_cvms(&self, workspace_id: i64, app_id: AppId) -> Result<Vec<i64>> {
        let ids: Vec<(i64,)> =
            sqlx::query_as(SERVING).bind(workspace_id).bind(app_id.to_string()).fetch_all(&self.pool).await?;
        Ok(ids.into_iter().map(|(id,)| id).collect())
    }
}

impl Change {
    /// Sets the budget of an application.
    pub async fn put_budget(&mut self, new: &NewBudget, now_ms: i64) -> Result<()> {
        self.about(super::Subject::Budget(new.workspace_id, new.app_id)).await?;
        sqlx::query(PUT)
            .bind(new.workspace_id)
            .bind(new.app_id.to_string())
            .bind(stored(new.monthly_limit))
            .bind(i64::from(new.alert_percent))
            .bind(i64::from(new.stop))
            .bind(new.set_by)
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Takes the budget of an application away; whether there was one.
    pub async fn delete_budget(&mut self, workspace_id: i64, app_id: AppId) -> Result<bool> {
        self.about(super::Subject::Budget(workspace_id, app_id)).await?;
        let done = sqlx::query("DELETE FROM app_budgets WHERE workspace_id = $1 AND app_id = $2")
            .bind(workspace_id)
            .bind(app_id.to_string())
            .execute(&mut *self.transaction)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Records what was seen of a budget and when it is looked at again, if it is still as it was read: of several
    /// that read it one gets it.
    pub(crate) async fn take_budget(
        &mut self,
        seen: &BudgetRow,
        alerted_month: i64,
        exceeded_month: i64,
        due_at_ms: i64,
    ) -> Result<bool> {
        let done = sqlx::query(TAKE)
            .bind(seen.workspace_id)
            .bind(seen.app_id.to_string())
            .bind(due_at_ms)
            .bind(alerted_month)
            .bind(exceeded_month)
            .bind(seen.due_at_ms)
            .bind(seen.alerted_month)
            .bind(seen.exceeded_month)
            .bind(stored(seen.monthly_limit))
            .bind(i64::from(seen.alert_percent))
            .bind(i64::from(seen.stop))
            .execute(&mut *self.transaction)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Whether an application is kept stopped in a month because its budget is used up.
    pub(crate) async fn is_stopped_by_budget(
        &mut self,
        workspace_id: i64,
        app_id: AppId,
        month: i64,
    ) -> Result<bool> {
        let row: Option<Columns> = sqlx::query_as(OF_APP)
            .bind(workspace_id)
            .bind(app_id.to_string())
            .fetch_optional(&mut *self.transaction)
            .await?;
        Ok(row.is_some_and(|row| row.stop != 0 && row.exceeded_month == month))
    }
}
