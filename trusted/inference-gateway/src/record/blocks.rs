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

    /// Whether the next receipt, which stands there, can be its next one.
    const fn takes(&self, place: Place, served_at: u64) -> bool {
        place.segment == self.place.segment
            && place.end.saturating_sub(self.place.begin) <= MOST_BYTES
            && served_at.saturating_sub(self.served_at) <= WITHIN
    }

    /// Goes over its receipts that can be read, with their numbers, until it is told to stop. False if it came to what cannot
    /// be read; fails if that is the disk's fault.
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
}

/// Gathers receipts that follow each other into blocks.
#[derive(Debug)]
pub(super) struct Gathering {
    next: u64,
    blocks: Vec<Block>,
}

impl Gathering {
    /// The next receipt has this number.
    pub(super) const fn new(next: u64) -> Self {
        Self { next, blocks: Vec::new() }
    }

    /// Number of the next receipt.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// The next one is of a change that stands there, and was issued then.
    pub(super) fn add(&mut self, place: Place, served_at: u64) {
        match self.blocks.last_mut() {
            Some(block) if block.end() == self.next && block.takes(place, served_at) => {
                block.count += 1;
                block.served_at = served_at.max(block.served_at);
                block.place.end = place.end;
            }
            _ => self.blocks.push(Block { first: self.next, count: 1, served_at, place }),
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

    /// The receipt of a number; `None` if there is none. Fails if its block cannot be read as far as that.
    fn receipt(&self, segments: &Segments, number: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(block) = self.block_of(number)?.filter(|block| number < block.end()) else {
            return Ok(None);
        };
        let mut found = None;
        let is_whole = block.receipts(segments, |at, receipt| {
            if at < number {
                return ControlFlow::Continue(());
            }
            found = Some(receipt.to_vec());
            ControlFlow::Break(())
        })?;
        if is_whole { Ok(found) } else { Err(StoreError::damaged("a block of receipts")) }
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
