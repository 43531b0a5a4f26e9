//! Requests that were made under an idempotency key: who runs one, whether it had its effect, and what was answered.

use std::time::Duration;

use sqlx::FromRow;

use super::{Change, Result, StoreError};

/// A request of a key, as it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedRequest<'a> {
    /// Whose it is.
    pub(crate) api_key_id: i64,
    /// The key's workspace.
    pub(crate) workspace_id: i64,
    /// Hash of what the client calls it.
    pub(crate) key_hash: &'a str,
    /// Hash of what it asks for.
    pub(crate) fingerprint: &'a str,
}

/// The right to carry a request out, which holds until another run of it takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    api_key_id: i64,
    key_hash: String,
    number: i64,
}

/// What was answered to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptAnswer {
    /// HTTP status.
    pub(crate) status: u16,
    /// Its `Content-Type`, if it had one.
    pub(crate) content_type: Option<String>,
    /// Its body, sealed.
    pub(crate) sealed: String,
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With an answer that counts from now on.
    Success(KeptAnswer),
    /// With a refusal, which counts if there was an effect all the same.
    Refusal(KeptAnswer),
    /// With a failure that nobody wants to hear again: the name is free, unless there was an effect.
    Failure,
    /// With the wish that the request is made again.
    Again,
}

/// What became of a request that asks to be run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It runs now.
    Runs(Run),
    /// It had its answer.
    Answered(KeptAnswer),
    /// Another run of it has not ended.
    RunsAlready,
    /// It had its effect, and whoever ran it died before the answer was kept.
    AnswerLost,
    /// The same name was given to another request.
    IsAnother,
    /// As many requests of the workspace run as are remembered of one.
    TooMany,
}

/// When a run begins, and how long things last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Now, in Unix milliseconds.
    pub(crate) now_ms: i64,
    /// How long a run is taken for alive.
    pub(crate) running: Duration,
    /// How long a request is remembered.
    pub(crate) kept: Duration,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[derive(FromRow)]
struct Row {
    fingerprint: String,
    is_carried_out: i64,
    runs_until_ms: i64,
    status: Option<i64>,
    content_type: Option<String>,
    sealed_answer: Option<String>,
}

impl Row {
    fn of(self, fingerprint: &str, now_ms: i64) -> Begun {
        if self.fingerprint != fingerprint {
            return Begun::IsAnother;
        }
        match (self.status.map(u16::try_from), self.sealed_answer) {
            (Some(Ok(status)), Some(sealed)) => {
                Begun::Answered(KeptAnswer { status, content_type: self.content_type, sealed })
            }
            _ if self.is_carried_out != 0 && self.runs_until_ms <= now_ms => Begun::AnswerLost,
            _ => Begun::RunsAlready,
        }
    }
}

impl Change {
    /// Takes a request to be run, unless it runs or ran. Of a workspace that has `most` of them the oldest that ended is
    /// forgotten.
    pub(crate) async fn begin_run(
        &mut self,
        request: NamedRequest<'_>,
        times: Times,
        most: i64,
    ) -> Result<Begun> {
        // Taken anew: what is forgotten, and what neither lives nor had its effect.
        const TAKE: &str = "UPDATE idempotent_requests SET run = run + 1, fingerprint = $3, created_at_ms = $4, \
             runs_until_ms = $5, is_carried_out = 0, status = NULL, content_type = NULL, sealed_answer = NULL \
             WHERE api_key_id = $1 AND key_hash = $2 AND (created_at_ms < $6 OR \
             (status IS NULL AND is_carried_out = 0 AND runs_until_ms <= $4 AND fingerprint = $3)) RETURNING run";
        const MAKE: &str = "INSERT INTO idempotent_requests \
             (api_key_id, key_hash, fingerprint, created_at_ms, runs_until_ms, workspace_id, run, is_carried_out) \
             VALUES ($1, $2, $3, $4, $5, $6, 1, 0) ON CONFLICT (api_key_id, key_hash) DO NOTHING";
        let run = |number| {
            Begun::Runs(Run { api_key_id: request.api_key_id, key_hash: request.key_hash.to_owned(), number })
        };
        let runs_until_ms = times.now_ms.saturating_add(millis(times.running));
        let taken: Option<(i64,)> = sqlx::query_as(TAKE)
            .bind(request.api_key_id)
            .bind(request.key_hash)
            .bind(request.fingerprint)
            .bind(times.now_ms)
            .bind(runs_until_ms)
            .bind(times.now_ms.saturating_sub(millis(times.kept)))
            .fetch_optional(&mut *self.transaction)
            .await?;
        if let Some((number,)) = taken {
            return Ok(run(number));
        }
        if let Some(row) = self.kept_request(request).await? {
            return Ok(row.of(request.fingerprint, times.now_ms));
        }
        if self.kept_requests(request.workspace_id, most).await? >= most
            && !self.forget_oldest_request(request.workspace_id).await?
        {
            return Ok(Begun::TooMany);
        }
        let made = sqlx::query(MAKE)
            .bind(request.api_key_id)
            .bind(request.key_hash)
            .bind(request.fingerprint)
            .bind(times.now_ms)
            .bind(runs_until_ms)
            .bind(request.workspace_id)
            .execute(&mut *self.transaction)
            .await?;
        // Whoever was quicker runs it.
        Ok(if made.rows_affected() == 1 { run(1) } else { Begun::RunsAlready })
    }

