//! Databases of earlier versions, brought up to this one.

use bytes::Bytes;
use redb::{ReadableTable as _, WriteTransaction};
use rust_decimal::Decimal;
use tracing::info;

use super::StoreError;
use super::blocks::Gathering;
use super::changes::{Change, NewReceipt};
use super::codec::split_first;
use super::disk::{Dir, Disk, OpenError};
use super::filing::Tables;
use super::journal::Journal;
use super::row_codec::row_ended_at;
use super::rows;
use super::segments::{Position, Segments, failed};
use super::shared::counter;
use super::store::cannot_read;
use super::tables::{
    COUNTERS, FIFTH_LAYOUT, FIRST_LAYOUT, FORMER_RECEIPTS, FORMER_ROWS, FOURTH_LAYOUT, LAYOUT, NEXT_POST,
    ReceiptEntry, SECOND_LAYOUT, TAKING_OVER, THIRD_LAYOUT, THIRD_RECEIPTS, VERSION,
};
use super::trouble::Troubles;
use crate::admission::KeyHash;

/// The journal of layouts before the fourth: empty after an orderly end.
const FORMER_JOURNAL: [&str; 2] = ["journal.0", "journal.1"];
const HOUR_S: u64 = 60 * 60;
/// Bytes of receipts that are written together.
const TOGETHER: usize = 1 << 20;

/// Brings a database of an earlier layout up to this one, which writes all usage rows anew, but for those of the fifth layout,
/// and all receipts, but for those of the fourth and the fifth. Fails for one of a newer program.
pub(super) fn take_over(dir: &Dir, disk: &Disk, segments: &Segments) -> Result<(), OpenError> {
    let found = disk.read(|transaction| counter(transaction, VERSION)).map_err(cannot_read(dir))?;
    let found = found.unwrap_or_default();
    if found == LAYOUT {
        return Ok(());
    }
    let upgrade = |error| OpenError::Upgrade(dir.database_path(), error);
    if [FOURTH_LAYOUT, FIFTH_LAYOUT].contains(&found) {
        let taken_over = disk.write(|transaction| {
            let mut tables = Tables::open(transaction)?;
            if found == FIFTH_LAYOUT {
                info!("what an earlier version has kept is taken over: that version cannot read it any more");
            } else {
                info!("usage of an earlier version is taken over, which writes it anew");
                move_rows(transaction, &mut tables)?;
            }
            tables.counters.insert(VERSION, LAYOUT)?;
            Ok(())
        });
        return taken_over.map_err(upgrade);
    }
    if ![FIRST_LAYOUT, SECOND_LAYOUT, THIRD_LAYOUT].contains(&found) {
        return Err(OpenError::Layout { path: dir.database_path(), found, known: LAYOUT });
    }
    for name in FORMER_JOURNAL {
        let path = dir.join(name);
        if std::fs::metadata(&path).is_ok_and(|journal| journal.len() > 0) {
            return Err(OpenError::Unfinished(path));
        }
    }
    let is_begun = disk.read(|transaction| counter(transaction, TAKING_OVER)).map_err(cannot_read(dir))?;
    let numbers = segments.numbers()?;
    if is_begun.is_none() {
        if !numbers.is_empty() {
            return Err(segments.is_newer());
        }
        let begun = disk.write(|transaction| {
            transaction.open_table(COUNTERS)?.insert(TAKING_OVER, 1)?;
            Ok(())
        });
        begun.map_err(upgrade)?;
    }
    info!("receipts and usage of an earlier version are taken over, which writes them anew");
    // What an attempt before has left.
    for number in numbers {
        segments.remove(number).map_err(OpenError::file(dir.join("")))?;
    }
    let mut is_all_written = false;
    let taken_over = disk.write(|transaction| {
        let mut tables = Tables::open(transaction)?;
        let owed = tables.counters.remove(NEXT_POST)?.map(|first| first.value());
        if let Some(first) = owed {
            tables.owe_since(first)?;
        }
        let mut receipts = Moving::begin(segments)?;
        each_former(transaction, |number, receipt| receipts.add(number, receipt))?;
        let (receipts, end) = receipts.end()?;
        receipts.store(&mut tables.receipts)?;
        move_rows(transaction, &mut tables)?;
        tables.set_position(end)?;
        tables.counters.insert(VERSION, LAYOUT)?;
        tables.counters.remove(TAKING_OVER)?;
        is_all_written = true;
        Ok(())
    });
    if let Err(error) = taken_over {
        // A commit that failed may have been one: only the next start knows whether the journal is needed.
        if !is_all_written {
            give_up(disk, segments);
        }
        return Err(upgrade(error));
    }
    for name in FORMER_JOURNAL {
        // One that stays is empty.
        let _ = std::fs::remove_file(dir.join(name));
    }
    Ok(())
}

