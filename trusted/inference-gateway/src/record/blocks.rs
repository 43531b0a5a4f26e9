//! Where receipts stand: blocks of receipts in a row, each a range of the journal. A row of the database for each receipt
//! would cost more than finding it among some others.

use std::ops::ControlFlow;

use redb::{ReadableTable, Table};

use super::codec;
use super::frame;
use super::segments::{Place, Segments};
use super::tables::{BlockRow, ReceiptEntry};
use super::{StoreError, turns};

/// Most bytes of a block. A longer change is one of its own.
const MOST_BYTES: u64 = 64 << 10;
/// A receipt is in no block with one that was issued so many seconds before it: that would be kept as long.
const WITHIN: u64 = 60 * 60;

/// Receipts in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// Number of the first.
    pub(super) first: u64,
    pub(super) count: u64,
    /// When the newest was issued, in seconds since the Unix epoch.
    pub(super) served_at: u64,
    /// Of the changes that brought them.
    place: Place,
}

impl Block {
    const fn of(first: u64, (segment, begin, end, count, served_at): BlockRow) -> Self {
        Self { first, count, served_at, place: Place { segment, begin, end } }
    }

    const fn row(&self) -> BlockRow {
        let Place { segment, begin, end } = self.place;
        (segment, begin, end, self.count, self.served_at)
    }

    /// Number of the receipt after its last.
    pub(super) const fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    pub(super) const fn segment(&self) -> u64 {
        self.place.segment
    }

    /// Goes over its receipts that can be read, with their numbers, until it is told to stop. False if it came to what cannot
    /// be read; fails if that could not be found out.
    pub(super) fn receipts(
        &self,
        segments: &Segments,
        mut look: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<bool, StoreError> {
        let Some(bytes) = segments.read(self.place)? else {
            // What has had its time meanwhile is no more.
            return Ok(segments.is_forgotten(self.place.segment));
        };
        let carried = frame::carried(&bytes, self.place.segment);
        let mut numbers = self.first..self.end();
        for receipt in carried.filter_map(codec::receipt) {
            let Some(number) = numbers.next() else { return Ok(false) };
            if look(number, receipt).is_break() {
                return Ok(true);
            }
        }
        Ok(numbers.is_empty())
    }

    /// The receipt of a number; `None` if it is not in this block, or has had its time. Fails if it cannot be read.
    pub(super) fn receipt(&self, segments: &Segments, number: u64) -> Result<Option<Vec<u8>>, StoreError> {
        if !(self.first..self.end()).contains(&number) {
            return Ok(None);
        }
        let mut found = None;
        let is_whole = self.receipts(segments, |at, receipt| {
            if at < number {
                return ControlFlow::Continue(());
            }
            found = Some(receipt.to_vec());
            ControlFlow::Break(())
        })?;
        if is_whole { Ok(found) } else { Err(StoreError::damaged("a block of receipts")) }
    }
}

/// Gathers receipts that follow each other into blocks.
#[derive(Debug)]
pub(super) struct Gathering {
    next: u64,
    blocks: Vec<Block>,
    /// When the first receipt of the last block was issued, in seconds since the Unix epoch.
    began: u64,
}

impl Gathering {
    /// The next receipt has this number.
    pub(super) const fn new(next: u64) -> Self {
        Self { next, blocks: Vec::new(), began: 0 }
    }

    /// Number of the next receipt.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// The next one is of a change that stands there, and was issued then.
    pub(super) fn add(&mut self, place: Place, served_at: u64) {
        match self.blocks.last_mut() {
            Some(block)
                if block.end() == self.next
                    && place.segment == block.place.segment
                    && place.end.saturating_sub(block.place.begin) <= MOST_BYTES
                    && served_at.saturating_sub(self.began) <= WITHIN =>
            {
                block.count += 1;
                block.served_at = served_at.max(block.served_at);
                block.place.end = place.end;
            }
            _ => {
                self.blocks.push(Block { first: self.next, count: 1, served_at, place });
                self.began = served_at;
            }
        }
        self.next = self.next.saturating_add(1);
    }

    /// There is no receipt before this number.
    pub(super) const fn skip_to(&mut self, number: u64) {
        self.next = number;
    }

    /// Puts them into their table.
    pub(super) fn store(&self, table: &mut Table<'_, u64, BlockRow>) -> Result<(), StoreError> {
        for block in &self.blocks {
            table.insert(block.first, block.row())?;
            turns::end_if_over();
        }
        Ok(())
    }
}

/// The table of blocks.
pub(super) trait Blocks: ReadableTable<u64, BlockRow> {
    /// The first block.
    fn first_block(&self) -> Result<Option<Block>, StoreError> {
        Ok(self.first()?.map(|(first, row)| Block::of(first.value(), row.value())))
    }

