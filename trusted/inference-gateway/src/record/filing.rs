//! Changes on their way into the tables of the database.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

use redb::{ReadableTable as _, Table, WriteTransaction};
use rust_decimal::Decimal;

use super::StoreError;
use super::blocks::{Blocks as _, Gathering};
use super::changes::{Change, NewReceipt};
use super::rows;
use super::segments::{Place, Position};
use super::tables::{
    BlockRow, COUNTERS, FINGERPRINT_ENDS, FINGERPRINTS, JOURNAL_OFFSET, JOURNAL_SEGMENT, NAMES,
    NEXT_GENERATION, NEXT_RECEIPT, NEXT_ROW, NameHash, OWED, RECEIPTS, ROWS, ReceiptEntry, SESSION_ENDS,
    SESSIONS, SET_ASIDE, SPENT,
};
use super::turns;
use crate::admission::KeyHash;

/// All tables, open for writing.
pub(super) struct Tables<'txn> {
    pub(super) counters: Table<'txn, &'static str, u64>,
    pub(super) receipts: Table<'txn, u64, BlockRow>,
    pub(super) names: Table<'txn, &'static NameHash, u64>,
    pub(super) rows: Table<'txn, u64, &'static [u8]>,
    owed: Table<'txn, u64, u64>,
    set_aside: Table<'txn, u64, &'static [u8]>,
    spent: Table<'txn, &'static [u8; 32], &'static [u8; 16]>,
    pub(super) sessions: Table<'txn, &'static NameHash, &'static [u8]>,
    pub(super) session_ends: Table<'txn, &'static NameHash, u64>,
    pub(super) fingerprints: Table<'txn, &'static [u8; 32], u64>,
    pub(super) fingerprint_ends: Table<'txn, (u64, &'static [u8; 32]), ()>,
}

impl<'txn> Tables<'txn> {
    /// Opens all tables; makes those that are not there.
    pub(super) fn open(transaction: &'txn WriteTransaction) -> Result<Self, StoreError> {
        Ok(Self {
            counters: transaction.open_table(COUNTERS)?,
            receipts: transaction.open_table(RECEIPTS)?,
            names: transaction.open_table(NAMES)?,
            rows: transaction.open_table(ROWS)?,
            owed: transaction.open_table(OWED)?,
            set_aside: transaction.open_table(SET_ASIDE)?,
            spent: transaction.open_table(SPENT)?,
            sessions: transaction.open_table(SESSIONS)?,
            session_ends: transaction.open_table(SESSION_ENDS)?,
            fingerprints: transaction.open_table(FINGERPRINTS)?,
            fingerprint_ends: transaction.open_table(FINGERPRINT_ENDS)?,
        })
    }

    pub(super) fn counter(&self, name: &'static str) -> Result<u64, StoreError> {
        Ok(self.counters.get(name)?.map_or(0, |value| value.value()))
    }

    /// Numbers of the next receipt and the next row.
    pub(super) fn next(&self) -> Result<(u64, u64), StoreError> {
        Ok((self.counter(NEXT_RECEIPT)?, self.counter(NEXT_ROW)?))
    }

    /// Takes over a generation of changes, in their order, each from where it stands, unless it is there already: a commit that
    /// failed may have been one. Whoever commits this has it once. Fails for one that is not the next.
    pub(super) fn file<'a>(
        &mut self,
        generation: u64,
        changes: impl Iterator<Item = (&'a Change, Place)>,
    ) -> Result<(), StoreError> {
        match generation.cmp(&self.counter(NEXT_GENERATION)?) {
            Ordering::Less => return Ok(()),
            Ordering::Equal => {}
            Ordering::Greater => return Err(StoreError::new("the generation before was not filed")),
        }
        let (first_receipt, first_row) = self.next()?;
        let (receipts, rows) = (Gathering::new(first_receipt), rows::Gathering::new(first_row));
        let mut next = Next { receipts, rows, spent: HashMap::new() };
        let mut end = None;
        for (change, place) in changes {
            self.file_one(change, place, &mut next)?;
            end = Some(place.after());
            turns::end_if_over();
        }
        if next.receipts.next() > first_receipt {
            next.receipts.store(&mut self.receipts)?;
            self.counters.insert(NEXT_RECEIPT, next.receipts.next())?;
        }
        if let Some(end) = end {
            self.set_position(end)?;
        }
        if next.rows.next() > first_row {
            next.rows.end_block(&mut self.rows)?;
            self.counters.insert(NEXT_ROW, next.rows.next())?;
        }
        for (key, cost) in next.spent {
            let before =
                self.spent.get(&key.0)?.map_or(Decimal::ZERO, |sum| Decimal::deserialize(*sum.value()));
            self.spent.insert(&key.0, &before.saturating_add(cost).serialize())?;
        }
        self.counters.insert(NEXT_GENERATION, generation.saturating_add(1))?;
        Ok(())
    }

