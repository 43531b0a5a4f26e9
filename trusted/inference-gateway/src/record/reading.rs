//! What the store says: receipts, sessions, usage, and proofs of the log.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use cloister_aci::log::Inclusion;
use cloister_transparency_log::Log;
use rust_decimal::Decimal;
use serde::Serialize;
use tokio::sync::watch;
use tracing::error;

use super::blocks::{Block, Blocks as _};
use super::log::{self, of_log};
use super::pending::Generation;
use super::row_codec::parse_row;
use super::shared::{View, counter};
use super::store::Store;
use super::tables::{
    NAMES, NEXT_RECEIPT, NEXT_ROW, NameHash, NameKind, RECEIPTS, ReceiptEntry, SESSION_ENDS, SESSIONS, SPENT,
    former_name, name,
};
use super::{Logged, Lookup, Row, StoreError};
use crate::admission::KeyHash;
use crate::ids;

/// Most usage rows that are read at once.
const MAX_ROWS: usize = 10_000;

/// A usage row with what is known besides.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// Its number: from 0, without gaps, in the order in which rows were kept.
    pub number: u64,
    /// Whose request it was.
    pub api_key_hash: String,
    /// The row.
    #[serde(flatten)]
    pub row: Row,
}

impl Store {
    /// A receipt by its id or by the id of its answer, for who made the request. It takes as long to find none as
    /// to find that it is another key's: nothing tells them apart.
    pub fn receipt(&self, id: &str, asker: KeyHash) -> Result<Lookup, StoreError> {
        let found = self.find(id, asker)?;
        Ok(found.map_or(Lookup::Absent, |(_, document)| Lookup::Found(document)))
    }

    /// Number and document of a receipt that has not had its time.
    fn find(&self, id: &str, asker: KeyHash) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        let kinds = [NameKind::Receipt, NameKind::Chat];
        let names = kinds.map(|kind| [name, former_name].map(|form| form(kind, Some(asker), id)));
        let of_request = ids::receipt_of(id).map(|receipt| name(NameKind::Receipt, Some(asker), &receipt));
        let now = self.shared().now();
        let place = self.shared().view(|view| {
            let table = view.database.open_table(NAMES)?;
            let filed = |name: &NameHash| Ok::<_, StoreError>(table.get(name)?.map(|number| number.value()));
            let recent =
                |name: &NameHash| view.generations().rev().find_map(|recent| recent.names.get(name).copied());
            // All names are looked for everywhere, whatever is found.
            let [by_id, by_chat] = names.map(|[name, former]| {
                let (filed, former) = (filed(&name)?, filed(&former)?);
                Ok::<_, StoreError>(recent(&name).or(filed).or(former))
            });
            let by_request =
                of_request.as_ref().map(|name| Ok::<_, StoreError>(recent(name).or(filed(name)?)));
            let Some(number) = by_id?.or(by_chat?).or(by_request.transpose()?.flatten()) else {
                return Ok(None);
            };
            let recent = view.generations().find_map(|generation| generation.receipt(number));
            let place = match recent {
                Some(recent) => Ok(recent.clone()),
                None => Err(view.database.open_table(RECEIPTS)?.block_of(number)?),
            };
            Ok(Some((number, place)))
        })?;
        let Some((number, place)) = place else { return Ok(None) };
        // Nobody who writes waits for what is read from the disk.
        let bytes = match place {
            Ok(recent) => Some(recent),
            Err(block) => self.in_block(block, number)?.map(Bytes::from),
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let entry = ReceiptEntry::parse(&bytes)?;
        if !names.iter().flatten().any(|name| entry.names.contains(name)) {
            // Requests of which the first digits are the same have not the same id. Otherwise something was changed, so that
            // another one stands there.
            let is_like_it = of_request.is_some_and(|name| entry.names.contains(&name));
            return if is_like_it { Ok(None) } else { Err(StoreError::damaged("a receipt")) };
        }
        let is_current = entry.served_at.saturating_add(self.settings().receipts_s) > now;
        Ok(is_current.then(|| (number, entry.document.to_vec())))
    }

