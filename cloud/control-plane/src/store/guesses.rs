//! How often something was guessed at since the last right guess.

use super::{Change, Result};

/// Wrong guesses in a row that nobody has to wait after.
const FREE_GUESSES: u32 = 5;
/// Longest wait after a wrong guess.
const LONGEST_WAIT_MS: i64 = 15 * 60 * 1000;

/// How long nobody guesses after so many wrong guesses in a row: one second after the last free one, then twice as long
/// each time.
fn wait_ms(failures: i64) -> i64 {
    let failures = u32::try_from(failures).unwrap_or(u32::MAX);
    let Some(doublings) = failures.checked_sub(FREE_GUESSES) else { return 0 };
    1000_i64.checked_shl(doublings.min(20)).unwrap_or(LONGEST_WAIT_MS).min(LONGEST_WAIT_MS)
}

impl Change {
    /// Counts a guess, before it is known whether it is right, so that many at once are as good as one after the
    /// other. `Err` says from when on the next one is allowed.
    pub(crate) async fn take_guess(
        &mut self,
        target: &str,
        now_ms: i64,
    ) -> Result<std::result::Result<(), i64>> {
        sqlx::query(
            "INSERT INTO guesses (target, failures, not_before_ms, at_ms) VALUES ($1, 0, 0, $2) \
             ON CONFLICT (target) DO NOTHING",
        )
        .bind(target)
        .bind(now_ms)
        .execute(&mut *self.transaction)
        .await?;
        let counted: Option<(i64,)> = sqlx::query_as(
            "UPDATE guesses SET failures = failures + 1, at_ms = $2 WHERE target = $1 AND not_before_ms <= $2 \
             RETURNING failures",
        )
        .bind(target)
        .bind(now_ms)
        .fetch_optional(&mut *self.transaction)
        .await?;
        let Some((failures,)) = counted else {
            let (not_before_ms,): (i64,) =
                sqlx::query_as("SELECT not_before_ms FROM guesses WHERE target = $1")
                    .bind(target)
                    .fetch_one(&mut *self.transaction)
                    .await?;
            return Ok(Err(not_before_ms));
        };
        sqlx::query("UPDATE guesses SET not_before_ms = $2 WHERE target = $1")
            .bind(target)
            .bind(now_ms + wait_ms(failures))
            .execute(&mut *self.transaction)
            .await?;
        Ok(Ok(()))
    }

    /// Says when somebody guessed wrong.
    pub(crate) async fn note_wrong_guess(&mut self, target: &str, now_ms: i64) -> Result<()> {
        sqlx::query("UPDATE guesses SET at_ms = $2 WHERE target = $1")
            .bind(target)
            .bind(now_ms)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }

    /// Forgets wrong guesses, after a right one.
    pub(crate) async fn forget_guesses(&mut self, target: &str) -> Result<()> {
        sqlx::query("DELETE FROM guesses WHERE target = $1")
            .bind(target)
            .execute(&mut *self.transaction)
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_wrong_waits_longer_each_time() {
        let waits: Vec<_> = (0..18).map(wait_ms).collect();
        assert_eq!(waits[..8], [0, 0, 0, 0, 0, 1000, 2000, 4000]);
        assert_eq!(waits[14..], [512_000, LONGEST_WAIT_MS, LONGEST_WAIT_MS, LONGEST_WAIT_MS]);
        assert_eq!(wait_ms(i64::MAX), LONGEST_WAIT_MS);
    }
}