    async fn kept_request(&mut self, request: NamedRequest<'_>) -> Result<Option<Row>> {
        Ok(sqlx::query_as(
            "SELECT fingerprint, is_carried_out, runs_until_ms, status, content_type, sealed_answer \
             FROM idempotent_requests WHERE api_key_id = $1 AND key_hash = $2",
        )
        .bind(request.api_key_id)
        .bind(request.key_hash)
        .fetch_optional(&mut *self.transaction)
        .await?)
    }

    /// How many requests of a workspace are remembered; nobody counts beyond `most`.
    async fn kept_requests(&mut self, workspace_id: i64, most: i64) -> Result<i64> {
        let (count,): (i64,) = sqlx::query_as(
            "SELECT COUNT(*) FROM (SELECT 1 FROM idempotent_requests WHERE workspace_id = $1 LIMIT $2) AS kept",
        )
        .bind(workspace_id)
        .bind(most)
        .fetch_one(&mut *self.transaction)
        .await?;
        Ok(count)
    }

    /// Forgets the oldest request of a workspace that has its answer; whether there was one.
    async fn forget_oldest_request(&mut self, workspace_id: i64) -> Result<bool> {
        let forgotten = sqlx::query(
            "DELETE FROM idempotent_requests WHERE status IS NOT NULL AND (api_key_id, key_hash) IN (SELECT \
             api_key_id, key_hash FROM idempotent_requests WHERE workspace_id = $1 AND status IS NOT NULL \
             ORDER BY created_at_ms LIMIT 1)",
        )
        .bind(workspace_id)
        .execute(&mut *self.transaction)
        .await?;
        Ok(forgotten.rows_affected() > 0)
    }

    /// Forgets the requests of a key that works no longer: what it could open is gone with it.
    pub(super) async fn forget_requests_of(&mut self, api_key_id: i64) -> Result<()> {
        sqlx::query("DELETE FROM idempotent_requests WHERE api_key_id = $1")
            .bind(api_key_id)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Notes, in the transaction of its effect, that a request had it.
    /// An error when another run took over: then this one has none.
    pub(super) async fn carry_out(&mut self, run: &Run) -> Result<()> {
        let noted = sqlx::query(
            "UPDATE idempotent_requests SET is_carried_out = 1 \
             WHERE api_key_id = $1 AND key_hash = $2 AND run = $3",
        )
        .bind(run.api_key_id)
        .bind(&run.key_hash)
        .bind(run.number)
        .execute(&mut *self.transaction)
        .await?;
        if noted.rows_affected() == 1 { Ok(()) } else { Err(StoreError::TakenOver) }
    }

    /// Ends a run. What had no effect and no success leaves nothing.
    pub(crate) async fn end_run(&mut self, run: &Run, ending: &Ending) -> Result<()> {
        const KEEP: &str = "UPDATE idempotent_requests SET status = $4, content_type = $5, sealed_answer = $6 \
             WHERE api_key_id = $1 AND key_hash = $2 AND run = $3 AND (is_carried_out = 1 OR $7 = 1)";
        // Taken for dead at once: whoever asks again is told that there was an effect.
        const LOSE: &str = "UPDATE idempotent_requests SET runs_until_ms = 0 \
             WHERE api_key_id = $1 AND key_hash = $2 AND run = $3 AND is_carried_out = 1";
        const FORGET: &str =
            "DELETE FROM idempotent_requests WHERE api_key_id = $1 AND key_hash = $2 AND run = $3";
        let of_run =
            |sql: &'static str| sqlx::query(sql).bind(run.api_key_id).bind(&run.key_hash).bind(run.number);
        let stays = match ending {
            Ending::Success(answer) | Ending::Refusal(answer) => of_run(KEEP)
                .bind(i64::from(answer.status))
                .bind(&answer.content_type)
                .bind(&answer.sealed)
                .bind(i64::from(matches!(ending, Ending::Success(_))))
                .execute(&mut *self.transaction)
                .await?
                .rows_affected(),
            Ending::Failure => of_run(LOSE).execute(&mut *self.transaction).await?.rows_affected(),
            Ending::Again => 0,
        };
        if stays == 0 {
            of_run(FORGET).execute(&mut *self.transaction).await?;
        }
        Ok(())
    }

    /// Forgets at most `limit` requests that were remembered for long enough, and says how many.
    pub(crate) async fn delete_old_requests(
        &mut self,
        now_ms: i64,
        kept: Duration,
        limit: i64,
    ) -> Result<u64> {
        let deleted = sqlx::query(
            "DELETE FROM idempotent_requests WHERE (api_key_id, key_hash) IN (SELECT api_key_id, key_hash \
             FROM idempotent_requests WHERE created_at_ms < $1 ORDER BY created_at_ms LIMIT $2) AND created_at_ms < $1",
        )
        .bind(now_ms.saturating_sub(millis(kept)))
        .bind(limit)
        .execute(&mut *self.transaction)
        .await?;
        Ok(deleted.rows_affected())
    }
}