    /// The receipt of a number, out of its block.
    fn in_block(&self, block: Option<Block>, number: u64) -> Result<Option<Vec<u8>>, StoreError> {
        block.map_or(Ok(None), |block| block.receipt(&self.shared().journal.segments, number))
    }

    /// A session record. It may stay for an hour longer than it has to.
    pub fn session(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let (name, now) = (name(NameKind::Session, None, id), self.shared().now());
        self.shared().view(|view| {
            let filed = view.database.open_table(SESSION_ENDS)?.get(&name)?.map(|ends| ends.value());
            let recent =
                view.generations().filter_map(|generation| generation.session_ends.get(&name).copied());
            if recent.chain(filed).max().is_none_or(|ends| ends <= now) {
                return Ok(None);
            }
            let filed = view.database.open_table(SESSIONS)?.get(&name)?;
            let recent = view.generations().find_map(|generation| generation.sessions.get(&name));
            Ok(filed.map(|document| document.value().to_vec()).or_else(|| recent.map(|bytes| bytes.to_vec())))
        })
    }

    /// What a key has spent so far: the exact sum of the costs of all its rows, those that were removed included.
    pub fn spent(&self, key: KeyHash) -> Result<Decimal, StoreError> {
        self.shared().view(|view| {
            let filed = view.database.open_table(SPENT)?.get(&key.0)?;
            let filed = filed.map_or(Decimal::ZERO, |sum| Decimal::deserialize(*sum.value()));
            let recent = view.generations().filter_map(|generation| generation.spent.get(&key));
            Ok(recent.fold(filed, |sum, more| sum.saturating_add(*more)))
        })
    }

    /// Usage rows from a number on, at most `limit` and at most 10,000; those that cannot be read are skipped. Some may
    /// stay for up to an hour longer than they have to.
    pub fn usage(&self, from: u64, limit: usize) -> Result<Vec<UsageRow>, StoreError> {
        self.readable(from, |view, from| view.rows(from, limit.min(MAX_ROWS)))
    }

    /// The same of rows that a control plane was told and does not take: they stay until it does.
    pub fn set_aside(&self, from: u64, limit: usize) -> Result<Vec<UsageRow>, StoreError> {
        self.readable(from, |view, from| view.aside(from, limit.min(MAX_ROWS)))
    }

