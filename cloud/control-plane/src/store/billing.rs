//! Who pays: the ledger of credits, and what they are set against.

use cloister_management_api::CreditKind;
use cloister_metering::{Span, Tally, UsageType, Window};
use futures_util::TryStreamExt;
use rust_decimal::Decimal;
use sqlx::{Any, Executor, FromRow};

use super::{Change, Result, Store, StoreError};

const HOUR_MS: i64 = 60 * 60 * 1000;
/// What is younger is not settled: a node may tell late that a CVM has ended.
pub const SETTLED_AFTER_MS: i64 = 48 * HOUR_MS;
/// Meters that end this long before now may end in what is settled. Half of the other, so that clocks of control
/// planes may differ.
const LATE_MS: i64 = SETTLED_AFTER_MS / 2;
/// How far what is settled lags behind at most before it is settled anew.
const SETTLED_EVERY_MS: i64 = 24 * HOUR_MS;

/// A decimal as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored(pub(super) Decimal);

impl TryFrom<String> for Stored {
    type Error = rust_decimal::Error;

    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        Decimal::from_str_exact(&text).map(Self)
    }
}

/// The text of a stored decimal.
pub(super) fn stored(amount: Decimal) -> String {
    amount.normalize().to_string()
}

/// What a workspace has, and how it pays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Funds {
    /// Nothing is started without credit.
    pub is_prepaid: bool,
    /// All that was credited.
    pub credited: Decimal,
    /// The part of it that was granted.
    pub granted: Decimal,
    /// All that was used, as far as time has come.
    pub used: Decimal,
}

impl Funds {
    /// What is left; below zero it is owed.
    #[must_use]
    pub fn balance(&self) -> Decimal {
        self.credited.saturating_sub(self.used)
    }

    /// What is left of what was granted, which is used up first.
    #[must_use]
    pub fn granted_balance(&self) -> Decimal {
        let left = self.granted.saturating_sub(self.used).max(Decimal::ZERO);
        left.min(self.balance().max(Decimal::ZERO))
    }

    /// What is owed.
    #[must_use]
    pub fn outstanding(&self) -> Decimal {
        (-self.balance()).max(Decimal::ZERO)
    }

    /// Whether something may be started.
    #[must_use]
    pub fn suffice(&self) -> bool {
        !self.is_prepaid || self.balance() > Decimal::ZERO
    }
}

#[derive(Debug, FromRow)]
pub(super) struct AccountRow {
    prepaid: i64,
    #[sqlx(try_from = "String")]
    credited: Stored,
    #[sqlx(try_from = "String")]
    granted: Stored,
    #[sqlx(try_from = "String")]
    settled: Stored,
    settled_to_ms: i64,
    #[sqlx(try_from = "String")]
    inference: Stored,
}

/// An entry of a workspace's ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreditRow {
    /// Id.
    pub id: i64,
    /// The same key credits once.
    pub idempotency_key: String,
    /// Why.
    pub kind: CreditKind,
    /// How much.
    pub amount: Decimal,
    /// What for.
    pub reason: String,
    /// When.
    pub created_at_ms: i64,
}

/// A credit to be written.
#[derive(Debug, Clone)]
pub struct NewCredit<'a> {
    /// To whom.
    pub workspace_id: i64,
    /// The same key credits once.
    pub idempotency_key: &'a str,
    /// Why.
    pub kind: CreditKind,
    /// How much.
    pub amount: Decimal,
    /// What for.
    pub reason: &'a str,
    /// By whom.
    pub created_by: i64,
}

/// What became of a credit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credited {
    /// It was written.
    New(CreditRow),
    /// It had been written before.
    Before(CreditRow),
    /// The key stands for another credit.
    KeyTaken,
}

const ACCOUNT: &str = "SELECT prepaid, credited, granted, settled, settled_to_ms, inference \
     FROM billing_accounts WHERE workspace_id = $1";
// Locks on both engines.
const ACCOUNT_LOCKED: &str = "UPDATE billing_accounts SET prepaid = prepaid WHERE workspace_id = $1 \
     RETURNING prepaid, credited, granted, settled, settled_to_ms, inference";
