//! Tells a control plane of what was used, from the durable rows: each that can be read at least once, whatever happens
//! between.
//!
//! | The control plane | Then |
//! |---|---|
//! | takes a row | it is told |
//! | does not answer, or says that it cannot now | the row, and those behind it, wait |
//! | says that the row is wrong | it is set aside at once |
//! | fails at the row | it is set aside after some attempts |
//! | is not asked, because the row cannot be read | it is set aside, for another version of the program |
//!
//! What is set aside does not hold up others. It is kept, and told again from time to time and at each start.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures_util::{TryStreamExt as _, stream};
use parking_lot::Mutex;
use rust_decimal::Decimal;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{error, info, warn};

use super::Current;
use super::hooks::Refusal;
use super::untold::Untold;
use super::wire::Told;
use crate::record::{Store, StoreError, UsageRow};

/// Rows that are read at once.
const BATCH: usize = 256;
/// Rows that are told at the same time: so far from their order they may arrive.
const AT_ONCE: usize = 16;
/// Pauses after failures.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// How often the control plane may fail at a row before the row is set aside.
const ATTEMPTS: u32 = 5;
/// Time after which what is set aside is told again.
const AGAIN: Duration = Duration::from_mins(10);

/// Tells rows.
#[derive(Debug)]
pub(super) struct Posting {
    pub(super) store: Store,
    pub(super) hooks: Current,
    pub(super) untold: Arc<Untold>,
}

impl Posting {
    /// Runs until it is aborted.
    pub(super) async fn run(self) {
        let mut kept = self.store.kept();
        let mut again = Instant::now();
        loop {
            let told = async {
                if again <= Instant::now() {
                    again = Instant::now() + AGAIN;
                    self.tell_again().await?;
                }
                self.tell().await
            };
            match told.await {
                Ok(true) => {}
                // Until there are more rows. The store's end is the gateway's.
                Ok(false) => {
                    if timeout_at(again, kept.changed()).await.is_ok_and(|changed| changed.is_err()) {
                        return;
                    }
                }
                Err(failure) => {
                    error!(%failure, "the control plane cannot be told what was used");
                    sleep(LONGEST_PAUSE).await;
                }
            }
        }
    }

    /// Tells some rows; false if there are none.
    async fn tell(&self) -> Result<bool, StoreError> {
        let rows = self.store.to_post(BATCH)?;
        let Some((first, last)) = rows.first().zip(rows.last()) else { return Ok(false) };
        let next = last.number + 1;
        // A process died after it had set them aside, and before it noted how far it had told.
        let aside = self.store.set_aside(first.number, BATCH)?;
        let heard = Mutex::new(Vec::with_capacity(rows.len()));
        let told = stream::iter(rows.iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |row| self.tell_one(row, &heard));
        told.await?;
        for (number, row) in self.store.unreadable(next)? {
            error!(number, "a row is set aside: it cannot be read");
            self.store.put_unreadable_aside(number, row).await?;
        }
        self.store.posted(next).await?;
        // Not before: what the store does not know to be told is told again.
        let heard = heard.into_inner();
        for row in aside.iter().filter(|row| heard.iter().any(|(number, _)| *number == row.number)) {
            self.store.taken(row.number).await?;
        }
        self.untold.told(heard.iter().fold(Decimal::ZERO, |sum, (_, cost)| sum.saturating_add(*cost)));
        Ok(true)
    }

    /// Tells a row until it is heard, or is set aside. Of what was heard it notes number and cost.
    async fn tell_one(&self, row: &UsageRow, heard: &Mutex<Vec<(u64, Decimal)>>) -> Result<(), StoreError> {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .without_max_times()
            .build();
        let (request_id, mut failures) = (&row.row.request_id, 0);
        for (attempt, pause) in pauses.enumerate() {
            let now = Arc::clone(&self.hooks.read());
            let Err(error) = now.tell(&Told::from(&row.row)).await else {
                if attempt > 0 {
                    info!(request_id, "the control plane was told what was used");
                }
                heard.lock().push((row.number, row.row.cost));
                return Ok(());
            };
            let refusal = error.refusal();
            failures += u32::from(refusal == Refusal::Failed);
            if refusal == Refusal::Wrong || failures == ATTEMPTS {
                error!(request_id, %error, cost = %row.row.cost, "a row is set aside: the control plane does not take it");
                return self.store.put_aside(row).await;
            }
            if attempt == 0 {
                warn!(request_id, %error, "the control plane was not told what was used; it will be");
            }
            sleep(pause).await;
        }
        Ok(())
    }

    /// Tells what is set aside, each row once, until the control plane does not answer.
    async fn tell_again(&self) -> Result<(), StoreError> {
        // What is owed, too, is told with what is owed: a process may die between the two notes of it.
        let owed = self.store.next_to_post()?.unwrap_or(u64::MAX);
        let mut from = 0;
        loop {
            let rows = self.store.set_aside(from, BATCH)?;
            let Some(last) = rows.last() else { return Ok(()) };
            from = last.number + 1;
            for row in rows.iter().filter(|row| row.number < owed) {
                let now = Arc::clone(&self.hooks.read());
                match now.tell(&Told::from(&row.row)).await {
                    Ok(()) => {
                        info!(
                            request_id = row.row.request_id,
                            "the control plane took a row that was set aside"
                        );
                        self.store.taken(row.number).await?;
                        self.untold.told(row.row.cost);
                    }
                    Err(error) if error.refusal() == Refusal::NotNow => return Ok(()),
                    Err(_) => {}
                }
            }
        }
    }
}
