//! What has had its time goes, some with each write, so that no write takes long.

use std::collections::{BTreeSet, HashSet};
use std::ops::{Bound, ControlFlow};

use redb::ReadableTable as _;
use tracing::error;

use super::StoreError;
use super::blocks::Blocks as _;
use super::filing::Tables;
use super::rows::Blocks as _;
use super::segments::Segments;
use super::store::Settings;
use super::tables::{NameHash, ReceiptEntry};
use super::turns;

/// Entries of each table that go with one write at least. A write that adds more removes more.
const STEP: usize = 128;

/// Until where things may go.
#[derive(Debug)]
pub(super) struct Due {
    /// The time, in seconds since the Unix epoch.
    pub(super) now: u64,
    /// Receipts before this number are in the log.
    pub(super) logged: u64,
    /// Sessions that somebody needs, whatever their end.
    pub(super) held: HashSet<NameHash>,
}

/// Removes what is due.
#[derive(Debug)]
pub(super) struct Eviction {
    settings: Settings,
    /// The last session that was looked at: they are looked at in turn.
    session: NameHash,
    /// Blocks of rows of which none can be read: each goes with the next one that can.
    unreadable: BTreeSet<u64>,
    /// Whether something is due that has not been removed.
    pub(super) is_behind: bool,
    /// Whether something may be due that was not looked at, or that the log, the control plane or somebody who needs it keeps.
    is_unfinished: bool,
    /// The time until which all that was due has been removed.
    reached: Option<u64>,
}

impl Eviction {
    pub(super) const fn new(settings: Settings) -> Self {
        Self {
            settings,
            session: [0; 16],
            unreadable: BTreeSet::new(),
            is_behind: true,
            is_unfinished: false,
            reached: None,
        }
    }

    /// Removes some of what is due; `added` entries come with the same write.
    pub(super) fn step(
        &mut self,
        tables: &mut Tables<'_>,
        segments: &Segments,
        due: &Due,
        added: usize,
    ) -> Result<(), StoreError> {
        if self.reached == Some(due.now) {
            // The oldest of everything would be read to find that out again.
            return Ok(());
        }
        self.is_unfinished = false;
        let budget = STEP.max(2 * added);
        let removed = [
            self.receipts(tables, segments, due, budget)?,
            self.rows(tables, due, budget)?,
            fingerprints(tables, due, budget)?,
            self.sessions(tables, due, budget)?,
        ];
        self.is_behind = removed.iter().any(|removed| *removed >= budget);
        self.reached = (!self.is_behind && !self.is_unfinished).then_some(due.now);
        Ok(())
    }

    /// What the last step removed is still there.
    pub(super) fn look_again(&mut self) {
        self.reached = None;
    }

    fn receipts(
        &mut self,
        tables: &mut Tables<'_>,
        segments: &Segments,
        due: &Due,
        budget: usize,
    ) -> Result<usize, StoreError> {
        let mut removed = 0;
        while removed < budget {
            let Some(block) = tables.receipts.first_block()? else { break };
            // All of it goes together, when the newest may. Nobody is shown one that has had its time.
            let stays = block.served_at.saturating_add(self.settings.receipts_s) > due.now;
            let is_kept = !stays && block.end() > due.logged;
            self.is_unfinished |= is_kept;
            if stays || is_kept {
                break;
            }
            turns::end_if_over();
            let mut names = Vec::new();
            let read = block.receipts(segments, |number, receipt| {
                names.extend(ReceiptEntry::parse(receipt).ok().map(|receipt| (number, receipt.names)));
                ControlFlow::Continue(())
            });
            match read {
                Ok(true) => {}
                Ok(false) => error!(
                    number = block.first,
                    "receipts that have had their time cannot be read; their names stay"
                ),
                Err(_) => {
                    self.is_unfinished = true;
                    break;
                }
            }
            tables.receipts.remove(block.first)?;
            removed += usize::try_from(block.count).unwrap_or(usize::MAX);
            for (number, names) in names {
                for name in &names {
                    // A name may have gone over to a newer receipt.
                    let is_its = tables.names.get(name)?.is_some_and(|named| named.value() == number);
                    if is_its {
                        tables.names.remove(name)?;
                    }
                }
            }
        }
        Ok(removed)
    }

    fn rows(&mut self, tables: &mut Tables<'_>, due: &Due, budget: usize) -> Result<usize, StoreError> {
        let unreadable = &mut self.unreadable;
        let kept_s =
            if self.settings.is_posting { self.settings.posted_rows_s } else { self.settings.rows_s };
        // A control plane is still to be told of these.
        let owed = tables.owed()?;
        let (mut from, mut removed) = (0, 0);
        while removed < budget {
            let Some(block) = tables.rows.next_block(from)? else { break };
            if let Some(owed) = owed.iter().find(|owed| owed.start < block.end() && block.first < owed.end) {
                self.is_unfinished = true;
                from = owed.end.max(block.end());
                continue;
            }
            let Some(ended_at) = block.ended_at else {
                from = skip(unreadable, block.first);
                continue;
            };
            if ended_at.saturating_add(kept_s) > due.now {
                break;
            }
            turns::end_if_over();
            tables.rows.remove(block.first)?;
            for older in before(unreadable, block.first) {
                tables.rows.remove(older)?;
            }
            removed += usize::try_from(block.count).unwrap_or(usize::MAX);
        }
        Ok(removed)
    }

    fn sessions(&mut self, tables: &mut Tables<'_>, due: &Due, budget: usize) -> Result<usize, StoreError> {
        let mut ended = Vec::new();
        let (mut last, mut looked) = (None, 0);
        let after = (Bound::Excluded(self.session), Bound::Unbounded);
        for entry in tables.session_ends.range::<&NameHash>((after.0.as_ref(), after.1))?.take(budget) {
            let (name, ends) = entry?;
            last = Some(*name.value());
            looked += 1;
            if ends.value() > due.now {
                continue;
            }
            if due.held.contains(name.value()) {
                self.is_unfinished = true;
            } else {
                ended.push(*name.value());
            }
        }
        // After the last one, it begins again with the first.
        self.is_unfinished |= looked == budget || self.session != NameHash::default();
        self.session = last.unwrap_or_default();
        for name in &ended {
            tables.session_ends.remove(name)?;
            tables.sessions.remove(name)?;
        }
        Ok(ended.len())
    }
}

/// Where to go on after rows that cannot be read, which is said once.
fn skip(unreadable: &mut BTreeSet<u64>, number: u64) -> u64 {
    if unreadable.insert(number) {
        error!(number, "usage cannot be read; it is removed when what is after it has had its time");
    }
    number.saturating_add(1)
}

/// Takes out those before a number: they are older than it.
fn before(unreadable: &mut BTreeSet<u64>, number: u64) -> BTreeSet<u64> {
    let newer = unreadable.split_off(&number);
    std::mem::replace(unreadable, newer)
}

fn fingerprints(tables: &mut Tables<'_>, due: &Due, budget: usize) -> Result<usize, StoreError> {
    for removed in 0..budget {
        let Some((end, _)) = tables.fingerprint_ends.first()? else { return Ok(removed) };
        let (until, fingerprint) = end.value();
        let fingerprint = *fingerprint;
        drop(end);
        if until > due.now {
            return Ok(removed);
        }
        tables.fingerprint_ends.remove((until, &fingerprint))?;
        tables.fingerprints.remove(&fingerprint)?;
    }
    Ok(budget)
}