const NEW_ACCOUNT: &str = "INSERT INTO billing_accounts (workspace_id, prepaid, credited, granted, settled, \
     settled_to_ms) VALUES ($1, 0, '0', '0', '0', 0) ON CONFLICT (workspace_id) DO NOTHING";
const SPANS: &str = "SELECT cvm_id, usage_type, rate_per_hour, from_ms, to_ms FROM usage_intervals \
     WHERE workspace_id = $1 AND to_ms > $2 ORDER BY cvm_id, usage_type, from_ms";
const CREDITS: &str = "SELECT id, idempotency_key, kind, amount, reason, created_at_ms FROM credits \
     WHERE workspace_id = $1 ORDER BY id DESC LIMIT $2";
const CREDIT: &str = "SELECT id, idempotency_key, kind, amount, reason, created_at_ms FROM credits \
     WHERE workspace_id = $1 AND idempotency_key = $2";
const UNSETTLED: &str = "SELECT workspace_id FROM billing_accounts \
     WHERE settled_to_ms < $1 OR settled_to_ms > $2 ORDER BY settled_to_ms LIMIT $3";
const SETTLED_TO: &str = "SELECT b.settled_to_ms FROM billing_accounts b \
     JOIN cvms c ON c.workspace_id = b.workspace_id WHERE c.id = $1";
const WITHOUT_ACCOUNT: &str = "SELECT w.id FROM workspaces w WHERE NOT EXISTS \
     (SELECT 1 FROM billing_accounts b WHERE b.workspace_id = w.id) ORDER BY w.id LIMIT $1";

/// The amount of a column.
pub(super) fn amount(text: String) -> Result<Decimal> {
    let Stored(amount) = text.try_into().map_err(unreadable)?;
    Ok(amount)
}

type CreditColumns = (i64, String, String, String, String, i64);

/// A column that holds what this version does not know.
fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Database(sqlx::Error::Decode(Box::new(error)))
}

fn credit((id, idempotency_key, kind, amount, reason, created_at_ms): CreditColumns) -> Result<CreditRow> {
    let kind = kind.parse().map_err(unreadable)?;
    let amount = self::amount(amount)?;
    Ok(CreditRow { id, idempotency_key, kind, amount, reason, created_at_ms })
}

/// What a workspace used in a window, whose ends are full hours or now.
async fn used<'c>(
    on: impl Executor<'c, Database = Any>,
    workspace_id: i64,
    window: Window,
    now_ms: i64,
) -> Result<Decimal> {
    let mut rows = sqlx::query_as::<_, (i64, String, String, i64, i64)>(SPANS)
        .bind(workspace_id)
        .bind(window.start_ms)
        .fetch(on);
    let mut tally = Tally::new(window, now_ms);
    while let Some((cvm_id, usage_type, rate, from_ms, to_ms)) = rows.try_next().await? {
        let usage_type: UsageType = usage_type.parse().map_err(unreadable)?;
        let Stored(rate) = rate.try_into().map_err(unreadable)?;
        tally.add(&Span { cvm_id, usage_type, rate, from_ms, to_ms: Some(to_ms) });
    }
    Ok(tally.cost())
}

impl AccountRow {
    /// What it says now. What a clock settled that was ahead of this one does not count.
    fn known_at(self, now_ms: i64) -> Self {
        if self.settled_to_ms <= now_ms - LATE_MS {
            return self;
        }
        Self { settled: Stored(Decimal::ZERO), settled_to_ms: 0, ..self }
    }

    /// What was not added up once for all. Costs are made by the hour, so that both add up exactly.
    fn recent(account: Option<&Self>) -> Window {
        Window { start_ms: account.map_or(0, |account| account.settled_to_ms), ..Window::EVER }
    }

    fn funds(account: Option<Self>, recent: Decimal) -> Funds {
        account.map_or(Funds { used: recent, ..Funds::default() }, |account| Funds {
            is_prepaid: account.prepaid != 0,
            credited: account.credited.0,
            granted: account.granted.0,
            used: account.settled.0.saturating_add(recent).saturating_add(account.inference.0),
        })
    }
}