    /// The database has all of the journal up to here.
    pub(super) fn set_position(&mut self, position: Position) -> Result<(), StoreError> {
        self.counters.insert(JOURNAL_SEGMENT, position.segment)?;
        self.counters.insert(JOURNAL_OFFSET, position.offset)?;
        Ok(())
    }

    /// The first segment of the journal that the database needs something of.
    pub(super) fn first_segment(&self) -> Result<u64, StoreError> {
        let filed = self.counter(JOURNAL_SEGMENT)?;
        Ok(self.receipts.first_block()?.map_or(filed, |block| block.segment().min(filed)))
    }

    fn file_one(&mut self, change: &Change, place: Place, next: &mut Next) -> Result<(), StoreError> {
        match change {
            Change::Finished { key, rows, cost, receipt } => {
                for row in rows {
                    next.rows.add(&mut self.rows, row)?;
                }
                if !cost.is_zero() {
                    let sum = next.spent.entry(*key).or_default();
                    *sum = sum.saturating_add(*cost);
                }
                if let Some(receipt) = receipt {
                    self.name_receipt(receipt, next.receipts.next())?;
                    next.receipts.add(place, ReceiptEntry::parse(&receipt.entry)?.served_at);
                }
            }
            Change::Session { name, document, ends } => {
                if self.sessions.get(name)?.is_none() {
                    self.sessions.insert(name, &document[..])?;
                }
                self.keep_until(name, *ends)?;
            }
            Change::Fingerprint { fingerprint, until } => self.remember(fingerprint, *until)?,
            Change::Posted { next } => self.told(*next)?,
            Change::SetAside { number, row } => {
                self.set_aside.insert(number, &row[..])?;
            }
            Change::Taken { number } => {
                self.set_aside.remove(number)?;
            }
        }
        Ok(())
    }

    fn name_receipt(&mut self, receipt: &NewReceipt, number: u64) -> Result<(), StoreError> {
        let [id, chat] = &receipt.names;
        self.names.insert(id, number)?;
        if chat != id {
            self.names.insert(chat, number)?;
        }
        let Some(session) = &receipt.session else { return Ok(()) };
        self.keep_until(session, receipt.needed_until)
    }

    /// A session is kept at least until a time.
    fn keep_until(&mut self, session: &NameHash, until: u64) -> Result<(), StoreError> {
        let known = self.session_ends.get(session)?.map_or(0, |ends| ends.value());
        if known < until {
            self.session_ends.insert(session, until)?;
        }
        Ok(())
    }

    fn remember(&mut self, fingerprint: &[u8; 32], until: u64) -> Result<(), StoreError> {
        let known = self.fingerprints.insert(fingerprint, until)?.map(|known| known.value());
        if let Some(known) = known {
            self.fingerprint_ends.remove((known, fingerprint))?;
        }
        self.fingerprint_ends.insert((until, fingerprint), ())?;
        Ok(())
    }

    /// Rows that a control plane is still to be told, in their order.
    pub(super) fn owed(&self) -> Result<Vec<Range<u64>>, StoreError> {
        let owed = self.owed.iter()?.map(|entry| {
            let (start, end) = entry?;
            Ok(start.value()..end.value())
        });
        owed.collect()
    }

    /// A control plane was told all rows before this one.
    fn told(&mut self, next: u64) -> Result<(), StoreError> {
        for Range { start, end } in self.owed()? {
            if start < next {
                self.owed.remove(start)?;
                if next < end {
                    self.owed.insert(next, end)?;
                }
            }
        }
        Ok(())
    }

    /// With a control plane, rows from now on are owed to it; without one, those that it is not told yet stay owed.
    pub(super) fn set_posting(&mut self, is_posting: bool) -> Result<(), StoreError> {
        let next = self.counter(NEXT_ROW)?;
        match self.owed()?.pop() {
            Some(Range { end: u64::MAX, .. }) if is_posting => {}
            // They go on where the last that are owed end.
            Some(Range { start, end }) if is_posting && end == next => {
                self.owed.insert(start, u64::MAX)?;
            }
            _ if is_posting => {
                self.owed.insert(next, u64::MAX)?;
            }
            Some(Range { start, end: u64::MAX }) => {
                self.owed.remove(start)?;
                if start < next {
                    self.owed.insert(start, next)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Rows from a number on are owed, in a database of the first layout.
    pub(super) fn owe_since(&mut self, first: u64) -> Result<(), StoreError> {
        self.owed.insert(first, u64::MAX)?;
        Ok(())
    }
}

/// What a generation adds: receipts, rows, and what was spent.
struct Next {
    receipts: Gathering,
    rows: rows::Gathering,
    spent: HashMap<KeyHash, Decimal>,
}
