//! What was spent, and a control plane was not told yet: it does not come off anybody's balance until it is.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rust_decimal::Decimal;
use tracing::{error, info};

use crate::error::{GatewayError, Kind};
use crate::record::{Store, StoreError, UsageRow};

/// Rows that are read at once.
const PAGE: usize = 10_000;

/// A sum that falls as rows are told.
#[derive(Debug)]
pub(super) struct Untold {
    /// Below nothing for the moment in which a row is told before it is counted.
    sum: Mutex<Decimal>,
    is_refusing: AtomicBool,
}

impl Untold {
    /// Of the rows that a store owes a control plane, and of those that it set aside. Reads all of them.
    pub(super) fn of(store: &Store) -> Result<Self, StoreError> {
        let (mut counted, mut sum) = (HashSet::new(), Decimal::ZERO);
        for_each(
            |from| store.set_aside(from, PAGE),
            |row| {
                counted.insert(row.number);
                sum = sum.saturating_add(row.row.cost);
            },
        )?;
        for_each(
            |from| store.unposted(from, PAGE),
            |row| {
                // Where a process died after it set a row aside, and before it noted how far it had told, it is owed, too.
                if !counted.contains(&row.number) {
                    sum = sum.saturating_add(row.row.cost);
                }
            },
        )?;
        Ok(Self { sum: Mutex::new(sum), is_refusing: AtomicBool::new(false) })
    }

    /// Something was spent.
    pub(super) fn spent(&self, cost: Decimal) {
        let mut sum = self.sum.lock();
        *sum = sum.saturating_add(cost);
    }

    /// The control plane knows of it.
    pub(super) fn told(&self, cost: Decimal) {
        self.spent(-cost);
    }

    /// The sum, in the currency of the prices.
    pub(super) fn sum(&self) -> Decimal {
        (*self.sum.lock()).max(Decimal::ZERO)
    }

    /// Refuses while more than this is untold. Says once in the log that it begins to, and once that it ends.
    pub(super) fn check(&self, limit: Decimal) -> Result<(), GatewayError> {
        let sum = self.sum();
        let refuses = sum > limit;
        match (self.is_refusing.swap(refuses, Ordering::Relaxed), refuses) {
            (false, true) => error!(
                untold = %sum,
                limit = %limit,
                "requests are refused: the control plane has not taken what was spent. See why it does not answer, or \
                 what it finds wrong with rows that are set aside; control.untold_limit says how much may be untold"
            ),
            (true, false) => {
                info!("requests are taken again: the control plane knows enough of what was spent");
            }
            _ => {}
        }
        if refuses {
            let message = "The service is temporarily unavailable. Please try again later.";
            return Err(GatewayError::new(Kind::Unavailable, message));
        }
        Ok(())
    }
}

/// Looks at all rows, which are read page by page.
fn for_each(
    page: impl Fn(u64) -> Result<Vec<UsageRow>, StoreError>,
    mut look: impl FnMut(&UsageRow),
) -> Result<(), StoreError> {
    let mut from = 0;
    loop {
        let rows = page(from)?;
        let Some(last) = rows.last() else { return Ok(()) };
        from = last.number + 1;
        rows.iter().for_each(&mut look);
    }
}
