//! Usage rows in the database: blocks of rows that follow each other. A row of the database for each would cost more than
//! going over some others.

use std::ops::ControlFlow;

use redb::{ReadableTable, Table};

use super::StoreError;
use super::codec::{put, split_first};
use super::row_codec::row_ended_at;

/// Most bytes of a block: the database has a page of 16 KiB for it. A longer row has a block of its own.
const MOST_BYTES: usize = 16_000;
/// Most rows of a block: none is shorter than its length and its owner.
const MOST_ROWS: usize = MOST_BYTES / 36;
/// Bytes of the count before the rows.
pub(super) const COUNT_BYTES: usize = 4;

/// Gathers rows into blocks, and puts these into their table.
#[derive(Debug)]
pub(super) struct Gathering {
    /// Number of the first row of the block.
    first: u64,
    next: u64,
    /// How many rows it has, and these.
    block: Vec<u8>,
}

impl Gathering {
    /// The next row has this number.
    pub(super) fn new(next: u64) -> Self {
        Self { first: next, next, block: vec![0; COUNT_BYTES] }
    }

    /// Number of the next row.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// The next row.
    pub(super) fn add(&mut self, table: &mut Table<'_, u64, &[u8]>, row: &[u8]) -> Result<(), StoreError> {
        if self.block.len() + row.len() > MOST_BYTES || self.count() == MOST_ROWS {
            self.end_block(table)?;
        }
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
        let count = self.count();
        if count > 0 {
            if let Some((place, _)) = self.block.split_first_chunk_mut() {
                *place = u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
            }
            table.insert(self.first, &self.block[..])?;
            self.block.truncate(COUNT_BYTES);
        }
        self.first = self.next;
        Ok(())
    }

    fn count(&self) -> usize {
        usize::try_from(self.next - self.first).unwrap_or(usize::MAX)
    }
}