/// Removes what an attempt has written that came to nothing. Where that cannot be done, the next one does it.
fn give_up(disk: &Disk, segments: &Segments) {
    let Ok(numbers) = segments.numbers() else { return };
    if numbers.into_iter().all(|number| segments.remove(number).is_ok()) {
        let _ = disk.write(|transaction| {
            transaction.open_table(COUNTERS)?.remove(TAKING_OVER)?;
            Ok(())
        });
    }
}

/// Makes blocks of the usage rows of earlier layouts. A block has rows of one hour: they go together.
fn move_rows(transaction: &WriteTransaction, tables: &mut Tables<'_>) -> Result<(), StoreError> {
    let former = transaction.open_table(FORMER_ROWS)?;
    let (mut rows, mut last_hour) = (rows::Gathering::new(0), None);
    for entry in former.iter()? {
        let (number, row) = entry?;
        rows.skip_to(&mut tables.rows, number.value())?;
        let hour = row_ended_at(row.value()).ok().map(|ended_at| ended_at / HOUR_S);
        if hour.is_some() && hour != last_hour {
            rows.end_block(&mut tables.rows)?;
            last_hour = hour;
        }
        rows.add(&mut tables.rows, row.value())?;
    }
    rows.end_block(&mut tables.rows)?;
    transaction.delete_table(former)?;
    Ok(())
}

/// Takes all receipts out of the tables of earlier layouts, in their order.
fn each_former(
    transaction: &WriteTransaction,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let former = transaction.open_table(FORMER_RECEIPTS)?;
    for entry in former.iter()? {
        let (number, receipt) = entry?;
        take(number.value(), receipt.value())?;
    }
    transaction.delete_table(former)?;
    let blocks = transaction.open_table(THIRD_RECEIPTS)?;
    for entry in blocks.iter()? {
        let (first, block) = entry?;
        let (mut number, mut rest) = (first.value(), block.value());
        while let Some((receipt, others)) = split_first(rest) {
            take(number, receipt)?;
            (number, rest) = (number.saturating_add(1), others);
        }
    }
    transaction.delete_table(blocks)?;
    Ok(())
}

/// Receipts on their way into the journal.
struct Moving {
    journal: Journal,
    troubles: Troubles,
    /// Changes that bring them, with number and time of each.
    together: Vec<(Vec<u8>, u64, u64)>,
    bytes: usize,
    receipts: Gathering,
}

impl Moving {
    fn begin(segments: &Segments) -> Result<Self, StoreError> {
        let journal =
            Journal::begin(segments.clone(), Position::default()).map_err(|error| failed(&error))?;
        let (troubles, receipts) = (Troubles::default(), Gathering::new(0));
        Ok(Self { journal, troubles, together: Vec::new(), bytes: 0, receipts })
    }

    /// One that cannot be read is left behind.
    fn add(&mut self, number: u64, receipt: &[u8]) -> Result<(), StoreError> {
        let Ok(ReceiptEntry { served_at, names, .. }) = ReceiptEntry::parse(receipt) else { return Ok(()) };
        let entry = Bytes::copy_from_slice(receipt);
        let receipt = Some(NewReceipt { entry, names, session: None, needed_until: 0, record: None });
        // Nobody takes it over a second time.
        let change =
            Change::Finished { key: KeyHash([0; 32]), rows: Vec::new(), cost: Decimal::ZERO, receipt };
        let carried = change.to_bytes();
        self.bytes += carried.len();
        self.together.push((carried, number, served_at));
        if self.bytes >= TOGETHER { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let carried = self.together.iter().map(|(carried, ..)| carried.as_slice());
        let mut at = self.journal.lock().append(&self.troubles, carried)?;
        for (carried, number, served_at) in self.together.drain(..) {
            let place = at.frame(&carried);
            at = place.after();
            self.receipts.skip_to(number);
            self.receipts.add(place, served_at);
        }
        self.bytes = 0;
        self.journal.turn(&self.troubles);
        Ok(())
    }

    /// Where they stand, durably, and where the journal ends.
    fn end(mut self) -> Result<(Gathering, Position), StoreError> {
        self.write()?;
        self.journal.sync(&self.troubles);
        if self.troubles.worst().is_some() {
            return Err(StoreError::unsettled());
        }
        Ok((self.receipts, self.journal.end()))
    }
}