    /// The first rows that can be read of those that `read` finds from a number on. Others are said in the log, and
    /// hold up nobody.
    fn readable(
        &self,
        mut from: u64,
        read: impl Fn(&View<'_>, u64) -> Result<Vec<(u64, Vec<u8>)>, StoreError>,
    ) -> Result<Vec<UsageRow>, StoreError> {
        loop {
            let found = self.shared().view(|view| read(view, from))?;
            let Some((last, _)) = found.last() else { return Ok(Vec::new()) };
            from = last.saturating_add(1);
            let rows: Vec<_> = found.into_iter().filter_map(UsageRow::parse).collect();
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
    }

    /// How many rows are set aside.
    #[expect(clippy::redundant_closure_for_method_calls, reason = "a view of any lifetime")]
    pub fn set_aside_count(&self) -> Result<u64, StoreError> {
        self.shared().view(|view| view.aside_count())
    }

    /// The number of the first row that the control plane was not told; `None` without a control plane, if there is
    /// none of an earlier time either.
    pub fn next_to_post(&self) -> Result<Option<u64>, StoreError> {
        self.shared().view(|view| Ok(view.owed(0)?.map(|(first, _)| first)))
    }

    /// The first rows from a number on that the control plane was not told, at most `limit` and at most 10,000. There
    /// may be more after them that it is not to be told: it was told these when it [`posted`](Self::posted) the number
    /// after the last.
    pub fn unposted(&self, from: u64, limit: usize) -> Result<Vec<UsageRow>, StoreError> {
        self.readable(from, |view, from| {
            let Some((first, end)) = view.owed(from)? else { return Ok(Vec::new()) };
            let mut rows = view.rows(first, limit.min(MAX_ROWS))?;
            rows.retain(|(number, _)| *number < end);
            Ok(rows)
        })
    }

    /// The first rows that the control plane was not told, of those that are in the database: a loss of power takes none
    /// of them, so that nothing that is noted of a number is later about another row.
    pub fn to_post(&self, limit: usize) -> Result<Vec<UsageRow>, StoreError> {
        let next = self.shared().view(|view| Ok(counter(view.database, NEXT_ROW)?.unwrap_or_default()))?;
        let mut rows = self.unposted(0, limit)?;
        rows.retain(|row| row.number < next);
        Ok(rows)
    }

    /// Rows before a number that the control plane was not told and that cannot be read, as they are kept.
    pub fn unreadable(&self, before: u64) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        self.shared().view(|view| {
            let (mut unreadable, mut from) = (Vec::new(), 0);
            while let Some((first, end)) = view.owed(from)?.filter(|(first, _)| *first < before) {
                from = end.min(before);
                let rows = view.rows(first, usize::try_from(from - first).unwrap_or(usize::MAX))?;
                let rows = rows.into_iter().filter(|(number, _)| *number < from);
                unreadable.extend(rows.filter(|(_, bytes)| parse_row(bytes).is_err()));
            }
            Ok(unreadable)
        })
    }

    /// The numbers that the next receipt and the next usage row get: how many there have been.
    pub fn counts(&self) -> Result<(u64, u64), StoreError> {
        self.shared().view(|view| {
            let counter = |name| counter(view.database, name).map(Option::unwrap_or_default);
            let filed = (counter(NEXT_RECEIPT)?, counter(NEXT_ROW)?);
            Ok(view.generations().next_back().map_or(filed, Generation::next))
        })
    }

    /// Where a receipt is with regard to the log, for who made the request. Reads files.
    pub fn inclusion(&self, id: &str, asker: KeyHash) -> Result<Logged, StoreError> {
        // First: what is logged meanwhile is found.
        let next = self.shared().logged.load(Ordering::Acquire);
        let Some((number, _)) = self.find(id, asker)? else { return Ok(Logged::Absent) };
        let Some(log) = self.log() else { return Ok(Logged::Never) };
        // Before the places in it are read: they may become more meanwhile.
        let size = log.size();
        let found = self.shared().disk.read(|transaction| {
            let Some(index) = log::index_of(transaction, number, size)? else {
                return Ok(Err(if number >= next { Logged::Later } else { Logged::Never }));
            };
            Ok(Ok((index, transaction.open_table(RECEIPTS)?.block_of(number)?)))
        })?;
        let (index, block) = match found {
            Ok(found) => found,
            Err(logged) => return Ok(logged),
        };
        // It has had its time since it was found.
        let Some(bytes) = self.in_block(block, number)? else { return Ok(Logged::Absent) };
        let record = log::record(&ReceiptEntry::parse(&bytes)?);
        let checkpoint = log.checkpoint().map_err(|error| of_log(&error))?;
        let size = checkpoint.lines().nth(1).and_then(|size| size.parse().ok());
        let size = size.ok_or_else(|| StoreError::damaged("a checkpoint"))?;
        let hashes =
            log.inclusion(index, size).map_err(|error| of_log(&error))?.iter().map(hex::encode).collect();
        Ok(Logged::In(Inclusion { index, record, checkpoint, hashes }))
    }

    /// The log of receipts, if there is one.
    #[must_use]
    pub fn log(&self) -> Option<&Log> {
        self.receipt_log().map(|log| &log.log)
    }

    /// Tells when there are more receipts or rows in the database: the numbers that the next ones get.
    #[must_use]
    pub fn kept(&self) -> watch::Receiver<(u64, u64)> {
        self.shared().subscribe()
    }
}

impl UsageRow {
    /// `None` for one that cannot be read, which is said in the log.
    fn parse((number, bytes): (u64, Vec<u8>)) -> Option<Self> {
        let parsed =
            parse_row(&bytes).inspect_err(|failure| error!(number, %failure, "usage cannot be read"));
        parsed.ok().map(|(key, row)| Self { number, api_key_hash: key.to_string(), row })
    }
}