/// The rows of a block with their numbers. Where they cannot be told apart any more, they are empty, as many as there were.
pub(super) fn of_block(first: u64, block: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let (count, mut rest) = block.split_first_chunk::<COUNT_BYTES>().unwrap_or((&[0; COUNT_BYTES], &[]));
    let count = usize::try_from(u32::from_le_bytes(*count)).unwrap_or(MOST_ROWS);
    let rows = std::iter::repeat_with(move || {
        let (row, others) = split_first(rest).unwrap_or_default();
        rest = others;
        row
    });
    (first..).zip(rows.take(count.min(MOST_ROWS)))
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
    /// Goes over blocks from one that begins with a number or a later one on: the number of its first row, and its rows,
    /// until it is told to stop.
    fn each_block(
        &self,
        from: u64,
        mut look: impl FnMut(u64, &mut dyn Iterator<Item = (u64, &[u8])>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut entries = self.range(from..)?.peekable();
        while let Some(entry) = entries.next() {
            let (first, block) = entry?;
            // One that is damaged has no rows of another.
            let end = match entries.peek() {
                Some(Ok((next, _))) => next.value(),
                Some(Err(_)) | None => u64::MAX,
            };
            let rows = of_block(first.value(), block.value());
            if look(first.value(), &mut rows.take_while(|(number, _)| *number < end)).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Numbers and bytes of rows from a number on, at most so many.
    fn since(&self, from: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let block = self.range(..=from)?.next_back().transpose()?;
        let first = block.map_or(from, |(first, _)| first.value());
        let mut found = Vec::new();
        self.each_block(first, |_, rows| {
            let wanted = rows.filter(|(number, _)| *number >= from).take(limit - found.len());
            found.extend(wanted.map(|(number, row)| (number, row.to_vec())));
            if found.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    /// The first block that begins with a number or a later one.
    fn next_block(&self, from: u64) -> Result<Option<Block>, StoreError> {
        let mut found = None;
        self.each_block(from, |first, rows| {
            let none = Block { first, count: 0, ended_at: None };
            found = Some(rows.fold(none, |block, (_, row)| Block {
                count: block.count + 1,
                ended_at: row_ended_at(row).ok().max(block.ended_at),
                ..block
            }));
            ControlFlow::Break(())
        })?;
        Ok(found)
    }
}

impl<T: ReadableTable<u64, &'static [u8]>> Blocks for T {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;
    use redb::{Database, ReadableDatabase as _, ReadableTableMetadata as _};

    use super::*;
    use crate::record::tables::ROWS;

    /// A row: how many numbers are left out before it, how long it is, and what is in it.
    type Made = (u64, usize, u8);

    /// With their numbers.
    type Rows = Vec<(u64, Vec<u8>)>;

    /// A database of rows, and these.
    fn database(all: &[Made]) -> (Database, Rows) {
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        let transaction = database.begin_write().unwrap();
        let (mut gathering, mut rows) = (Gathering::new(3), Vec::new());
        {
            let mut table = transaction.open_table(ROWS).unwrap();
            for (gap, length, byte) in all {
                gathering.skip_to(&mut table, gathering.next() + gap).unwrap();
                let row = vec![*byte; *length];
                rows.push((gathering.next(), row.clone()));
                gathering.add(&mut table, &row).unwrap();
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
        prop::collection::vec((gap, length, any::<u8>()), 0..60)
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
                prop_assert!(rows.len() == 1 || block.value().len() <= MOST_BYTES + COUNT_BYTES);
                next = first.value() + rows.len() as u64;
            }
            rows.retain(|(number, _)| *number >= from);
            rows.truncate(limit);
            prop_assert_eq!(table.since(from, limit).unwrap(), rows);
        }

        /// Whatever one is changed to, the others are what they were, and nothing else has their numbers.
        #[test]
        fn a_block_that_is_damaged_takes_no_other_with_it(
            all in all(), which: prop::sample::Index, damaged: Vec<u8>, count in 0_u32..5000, limit in 1_usize..80,
        ) {
            prop_assume!(!all.is_empty());
            let (database, rows) = database(&all);
            let firsts: Vec<_> = {
                let table = database.begin_read().unwrap().open_table(ROWS).unwrap();
                table.range(0..).unwrap().map(|entry| entry.unwrap().0.value()).collect()
            };
            let at = which.index(firsts.len());
            let of_it = firsts[at]..firsts.get(at + 1).copied().unwrap_or(u64::MAX);
            let transaction = database.begin_write().unwrap();
            let damaged = [&count.to_le_bytes()[..], &damaged].concat();
            transaction.open_table(ROWS).unwrap().insert(firsts[at], &damaged[..]).unwrap();
            transaction.commit().unwrap();
            let table = database.begin_read().unwrap().open_table(ROWS).unwrap();
            let (mut found, mut from) = (Vec::new(), 0);
            loop {
                let more = table.since(from, limit).unwrap();
                let Some((last, _)) = more.last() else { break };
                from = last + 1;
                found.extend(more);
            }
            prop_assert!(found.is_sorted_by(|(one, _), (next, _)| one < next));
            found.retain(|(number, _)| !of_it.contains(number));
            prop_assert_eq!(found, rows.into_iter().filter(|(number, _)| !of_it.contains(number)).collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_read(block: Vec<u8>) {
            prop_assert!(of_block(0, &block).count() <= MOST_ROWS);
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
                gathering.add(&mut table, row).unwrap();
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

    #[test]
    fn rows_that_cannot_be_told_apart_are_as_many_as_there_were() {
        let rows = [row(5), row(7), row(6)];
        let mut block = 3_u32.to_le_bytes().to_vec();
        for row in &rows {
            put(&mut block, row);
        }
        let found =
            |block: &[u8]| of_block(4, block).map(|(number, row)| (number, row.to_vec())).collect::<Vec<_>>();
        assert_eq!(found(&block), (4..).zip(rows.clone()).collect::<Vec<_>>());
        block.truncate(block.len() - 1);
        assert_eq!(found(&block), [(4, rows[0].clone()), (5, rows[1].clone()), (6, Vec::new())]);
        assert_eq!(found(&block[..4]), [(4, Vec::new()), (5, Vec::new()), (6, Vec::new())]);
        assert_eq!(found(&block[..3]), []);
    }
}
