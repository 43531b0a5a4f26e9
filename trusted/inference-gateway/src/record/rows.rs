//! Usage rows in the database: blocks of rows that follow each other. A row of the database for each would cost more than
//! going over some others.

use redb::{ReadableTable, Table};

use super::StoreError;
use super::changes::row_ended_at;
use super::codec::{put, split_first};

/// Most bytes of a block: the database has a page of 16 KiB for it. A longer row has a block of its own.
const MOST_BYTES: usize = 16_000;
/// A block has rows of one hour, as far as that is known, in seconds: they go together.
const HOUR: u64 = 60 * 60;

/// Gathers rows into blocks, and puts these into their table.
#[derive(Debug)]
pub(super) struct Gathering {
    /// Number of the first row of the block.
    first: u64,
    next: u64,
    block: Vec<u8>,
    /// Of the last row of which it is known.
    hour: Option<u64>,
}

impl Gathering {
    /// The next row has this number.
    pub(super) const fn new(next: u64) -> Self {
        Self { first: next, next, block: Vec::new(), hour: None }
    }

    /// Number of the next row.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// The next row, and when its request ended, in seconds since the Unix epoch, where that is known.
    pub(super) fn add(
        &mut self,
        table: &mut Table<'_, u64, &[u8]>,
        row: &[u8],
        ended_at: Option<u64>,
    ) -> Result<(), StoreError> {
        let hour = ended_at.map(|ended_at| ended_at / HOUR).or(self.hour);
        if self.block.len() + row.len() > MOST_BYTES || hour != self.hour {
            self.end_block(table)?;
        }
        self.hour = hour;
        put(&mut self.block, row);
        self.next += 1;
        Ok(())
    }

    /// There is no row before this number that is still to come.
    pub(super) fn skip_to(
        &mut self,
        table: &mut Table<'_, u64, &[u8]>,
        number: u64,
    ) -> Result<(), StoreError> {
        if number != self.next {
            self.end_block(table)?;
            (self.first, self.next) = (number, number);
        }
        Ok(())
    }

    /// What has gathered is a block. Who has no more rows does this, too.
    pub(super) fn end_block(&mut self, table: &mut Table<'_, u64, &[u8]>) -> Result<(), StoreError> {
        if !self.block.is_empty() {
            table.insert(self.first, &self.block[..])?;
            self.block.clear();
        }
        self.first = self.next;
        Ok(())
    }
}

/// The rows of a block that can be told apart, with their numbers.
pub(super) fn of_block(first: u64, block: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = block;
    let rows = std::iter::from_fn(move || {
        let (row, others) = split_first(rest)?;
        rest = others;
        Some(row)
    });
    (first..).zip(rows)
}

/// What is to be known of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// Number of the first row.
    pub(super) first: u64,
    pub(super) count: u64,
    /// When the last request ended that it is about, in seconds since the Unix epoch; `None` if no row can be read.
    pub(super) ended_at: Option<u64>,
}

impl Block {
    /// Number of the row after its last.
    pub(super) const fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }
}

/// The table of blocks.
pub(super) trait Blocks: ReadableTable<u64, &'static [u8]> {
    /// Numbers and bytes of rows from a number on, at most so many.
    fn since(&self, from: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let block = self.range(..=from)?.next_back().transpose()?;
        let first = block.map_or(from, |(first, _)| first.value());
        let mut rows = Vec::new();
        for entry in self.range(first..)? {
            if rows.len() == limit {
                break;
            }
            let (first, block) = entry?;
            let found = of_block(first.value(), block.value()).filter(|(number, _)| *number >= from);
            rows.extend(found.take(limit - rows.len()).map(|(number, row)| (number, row.to_vec())));
        }
        Ok(rows)
    }

    /// The first block that begins with a number or a later one.
    fn next_block(&self, from: u64) -> Result<Option<Block>, StoreError> {
        let Some((first, block)) = self.range(from..)?.next().transpose()? else { return Ok(None) };
        let mut found = Block { first: first.value(), count: 0, ended_at: None };
        for (_, row) in of_block(found.first, block.value()) {
            found.count += 1;
            found.ended_at = row_ended_at(row).ok().max(found.ended_at);
        }
        Ok(Some(found))
    }
}