impl Store {
    /// What a workspace has now.
    pub async fn funds(&self, workspace_id: i64, now_ms: i64) -> Result<Funds> {
        let account: Option<AccountRow> =
            sqlx::query_as(ACCOUNT).bind(workspace_id).fetch_optional(&self.pool).await?;
        let account = account.map(|account| account.known_at(now_ms));
        let recent = used(&self.pool, workspace_id, AccountRow::recent(account.as_ref()), now_ms).await?;
        Ok(AccountRow::funds(account, recent))
    }

    /// Whether a workspace is one of those that need credit: most do not, and are not looked at closer.
    pub async fn needs_credit(&self, workspace_id: i64) -> Result<bool> {
        let prepaid: Option<(i64,)> =
            sqlx::query_as("SELECT prepaid FROM billing_accounts WHERE workspace_id = $1")
                .bind(workspace_id)
                .fetch_optional(&self.pool)
                .await?;
        Ok(prepaid.is_some_and(|(prepaid,)| prepaid != 0))
    }

    /// The newest credits of a workspace, newest first.
    pub async fn credits(&self, workspace_id: i64, limit: i64) -> Result<Vec<CreditRow>> {
        let rows: Vec<CreditColumns> =
            sqlx::query_as(CREDITS).bind(workspace_id).bind(limit).fetch_all(&self.pool).await?;
        rows.into_iter().map(credit).collect()
    }

    /// Workspaces, at most so many, whose distant past was not added up for a day, or never, or by a clock that was
    /// ahead.
    pub async fn unsettled(&self, now_ms: i64, limit: i64) -> Result<Vec<i64>> {
        let mut ids: Vec<(i64,)> = sqlx::query_as(WITHOUT_ACCOUNT).bind(limit).fetch_all(&self.pool).await?;
        let before_ms = now_ms - SETTLED_AFTER_MS - SETTLED_EVERY_MS;
        let late: Vec<(i64,)> = sqlx::query_as(UNSETTLED)
            .bind(before_ms)
            .bind(now_ms - LATE_MS)
            .bind(limit)
            .fetch_all(&self.pool)
            .await?;
        ids.extend(late);
        Ok(ids.into_iter().map(|(id,)| id).collect())
    }
}

impl Change {
    /// What a workspace has now.
    pub(crate) async fn funds(&mut self, workspace_id: i64, now_ms: i64) -> Result<Funds> {
        let account: Option<AccountRow> =
            sqlx::query_as(ACCOUNT).bind(workspace_id).fetch_optional(&mut *self.transaction).await?;
        let account = account.map(|account| account.known_at(now_ms));
        let window = AccountRow::recent(account.as_ref());
        let recent = used(&mut *self.transaction, workspace_id, window, now_ms).await?;
        Ok(AccountRow::funds(account, recent))
    }

    /// Whether a workspace is one of those that need credit: most do not, and are not looked at closer.
    pub(crate) async fn is_prepaid(&mut self, workspace_id: i64) -> Result<bool> {
        let account: Option<AccountRow> =
            sqlx::query_as(ACCOUNT).bind(workspace_id).fetch_optional(&mut *self.transaction).await?;
        Ok(account.is_some_and(|account| account.prepaid != 0))
    }

