//! What is written: made ready by the callers, each on its own, and applied by the writer, together.

use std::collections::HashMap;

use redb::{ReadableTable as _, ReadableTableMetadata as _, Table, WriteTransaction};
use rust_decimal::Decimal;
use serde_json::value::RawValue;

use super::tables::{
    COUNTERS, FINGERPRINT_ENDS, FINGERPRINTS, NAMES, NEXT_POST, NEXT_RECEIPT, NEXT_ROW, NameHash, NameKind,
    RECEIPTS, ROWS, ReceiptEntry, SESSION_ENDS, SESSIONS, SPENT, name,
};
use super::{Finished, Row, StoreError};
use crate::admission::KeyHash;

/// Longest document of a receipt or a session, in bytes.
const MAX_DOCUMENT: usize = 8 << 20;
/// Longest `usage` of an upstream that is kept, in bytes. Its counts are kept anyway.
const MAX_USAGE: usize = 16 << 10;
/// Longest text of a row, in bytes.
const MAX_TEXT: usize = 512;
/// Fingerprints that are remembered at once. They are forgotten after some minutes: who sends more than this many
/// requests in them is refused.
const MAX_FINGERPRINTS: u64 = 1 << 20;
/// Ends of sessions are rounded up to this many seconds, so that not every receipt moves one.
const SESSION_STEP: u64 = 3600;
/// What a change takes in memory besides its bytes, about.
const OVERHEAD: usize = 512;

/// One change.
#[derive(Debug)]
pub(super) enum Change {
    /// A request is over.
    Finished { key: KeyHash, rows: Vec<Vec<u8>>, cost: Decimal, receipt: Option<NewReceipt> },
    /// A session was verified.
    Session { name: NameHash, document: Vec<u8>, ends: u64 },
    /// A fingerprint is to be remembered.
    Fingerprint { fingerprint: [u8; 32], until: u64 },
    /// A control plane knows all rows before this one.
    Posted { next: u64 },
}

/// A receipt, as [`ReceiptEntry`] writes it.
#[derive(Debug)]
pub(super) struct NewReceipt {
    entry: Vec<u8>,
    names: [NameHash; 2],
    session: Option<NameHash>,
    /// Until when the session is needed, in seconds since the Unix epoch.
    needed_until: u64,
}

impl Change {
    /// What is kept of a request. Fails for what is too long to be kept.
    pub(super) fn finished(finished: Finished, receipts_s: u64) -> Result<Self, StoreError> {
        let Finished { key, rows, receipt } = finished;
        let cost = rows.iter().fold(Decimal::ZERO, |sum, row| sum.saturating_add(row.cost));
        let rows = rows.into_iter().map(|row| row_bytes(key, row)).collect::<Result<_, _>>()?;
        let receipt = receipt
            .map(|receipt| {
                let id = name(NameKind::Receipt, Some(key), &receipt.id);
                // A receipt without an id of an answer has one name, twice.
                let chat = receipt.chat_id.as_ref().map_or(id, |chat| name(NameKind::Chat, Some(key), chat));
                let session = receipt.session_id.as_ref().map(|id| name(NameKind::Session, None, id));
                if receipt.id.len() > usize::from(u8::MAX) || receipt.document.len() > MAX_DOCUMENT {
                    return Err(StoreError::new("a receipt is too long to be kept"));
                }
                let served_at = receipt.served_at;
                let entry = ReceiptEntry {
                    served_at,
                    names: [id, chat],
                    id: receipt.id.as_bytes(),
                    document: &receipt.document,
                };
                let needed_until = served_at.saturating_add(receipts_s);
                Ok(NewReceipt { entry: entry.to_bytes(), names: [id, chat], session, needed_until })
            })
            .transpose()?;
        Ok(Self::Finished { key, rows, cost, receipt })
    }

    /// A session record. Fails for one that is too long.
    pub(super) fn session(id: &str, document: Vec<u8>, ends: u64) -> Result<Self, StoreError> {
        if document.len() > MAX_DOCUMENT {
            return Err(StoreError::new("a session record is too long to be kept"));
        }
        Ok(Self::Session { name: name(NameKind::Session, None, id), document, ends })
    }

    /// What it takes in memory, in bytes, about.
    pub(super) fn bytes(&self) -> usize {
        let bytes = match self {
            Self::Finished { rows, receipt, .. } => {
                rows.iter().map(Vec::len).sum::<usize>()
                    + receipt.as_ref().map_or(0, |receipt| receipt.entry.len())
            }
            Self::Session { document, .. } => document.len(),
            Self::Fingerprint { .. } | Self::Posted { .. } => 0,
        };
        bytes + OVERHEAD
    }
}

fn row_bytes(key: KeyHash, mut row: Row) -> Result<Vec<u8>, StoreError> {
    row.usage = row.usage.filter(|usage| usage.get().len() <= MAX_USAGE);
    let texts = [Some(&mut row.request_model), row.error_message.as_mut(), row.selected_route_id.as_mut()];
    for text in texts.into_iter().flatten() {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
    }
    let mut bytes = key.0.to_vec();
    serde_json::to_writer(&mut bytes, &row).map_err(|_| StoreError::new("a usage row cannot be written"))?;
    Ok(bytes)
}

