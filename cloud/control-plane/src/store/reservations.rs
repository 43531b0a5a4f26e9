//! What is set aside of a workspace's credit for inference that is under way.

use rust_decimal::Decimal;

use super::billing::{amount, stored};
use super::{Change, Result};

/// How long something stays set aside when nobody tells how the request ended, or that it is still under way.
pub(crate) const LAPSES_AFTER_MS: i64 = 60 * 60 * 1000;

/// What is to be set aside.
#[derive(Debug, Clone, Copy)]
pub struct NewReservation<'a> {
    /// Who pays.
    pub workspace_id: i64,
    /// The gateway's id of the request. Asked again, it replaces what was set aside before.
    pub request_id: &'a str,
    /// What the request is expected to cost at most; not negative.
    pub amount: Decimal,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// It is set aside.
    SetAside,
    /// The credit is used up.
    NoCredit,
    /// What is left may be used up by requests under way.
    UnderWay,
}

const HELD: &str = "SELECT amount FROM inference_reservations \
     WHERE workspace_id = $1 AND request_id <> $2 AND lapses_at_ms > $3";
const RELEASE: &str = "DELETE FROM inference_reservations WHERE workspace_id = $1 AND request_id = $2";
const RELEASE_REQUEST: &str = "DELETE FROM inference_reservations WHERE request_id = $1";
const SET_ASIDE: &str = "INSERT INTO inference_reservations (workspace_id, request_id, amount, lapses_at_ms) \
     VALUES ($1, $2, $3, $4)";
const RENEW: &str = "UPDATE inference_reservations SET lapses_at_ms = $1 \
     WHERE workspace_id = $2 AND request_id = $3 AND lapses_at_ms > $4";
const LAPSED: &str = "DELETE FROM inference_reservations WHERE (workspace_id, request_id) IN \
     (SELECT workspace_id, request_id FROM inference_reservations WHERE lapses_at_ms <= $1 LIMIT $2)";

impl Change {
    /// Sets credit aside for a request of a workspace that needs credit.
    ///
    /// A workspace that has anything left may always have one request under way, whatever it is expected to cost; more
    /// together only as far as what they are expected to cost fits into what is left.
    pub async fn set_aside(&mut self, new: &NewReservation<'_>, now_ms: i64) -> Result<Reserved> {
        // Whoever asks at the same time waits here.
        self.lock_account(new.workspace_id).await?;
        let left = self.funds(new.workspace_id, now_ms).await?.balance();
        if left <= Decimal::ZERO {
            return Ok(Reserved::NoCredit);
        }
        if new.amount.is_zero() {
            return Ok(Reserved::SetAside);
        }
        let held = self.held(new, now_ms).await?;
        if !held.is_zero() && held.saturating_add(new.amount) > left {
            return Ok(Reserved::UnderWay);
        }
        self.release(new.workspace_id, new.request_id).await?;
        sqlx::query(SET_ASIDE)
            .bind(new.workspace_id)
            .bind(new.request_id)
            .bind(stored(new.amount))
            .bind(now_ms.saturating_add(LAPSES_AFTER_MS))
            .execute(&mut *self.transaction)
            .await?;
        Ok(Reserved::SetAside)
    }

    /// What is set aside for other requests.
    async fn held(&mut self, new: &NewReservation<'_>, now_ms: i64) -> Result<Decimal> {
        let held: Vec<(String,)> = sqlx::query_as(HELD)
            .bind(new.workspace_id)
            .bind(new.request_id)
            .bind(now_ms)
            .fetch_all(&mut *self.transaction)
            .await?;
        held.into_iter().try_fold(Decimal::ZERO, |sum, (held,)| Ok(sum.saturating_add(amount(held)?)))
    }

    /// A request is still under way: what is set aside for it stays for as long again. False where nothing is, or where
    /// it lapsed.
    pub async fn renew(&mut self, workspace_id: i64, request_id: &str, now_ms: i64) -> Result<bool> {
        let done = sqlx::query(RENEW)
            .bind(now_ms.saturating_add(LAPSES_AFTER_MS))
            .bind(workspace_id)
            .bind(request_id)
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(done.rows_affected() > 0)
    }

    /// A request is over: nothing is set aside for it any more.
    pub async fn release(&mut self, workspace_id: i64, request_id: &str) -> Result<()> {
        sqlx::query(RELEASE).bind(workspace_id).bind(request_id).execute(&mut *self.transaction).await?;
        Ok(())
    }

    /// A request is over of which it is not known whose it was. Its id is known to nobody but its gateway.
    pub async fn release_request(&mut self, request_id: &str) -> Result<()> {
        sqlx::query(RELEASE_REQUEST).bind(request_id).execute(&mut *self.transaction).await?;
        Ok(())
    }

    /// Forgets what lapsed, at most so many.
    pub async fn delete_lapsed_reservations(&mut self, now_ms: i64, limit: i64) -> Result<u64> {
        let done = sqlx::query(LAPSED).bind(now_ms).bind(limit).execute(&mut *self.transaction).await?;
        Ok(done.rows_affected())
    }
}