    /// Says whether a workspace needs credit to start something.
    pub async fn set_prepaid(&mut self, workspace_id: i64, prepaid: bool) -> Result<()> {
        self.about(super::Subject::Billing(workspace_id)).await?;
        sqlx::query(NEW_ACCOUNT).bind(workspace_id).execute(&mut *self.transaction).await?;
        sqlx::query("UPDATE billing_accounts SET prepaid = $2 WHERE workspace_id = $1 AND prepaid <> $2")
            .bind(workspace_id)
            .bind(i64::from(prepaid))
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Writes a credit, unless one has its key.
    pub async fn credit(&mut self, new: &NewCredit<'_>, now_ms: i64) -> Result<Credited> {
        self.about(super::Subject::Billing(new.workspace_id)).await?;
        let account = self.lock_account(new.workspace_id).await?;
        let before: Option<CreditColumns> = sqlx::query_as(CREDIT)
            .bind(new.workspace_id)
            .bind(new.idempotency_key)
            .fetch_optional(&mut *self.transaction)
            .await?;
        if let Some(before) = before.map(credit).transpose()? {
            let same =
                (before.kind, before.amount, before.reason.as_str()) == (new.kind, new.amount, new.reason);
            return Ok(if same { Credited::Before(before) } else { Credited::KeyTaken });
        }
        let row = CreditRow {
            id: self.next_id("credits").await?,
            idempotency_key: new.idempotency_key.to_owned(),
            kind: new.kind,
            amount: new.amount,
            reason: new.reason.to_owned(),
            created_at_ms: now_ms,
        };
        sqlx::query(
            "INSERT INTO credits (id, workspace_id, idempotency_key, kind, amount, reason, created_by, \
             created_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(row.id)
        .bind(new.workspace_id)
        .bind(new.idempotency_key)
        .bind(new.kind.as_str())
        .bind(stored(new.amount))
        .bind(new.reason)
        .bind(new.created_by)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        let granted = if new.kind == CreditKind::Grant { new.amount } else { Decimal::ZERO };
        sqlx::query("UPDATE billing_accounts SET credited = $2, granted = $3 WHERE workspace_id = $1")
            .bind(new.workspace_id)
            .bind(stored(account.credited.0.saturating_add(new.amount)))
            .bind(stored(account.granted.0.saturating_add(granted)))
            .execute(&mut *self.transaction)
            .await?;
        Ok(Credited::New(row))
    }

    /// Adds up what a workspace used until two days ago, once for all.
    pub async fn settle(&mut self, workspace_id: i64, now_ms: i64) -> Result<()> {
        let account = self.lock_account(workspace_id).await?.known_at(now_ms);
        let to_ms = (now_ms - SETTLED_AFTER_MS).div_euclid(HOUR_MS) * HOUR_MS;
        if to_ms <= account.settled_to_ms {
            return Ok(());
        }
        let window = Window { start_ms: account.settled_to_ms, end_ms: to_ms };
        let cost = used(&mut *self.transaction, workspace_id, window, now_ms).await?;
        sqlx::query("UPDATE billing_accounts SET settled = $2, settled_to_ms = $3 WHERE workspace_id = $1")
            .bind(workspace_id)
            .bind(stored(account.settled.0.saturating_add(cost)))
            .bind(to_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Has the past of a CVM's workspace added up again when a meter of the CVM turns out to have begun or
    /// ended in it.
    pub(super) async fn unsettle(&mut self, cvm_id: i64, at_ms: i64, now_ms: i64) -> Result<()> {
        if at_ms > now_ms - LATE_MS {
            // Nothing is settled so late, but by a clock that was ahead.
            let settled_to: Option<(i64,)> =
                sqlx::query_as(SETTLED_TO).bind(cvm_id).fetch_optional(&mut *self.transaction).await?;
            if settled_to.is_none_or(|(settled_to_ms,)| settled_to_ms <= at_ms) {
                return Ok(());
            }
        }
        // Without a condition on what is settled: whoever settles at this moment is waited for.
        sqlx::query(
            "UPDATE billing_accounts SET settled = CASE WHEN settled_to_ms > $2 THEN '0' ELSE settled END, \
             settled_to_ms = CASE WHEN settled_to_ms > $2 THEN 0 ELSE settled_to_ms END \
             WHERE workspace_id = (SELECT workspace_id FROM cvms WHERE id = $1)",
        )
        .bind(cvm_id)
        .bind(at_ms)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }

    /// Takes what inference cost from what a workspace has. The account stays locked until the change ends.
    pub(super) async fn charge_inference(&mut self, workspace_id: i64, cost: Decimal) -> Result<()> {
        let account = self.lock_account(workspace_id).await?;
        if cost == Decimal::ZERO {
            return Ok(());
        }
        sqlx::query("UPDATE billing_accounts SET inference = $2 WHERE workspace_id = $1")
            .bind(workspace_id)
            .bind(stored(account.inference.0.saturating_add(cost)))
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Whoever changes the account or sets something of it aside waits from here on until this change ends.
    pub(super) async fn lock_account(&mut self, workspace_id: i64) -> Result<AccountRow> {
        sqlx::query(NEW_ACCOUNT).bind(workspace_id).execute(&mut *self.transaction).await?;
        Ok(sqlx::query_as(ACCOUNT_LOCKED).bind(workspace_id).fetch_one(&mut *self.transaction).await?)
    }
}
