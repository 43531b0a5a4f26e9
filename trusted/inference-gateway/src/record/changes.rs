//! What is written: made ready by the callers, each on its own, and kept by the writer, together.

use bytes::Bytes;
use rust_decimal::Decimal;

use super::codec::{FINISHED_BYTES, put_finished, put_with};
use super::log;
use super::row_codec::{put_row, row_bytes};
use super::store::Settings;
use super::tables::{NameHash, NameKind, ReceiptEntry, name};
use super::{Finished, KeptReceipt, StoreError, UsageRow};
use crate::admission::KeyHash;
use crate::ids;

/// Longest document of a receipt or a session, in bytes.
const MAX_DOCUMENT: usize = 8 << 20;
/// Ends of sessions are rounded up to this many seconds, so that not every receipt moves one.
const SESSION_STEP: u64 = 3600;
/// What a change takes in memory besides its bytes, about.
const OVERHEAD: usize = 512;
/// What a row and its length take at most, usually, in bytes.
const USUAL_ROW_BYTES: usize = 384;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// A request is over.
    Finished { key: KeyHash, rows: Vec<Bytes>, cost: Decimal, receipt: Option<NewReceipt> },
    /// A session was verified.
    Session { name: NameHash, document: Bytes, ends: u64 },
    /// A fingerprint is remembered.
    Fingerprint { fingerprint: [u8; 32], until: u64 },
    /// A control plane knows all rows before this one, or they are set aside.
    Posted { next: u64 },
    /// A control plane does not take a row.
    SetAside { number: u64, row: Bytes },
    /// It took it after all.
    Taken { number: u64 },
}

/// A receipt, as [`ReceiptEntry`] writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewReceipt {
    pub(super) entry: Bytes,
    /// Under which it is found. The same twice where one says both, or there is one; out of the journal, all that it has.
    pub(super) names: [NameHash; 2],
    pub(super) session: Option<NameHash>,
    /// Until when the session is needed, in seconds since the Unix epoch.
    pub(super) needed_until: u64,
    /// What the log says of it, if it is to be logged by this process; not in the journal.
    pub(super) record: Option<Bytes>,
}

impl Change {
    /// Whether it may turn out not to hold.
    pub(super) const fn is_judged(&self) -> bool {
        matches!(self, Self::Fingerprint { .. })
    }

    /// A session record. Fails for one that is too long.
    pub(super) fn session(id: &str, document: Vec<u8>, ends: u64) -> Result<Self, StoreError> {
        if document.len() > MAX_DOCUMENT {
            return Err(StoreError::new("a session record is too long to be kept"));
        }
        let name = name(NameKind::Session, None, id);
        Ok(Self::Session { name, document: document.into(), ends: whole_hour(ends) })
    }

    /// A row that a control plane does not take.
    pub(super) fn set_aside(row: &UsageRow) -> Result<Self, StoreError> {
        let mut key = [0; 32];
        hex::decode_to_slice(&row.api_key_hash, &mut key).map_err(|_| StoreError::damaged("a usage row"))?;
        Ok(Self::SetAside { number: row.number, row: row_bytes(KeyHash(key), row.row.clone()) })
    }

    /// What it takes in memory, in bytes, about.
    pub(super) fn bytes(&self) -> usize {
        let bytes = match self {
            Self::Finished { rows, receipt, .. } => {
                let receipt =
                    receipt.iter().flat_map(|receipt| receipt.record.iter().chain([&receipt.entry]));
                rows.iter().chain(receipt).map(Bytes::len).sum()
            }
            Self::Session { document, .. } => document.len(),
            Self::SetAside { row, .. } => row.len(),
            Self::Fingerprint { .. } | Self::Posted { .. } | Self::Taken { .. } => 0,
        };
        bytes + OVERHEAD
    }
}

/// A change that is ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) change: Change,
    /// The same, as the journal carries it.
    pub(super) carried: Bytes,
}

impl From<Change> for Ready {
    fn from(change: Change) -> Self {
        let carried = change.to_bytes().into();
        Self { change, carried }
    }
}

impl Ready {
    /// What is kept of a request. Fails for what is too long to be kept.
    pub(super) fn finished(finished: Finished, settings: &Settings) -> Result<Self, StoreError> {
        let Finished { key, rows, receipt } = finished;
        let cost = rows.iter().fold(Decimal::ZERO, |sum, row| sum.saturating_add(row.cost));
        let entry = receipt.as_ref().map(|receipt| entry(key, receipt)).transpose()?;
        let entry_bytes = entry.map_or(0, ReceiptEntry::length);
        let mut out = Vec::with_capacity(FINISHED_BYTES + entry_bytes + rows.len() * USUAL_ROW_BYTES);
        let needs = receipt.as_ref().map(|receipt| {
            let session = receipt.session_id.as_ref().map(|id| name(NameKind::Session, None, id));
            (session, whole_hour(receipt.served_at.saturating_add(settings.receipts_s)))
        });
        put_finished(&mut out, key, cost, needs);
        if let Some(entry) = entry {
            put_with(&mut out, |out| entry.put(out));
        }
        for row in rows {
            put_with(&mut out, |out| put_row(out, key, row));
        }
        // It is kept until the database has it, and counted as no more than this.
        out.shrink_to(out.len() + OVERHEAD / 2);
        let carried = out.into();
        let mut change = Change::parse(&carried)?;
        if let Change::Finished { receipt: Some(new), .. } = &mut change {
            // By the answer's id, the receipt's own is known.
            if receipt.as_ref().is_some_and(is_called_like_it) {
                let [id, chat] = &mut new.names;
                *chat = *id;
            }
            new.record = entry.filter(|_| settings.is_logging).map(|entry| log::record(&entry).into());
        }
        Ok(Self { change, carried })
    }
}

/// A receipt as it is kept.
fn entry(key: KeyHash, receipt: &KeptReceipt) -> Result<ReceiptEntry<'_>, StoreError> {
    let KeptReceipt { id, chat_id, document, served_at, .. } = receipt;
    if id.len() > usize::from(u8::MAX) || document.len() > MAX_DOCUMENT {
        return Err(StoreError::new("a receipt is too long to be kept"));
    }
    let own = name(NameKind::Receipt, Some(key), id);
    // A receipt without an id of an answer has one name, twice.
    let chat = chat_id.as_ref().map_or(own, |chat| name(NameKind::Chat, Some(key), chat));
    Ok(ReceiptEntry { served_at: *served_at, names: [own, chat], id: id.as_bytes(), document })
}

/// Whether the answer's id says the receipt's.
fn is_called_like_it(receipt: &KeptReceipt) -> bool {
    receipt.chat_id.as_deref().and_then(ids::receipt_of).is_some_and(|of| of == receipt.id)
}

fn whole_hour(time: u64) -> u64 {
    time.checked_next_multiple_of(SESSION_STEP).unwrap_or(time)
}