/// A usage row as it is kept.
pub(super) fn parse_row(bytes: &[u8]) -> Result<(KeyHash, Row), StoreError> {
    let damaged = || StoreError::damaged("a usage row");
    let (key, json) = bytes.split_first_chunk().ok_or_else(damaged)?;
    Ok((KeyHash(*key), serde_json::from_slice(json).map_err(|_| damaged())?))
}

/// When a row's request ended.
pub(super) fn row_ended_at(bytes: &[u8]) -> Result<u64, StoreError> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Ended<'a> {
        ended_at: u64,
        #[serde(borrow, default, rename = "usage")]
        _usage: Option<&'a RawValue>,
    }
    let json = bytes.split_first_chunk::<32>().map(|(_, json)| json);
    json.and_then(|json| serde_json::from_slice::<Ended>(json).ok())
        .map(|row| row.ended_at)
        .ok_or_else(|| StoreError::damaged("a usage row"))
}

/// All tables, open for writing.
pub(super) struct Tables<'txn> {
    pub(super) counters: Table<'txn, &'static str, u64>,
    pub(super) receipts: Table<'txn, u64, &'static [u8]>,
    pub(super) names: Table<'txn, &'static NameHash, u64>,
    pub(super) rows: Table<'txn, u64, &'static [u8]>,
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

    /// Applies changes in their order. What is answered to each stands at its place.
    pub(super) fn apply(&mut self, changes: &[&Change], now: u64) -> Result<Vec<Answer>, StoreError> {
        let (first_receipt, first_row) = (self.counter(NEXT_RECEIPT)?, self.counter(NEXT_ROW)?);
        let mut next = Next { receipt: first_receipt, row: first_row, spent: HashMap::new() };
        let answers =
            changes.iter().map(|change| self.apply_one(change, now, &mut next)).collect::<Result<_, _>>()?;
        if next.receipt > first_receipt {
            self.counters.insert(NEXT_RECEIPT, next.receipt)?;
        }
        if next.row > first_row {
            self.counters.insert(NEXT_ROW, next.row)?;
        }
        for (key, cost) in next.spent {
            let before =
                self.spent.get(&key.0)?.map_or(Decimal::ZERO, |sum| Decimal::deserialize(*sum.value()));
            self.spent.insert(&key.0, &before.saturating_add(cost).serialize())?;
        }
        Ok(answers)
    }

    fn apply_one(&mut self, change: &Change, now: u64, next: &mut Next) -> Result<Answer, StoreError> {
        match change {
            Change::Finished { key, rows, cost, receipt } => {
                for row in rows {
                    self.rows.insert(next.row, row.as_slice())?;
                    next.row += 1;
                }
                if !cost.is_zero() {
                    let sum = next.spent.entry(*key).or_default();
                    *sum = sum.saturating_add(*cost);
                }
                if let Some(receipt) = receipt {
                    self.keep_receipt(receipt, next.receipt)?;
                    next.receipt += 1;
                }
            }
            Change::Session { name, document, ends } => {
                if self.sessions.get(name)?.is_none() {
                    self.sessions.insert(name, document.as_slice())?;
                }
                self.keep_until(name, *ends)?;
            }
            Change::Fingerprint { fingerprint, until } => return self.remember(fingerprint, *until, now),
            Change::Posted { next } => {
                self.counters.insert(NEXT_POST, *next)?;
            }
        }
        Ok(Answer::Yes)
    }

    fn keep_receipt(&mut self, receipt: &NewReceipt, number: u64) -> Result<(), StoreError> {
        self.receipts.insert(number, receipt.entry.as_slice())?;
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
            let until = until.checked_next_multiple_of(SESSION_STEP).unwrap_or(until);
            self.session_ends.insert(session, until)?;
        }
        Ok(())
    }

    fn remember(&mut self, fingerprint: &[u8; 32], until: u64, now: u64) -> Result<Answer, StoreError> {
        let known = self.fingerprints.get(fingerprint)?.map(|until| until.value());
        match known {
            Some(known) if known > now => return Ok(Answer::No),
            Some(known) => {
                self.fingerprint_ends.remove((known, fingerprint))?;
            }
            None if self.fingerprints.len()? >= MAX_FINGERPRINTS => return Ok(Answer::Full),
            None => {}
        }
        self.fingerprints.insert(fingerprint, until)?;
        self.fingerprint_ends.insert((until, fingerprint), ())?;
        Ok(Answer::Yes)
    }
}

/// Where new entries go, and what they cost.
struct Next {
    receipt: u64,
    row: u64,
    spent: HashMap<KeyHash, Decimal>,
}

/// What becomes of a change that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It holds.
    Yes,
    /// The fingerprint was known.
    No,
    /// No more fingerprints can be remembered now.
    Full,
}