impl<T: ReadableTable<u64, &'static [u8]>> Blocks for T {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;
    use redb::{Database, ReadableDatabase as _, ReadableTableMetadata as _};

    use super::*;
    use crate::record::tables::ROWS;

    /// A row: how many numbers are left out before it, how long it is, and of which hour, if that is known.
    type Made = (u64, usize, Option<u8>);

    /// With their numbers.
    type Rows = Vec<(u64, Vec<u8>)>;

    /// A database of rows, and these.
    fn database(all: &[Made]) -> (Database, Rows) {
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        let transaction = database.begin_write().unwrap();
        let (mut gathering, mut rows) = (Gathering::new(3), Vec::new());
        {
            let mut table = transaction.open_table(ROWS).unwrap();
            for (gap, length, hour) in all {
                gathering.skip_to(&mut table, gathering.next() + gap).unwrap();
                let row = vec![hour.unwrap_or(b'?'); *length];
                rows.push((gathering.next(), row.clone()));
                gathering.add(&mut table, &row, hour.map(|hour| u64::from(hour) * HOUR + 7)).unwrap();
            }
            gathering.end_block(&mut table).unwrap();
            gathering.end_block(&mut table).unwrap();
        }
        transaction.commit().unwrap();
        (database, rows)
    }

    fn all() -> impl Strategy<Value = Vec<Made>> {
        let gap = prop_oneof![9 => Just(0_u64), 1 => 1_u64..4];
        let length = prop_oneof![8 => 0_usize..3000, 1 => 15_900_usize..16_100, 1 => Just(40_000)];
        prop::collection::vec((gap, length, prop::option::of(0_u8..2)), 0..60)
    }

    fn row(ended_at: u64) -> Vec<u8> {
        [&[0; 32][..], format!(r#"{{"endedAt":{ended_at}}}"#).as_bytes()].concat()
    }

    proptest! {
        #[test]
        fn rows_come_back_from_any_number_on(all in all(), from in 0_u64..80, limit in 0_usize..80) {
            let (database, mut rows) = database(&all);
            let table = database.begin_read().unwrap().open_table(ROWS).unwrap();
            let mut next = 0;
            for entry in table.range(0..).unwrap() {
                let (first, block) = entry.unwrap();
                prop_assert!(first.value() >= next);
                let rows: Vec<_> = of_block(first.value(), block.value()).collect();
                prop_assert!(rows.len() == 1 || block.value().len() <= MOST_BYTES + 4);
                let hours: BTreeSet<_> = rows.iter().filter_map(|(_, row)| row.first()).filter(|byte| **byte != b'?').collect();
                prop_assert!(hours.len() <= 1);
                next = first.value() + rows.len() as u64;
            }
            rows.retain(|(number, _)| *number >= from);
            rows.truncate(limit);
            prop_assert_eq!(table.since(from, limit).unwrap(), rows);
        }

        #[test]
        fn any_bytes_are_read(block: Vec<u8>) {
            let bytes: usize = of_block(0, &block).map(|(_, row)| row.len() + 4).sum();
            prop_assert!(bytes <= block.len());
        }
    }

    #[test]
    fn a_block_is_as_old_as_its_newest_row() {
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        let transaction = database.begin_write().unwrap();
        let mut table = transaction.open_table(ROWS).unwrap();
        let mut gathering = Gathering::new(0);
        for rows in [&[row(5), row(7), b"?".to_vec(), row(6)][..], &[b"?".to_vec()], &[row(8)]] {
            for row in rows {
                gathering.add(&mut table, row, None).unwrap();
            }
            gathering.end_block(&mut table).unwrap();
        }
        let block = |first, count, ended_at| Ok(Some(Block { first, count, ended_at }));
        assert_eq!(table.next_block(0), block(0, 4, Some(7)));
        assert_eq!(table.next_block(1), block(4, 1, None));
        assert_eq!(table.next_block(5), block(5, 1, Some(8)));
        assert_eq!(table.next_block(6), Ok(None));
        assert_eq!(table.len().unwrap(), 3);
    }
}