    /// The block in which a number is, or would be.
    fn block_of(&self, number: u64) -> Result<Option<Block>, StoreError> {
        let found = self.range(..=number)?.next_back().transpose()?;
        Ok(found.map(|(first, row)| Block::of(first.value(), row.value())))
    }

    /// Goes over the receipts from a number on that can be read, in their order, until it is told to stop.
    fn since(
        &self,
        segments: &Segments,
        number: u64,
        mut look: impl FnMut(u64, &ReceiptEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let from = self.block_of(number)?.map_or(number, |block| block.first);
        for entry in self.range(from..)? {
            let (first, row) = entry?;
            let mut is_over = false;
            // What cannot be read holds up no other.
            Block::of(first.value(), row.value()).receipts(segments, |at, receipt| {
                if let Ok(receipt) = ReceiptEntry::parse(receipt)
                    && at >= number
                {
                    is_over = look(at, &receipt).is_break();
                }
                if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if is_over {
                break;
            }
        }
        Ok(())
    }
}

impl<T: ReadableTable<u64, BlockRow>> Blocks for T {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;
    use redb::{Database, ReadOnlyTable, ReadableDatabase as _, ReadableTableMetadata as _};
    use rust_decimal::Decimal;
    use tempfile::TempDir;

    use super::*;
    use crate::admission::KeyHash;
    use crate::record::changes::{Change, NewReceipt};
    use crate::record::disk::{Backing, Dir};
    use crate::record::journal::Journal;
    use crate::record::segments::Position;
    use crate::record::tables::RECEIPTS;
    use crate::record::trouble::Troubles;

    /// A change: how long its receipt is, if it has one, and how many seconds after the one before it was issued.
    type Made = (Option<usize>, u64);

    struct Lab {
        dir: TempDir,
        journal: Journal,
        database: Database,
    }

    fn entry(number: u64, served_at: u64, length: usize) -> Vec<u8> {
        let id = number.to_string();
        let document = vec![b'x'; length];
        ReceiptEntry { served_at, names: [[1; 16], [2; 16]], id: id.as_bytes(), document: &document }
            .to_bytes()
    }

    impl Lab {
        /// Has changes in its journal, which say where their receipts stand in its database; and these receipts.
        fn with(all: &[Made]) -> (Self, Vec<Vec<u8>>) {
            let dir = tempfile::tempdir().unwrap();
            let state = Dir::take(&dir.path().join("state")).unwrap();
            let segments = Segments::open(&state, &Backing::file()).unwrap();
            let journal = Journal::begin(segments, Position::default()).unwrap();
            let (mut gathering, mut receipts, mut served_at) = (Gathering::new(0), Vec::new(), 0);
            for (length, after) in all {
                served_at += after;
                let receipt = length.map(|length| {
                    receipts.push(entry(receipts.len() as u64, served_at, length));
                    let entry = receipts.last().unwrap().clone().into();
                    NewReceipt {
                        entry,
                        names: [[1; 16], [2; 16]],
                        session: None,
                        needed_until: 0,
                        record: None,
                    }
                });
                let has_one = receipt.is_some();
                let rows = vec![vec![b'?'; 500].into()];
                let change = Change::Finished { key: KeyHash([0; 32]), rows, cost: Decimal::ZERO, receipt };
                let carried = change.to_bytes();
                let at = journal.lock().append(&Troubles::default(), [&carried[..]]).unwrap();
                if has_one {
                    gathering.add(at.frame(&carried), served_at);
                }
            }
            let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
            let transaction = database.begin_write().unwrap();
            gathering.store(&mut transaction.open_table(RECEIPTS).unwrap()).unwrap();
            transaction.commit().unwrap();
            (Self { dir, journal, database }, receipts)
        }

        fn table(&self) -> ReadOnlyTable<u64, BlockRow> {
            self.database.begin_read().unwrap().open_table(RECEIPTS).unwrap()
        }

        fn blocks(&self) -> Vec<Block> {
            let row = |entry: Result<(redb::AccessGuard<'_, u64>, redb::AccessGuard<'_, BlockRow>), _>| {
                let (first, row) = entry.unwrap();
                Block::of(first.value(), row.value())
            };
            self.table().range(0..).unwrap().map(row).collect()
        }

        fn receipt(&self, number: u64) -> Result<Option<Vec<u8>>, StoreError> {
            let block = self.table().block_of(number)?;
            block.map_or(Ok(None), |block| block.receipt(&self.journal.segments, number))
        }

        /// Numbers of those that are found from one on.
        fn since(&self, from: u64) -> Vec<u64> {
            let mut found = Vec::new();
            let looked = self.table().since(&self.journal.segments, from, |number, receipt| {
                assert_eq!(receipt.id, number.to_string().as_bytes());
                found.push(number);
                ControlFlow::Continue(())
            });
            looked.unwrap();
            found
        }

        fn file(&self) -> std::path::PathBuf {
            self.dir.path().join(format!("state/journal/{:020}", 1))
        }

        /// What was written to it.
        fn bytes(&self) -> Vec<u8> {
            let mut bytes = std::fs::read(self.file()).unwrap();
            bytes.truncate(usize::try_from(self.journal.end().offset).unwrap());
            bytes
        }
    }

    fn all() -> impl Strategy<Value = Vec<Made>> {
        let length =
            prop_oneof![1 => Just(None), 6 => (0_usize..9000).prop_map(Some), 1 => Just(Some(100_000))];
        let after = prop_oneof![9 => 0_u64..60, 1 => 3500_u64..3700];
        prop::collection::vec((length, after), 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn receipts_come_back_by_their_number_and_in_their_order(all in all(), from in 0_u64..70) {
            let (lab, receipts) = Lab::with(&all);
            let count = receipts.len() as u64;
            for (number, receipt) in (0..).zip(receipts) {
                prop_assert_eq!(lab.receipt(number).unwrap(), Some(receipt));
            }
            prop_assert_eq!(lab.receipt(count).unwrap(), None);
            prop_assert_eq!(lab.since(from), (from..count.max(from)).collect::<Vec<_>>());
            prop_assert_eq!(lab.table().first_block().unwrap(), lab.blocks().first().copied());
        }

        #[test]
        fn a_block_is_not_large_and_its_receipts_go_at_much_the_same_time(all in all()) {
            let (lab, receipts) = Lab::with(&all);
            let served_at = |number: u64| ReceiptEntry::parse(&receipts[usize::try_from(number).unwrap()]).unwrap().served_at;
            let blocks = lab.blocks();
            for block in &blocks {
                prop_assert!(block.count == 1 || block.place.end - block.place.begin <= MOST_BYTES);
                prop_assert_eq!(block.served_at, served_at(block.end() - 1));
                prop_assert!(served_at(block.end() - 1) - served_at(block.first) <= WITHIN);
            }
            for (block, next) in blocks.iter().zip(blocks.iter().skip(1)) {
                prop_assert_eq!(block.end(), next.first);
                let bytes = lab.journal.segments.read(next.place).unwrap().unwrap();
                let one_more = next.place.begin + frame::length(frame::carried(&bytes, 1).next().unwrap());
                let is_late = served_at(next.first) - served_at(block.first) > WITHIN;
                prop_assert!(is_late || one_more - block.place.begin > MOST_BYTES, "no block is too many");
            }
        }

        /// What is damaged takes those behind it in its block, and no other.
        #[test]
        fn what_stands_before_damage_is_read(all in all(), at: prop::sample::Index, flip in 1_u8..) {
            let (lab, receipts) = Lab::with(&all);
            let mut bytes = lab.bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            std::fs::write(lab.file(), bytes).unwrap();
            let damaged = lab.blocks().into_iter().find(|block| (block.place.begin..block.place.end).contains(&(at as u64)));
            let mut lost = Vec::new();
            for (number, receipt) in (0..).zip(receipts) {
                if let Ok(found) = lab.receipt(number) {
                    prop_assert_eq!(found, Some(receipt));
                    prop_assert!(lost.last().is_none_or(|last| damaged.unwrap().end() == last + 1));
                } else {
                    prop_assert!(damaged.is_some_and(|block| (block.first..block.end()).contains(&number)));
                    lost.push(number);
                }
            }
            prop_assert_eq!(lost.is_empty(), damaged.is_none());
            let found = lab.since(0);
            prop_assert!(lost.iter().all(|lost| !found.contains(lost)));
            prop_assert_eq!(found.len() + lost.len(), usize::try_from(lab.blocks().last().map_or(0, Block::end)).unwrap());
        }
    }

    #[test]
    fn a_file_that_is_missing_or_cut_is_damage_and_one_that_was_forgotten_is_not() {
        let (lab, receipts) = Lab::with(&[(Some(10), 0), (Some(10), 0), (Some(100_000), 0)]);
        let bytes = lab.bytes();
        std::fs::write(lab.file(), &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(lab.receipt(1).unwrap().as_ref(), Some(&receipts[1]));
        lab.receipt(2).unwrap_err();
        assert_eq!(lab.since(0), [0, 1]);
        std::fs::remove_file(lab.file()).unwrap();
        lab.receipt(1).unwrap_err();
        assert_eq!(lab.since(0), [0_u64; 0]);
        lab.journal.segments.forget_before(2);
        assert_eq!(lab.receipt(1).unwrap(), None);
        assert_eq!(lab.table().len().unwrap(), 2);
    }
}
