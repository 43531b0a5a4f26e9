//! Blocks: receipts in a row that stand together in the database, which works by the page: each on its own costs more.
//!
//! A block is kept under the number of its first receipt: each receipt after its length. Pages of the database double in
//! size; a block fills most of the one that it takes.

use std::ops::ControlFlow;

use redb::{ReadableTable, Table};

use super::codec::{LENGTH_BYTES, put, split_first};
use super::tables::{NameHash, ReceiptEntry};
use super::{StoreError, turns};

/// The largest page that blocks are made for, in bytes. A longer receipt is a block of its own.
const LARGEST_PAGE: usize = 64 << 10;
/// The smallest page, in bytes: blocks that are shorter share one.
const SMALLEST_PAGE: usize = 4 << 10;
/// What the database itself needs of a page, in bytes, at most.
const PAGE_HEAD: usize = 64;
/// Bytes of receipts that are moved together into blocks.
const MOVED_TOGETHER: usize = 16 * LARGEST_PAGE;
/// Receipts are not moved into a block with one that was issued so many seconds before them: they would keep it.
const MOVED_WITHIN: u64 = 60 * 60;

/// A table of blocks that can be read.
pub(super) trait Blocks: ReadableTable<u64, &'static [u8]> {
    /// The receipt of a number; `None` if there is none. Fails if its block cannot be read as far as that.
    fn receipt(&self, number: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let Some((first, block)) = self.range(..=number)?.next_back().transpose()? else { return Ok(None) };
        let index = usize::try_from(number - first.value()).unwrap_or(usize::MAX);
        let (all, is_whole) = split(block.value());
        match all.get(index) {
            Some(receipt) => Ok(Some(receipt.to_vec())),
            None if is_whole => Ok(None),
            None => Err(damaged()),
        }
    }

    /// Goes over the receipts from a number on that can be read, in their order, until it is told to stop.
    fn since(
        &self,
        mut number: u64,
        mut look: impl FnMut(u64, &ReceiptEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let block_of_it = self.range(..=number)?.next_back().transpose()?.map(|(first, _)| first.value());
        for entry in self.range(block_of_it.unwrap_or(number)..)? {
            let (first, block) = entry?;
            for (at, receipt) in readable(first.value(), block.value()) {
                if at < number {
                    continue;
                }
                number = at.saturating_add(1);
                if look(at, &receipt).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl<T: ReadableTable<u64, &'static [u8]>> Blocks for T {}

/// Those receipts of a block that can be read, with their numbers.
fn readable(first: u64, block: &[u8]) -> impl Iterator<Item = (u64, ReceiptEntry<'_>)> {
    let (all, _) = split(block);
    (0..)
        .zip(all)
        .filter_map(move |(index, bytes)| Some((first.checked_add(index)?, ReceiptEntry::parse(bytes).ok()?)))
}

/// What is known of a block as a whole.
pub(super) struct Outline {
    /// Number of its last receipt that can be read.
    pub(super) last: u64,
    /// When the newest of these was issued, in seconds since the Unix epoch.
    pub(super) served_at: u64,
    /// Their numbers and names.
    pub(super) names: Vec<(u64, [NameHash; 2])>,
}

impl Outline {
    /// Of a block whose first receipt has this number. Fails if none of them can be read.
    pub(super) fn of(first: u64, block: &[u8]) -> Result<Self, StoreError> {
        let mut outline = Self { last: first, served_at: 0, names: Vec::new() };
        for (number, receipt) in readable(first, block) {
            outline.last = number;
            outline.served_at = receipt.served_at.max(outline.served_at);
            outline.names.push((number, receipt.names));
        }
        if outline.names.is_empty() { Err(damaged()) } else { Ok(outline) }
    }
}

/// Adds receipts in a row, of which this is the number of the first.
pub(super) fn append<B: AsRef<[u8]>>(
    table: &mut Table<'_, u64, &'static [u8]>,
    mut first: u64,
    mut receipts: &[B],
) -> Result<(), StoreError> {
    while !receipts.is_empty() {
        let (count, bytes) = fitting(receipts);
        let (together, rest) = receipts.split_at(count);
        let mut block = Vec::with_capacity(bytes);
        for receipt in together {
            put(&mut block, receipt.as_ref());
        }
        table.insert(first, &block[..])?;
        turns::end_if_over();
        first = first.saturating_add(count as u64);
        receipts = rest;
    }
    Ok(())
}

/// Moves receipts into blocks that were kept each on its own, by number.
pub(super) fn take_over(
    former: &impl ReadableTable<u64, &'static [u8]>,
    table: &mut Table<'_, u64, &'static [u8]>,
) -> Result<(), StoreError> {
    let (mut first, mut together, mut bytes, mut since) = (0_u64, Vec::new(), 0, 0_u64);
    for entry in former.iter()? {
        let (number, receipt) = entry?;
        let (number, receipt) = (number.value(), receipt.value());
        let served_at = ReceiptEntry::parse(receipt).map_or(since, |receipt| receipt.served_at);
        let is_next = number == first.saturating_add(together.len() as u64);
        if !is_next || bytes > MOVED_TOGETHER || served_at > since.saturating_add(MOVED_WITHIN) {
            append(table, first, &together)?;
            (first, bytes, since) = (number, 0, served_at);
            together.clear();
        }
        bytes += receipt.len();
        together.push(receipt.to_vec());
    }
    append(table, first, &together)
}

/// How many of the first receipts make a block, and of how many bytes: as many as fill more than three quarters of a
/// page, or do not fill the smallest.
fn fitting<B: AsRef<[u8]>>(receipts: &[B]) -> (usize, usize) {
    let mut page = LARGEST_PAGE;
    loop {
        let (mut count, mut bytes) = (0, 0);
        for receipt in receipts {
            let more = bytes + LENGTH_BYTES + receipt.as_ref().len();
            if count > 0 && more + PAGE_HEAD > page {
                break;
            }
            (count, bytes) = (count + 1, more);
        }
        if count <= 1 || page <= SMALLEST_PAGE || bytes + PAGE_HEAD > page / 4 * 3 {
            return (count, bytes);
        }
        page /= 2;
    }
}

/// The receipts of a block, and whether they are all of it: those before what cannot be read are as they were.
fn split(mut block: &[u8]) -> (Vec<&[u8]>, bool) {
    let mut all = Vec::new();
    while let Some((receipt, rest)) = split_first(block) {
        all.push(receipt);
        block = rest;
    }
    (all, block.is_empty())
}

fn damaged() -> StoreError {
    StoreError::damaged("a block of receipts")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;
    use redb::{Database, ReadableDatabase as _, ReadableTableMetadata as _};

    use super::*;
    use crate::record::tables::{FORMER_RECEIPTS, RECEIPTS};

    fn entry(number: u64, length: usize) -> Vec<u8> {
        let document = vec![b'x'; length];
        ReceiptEntry { served_at: number, names: [[1; 16], [2; 16]], id: b"rcpt-1", document: &document }
            .to_bytes()
    }

    fn database() -> Database {
        Database::builder().create_with_backend(InMemoryBackend::new()).unwrap()
    }

    fn write(database: &Database, work: impl FnOnce(&mut Table<'_, u64, &'static [u8]>)) {
        let transaction = database.begin_write().unwrap();
        work(&mut transaction.open_table(RECEIPTS).unwrap());
        transaction.commit().unwrap();
    }

    /// Numbers of those that are found from a number on, as a read sees them.
    fn found(database: &Database, from: u64) -> Vec<u64> {
        let table = database.begin_read().unwrap().open_table(RECEIPTS).unwrap();
        let mut found = Vec::new();
        table
            .since(from, |number, _| {
                found.push(number);
                ControlFlow::Continue(())
            })
            .unwrap();
        found
    }

    /// Lengths of receipts: most are alike, some are long.
    fn lengths() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(prop_oneof![8 => 1000_usize..4000, 1 => 0_usize..200_000], 0..120)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn receipts_come_back_by_their_number_and_in_their_order(
            batches in prop::collection::vec(lengths(), 1..4), first: u32,
        ) {
            let (database, first) = (database(), u64::from(first));
            let all: Vec<_> = (first..).zip(batches.iter().flatten()).map(|(at, length)| entry(at, *length)).collect();
            write(&database, |table| {
                let mut rest = &all[..];
                for batch in &batches {
                    let (now, later) = rest.split_at(batch.len());
                    append(table, first + (all.len() - rest.len()) as u64, now).unwrap();
                    rest = later;
                }
            });
            let end = first + all.len() as u64;
            prop_assert_eq!(found(&database, 0), (first..end).collect::<Vec<_>>());
            let middle = first + all.len() as u64 / 2;
            prop_assert_eq!(found(&database, middle), (middle..end).collect::<Vec<_>>());
            let table = database.begin_read().unwrap().open_table(RECEIPTS).unwrap();
            for (number, receipt) in (first..).zip(&all) {
                let kept = table.receipt(number).unwrap();
                prop_assert_eq!(kept.as_ref(), Some(receipt));
            }
            prop_assert_eq!(table.receipt(end).unwrap(), None);
            if let Some(before) = first.checked_sub(1) {
                prop_assert_eq!(table.receipt(before).unwrap(), None);
            }
        }

        #[test]
        fn a_block_fills_most_of_its_page(lengths in lengths()) {
            let all: Vec<_> = lengths.iter().map(|length| entry(0, *length)).collect();
            let mut rest = &all[..];
            while !rest.is_empty() {
                let (count, bytes) = fitting(rest);
                let page = (bytes + PAGE_HEAD).next_power_of_two().max(SMALLEST_PAGE);
                let is_full = page == SMALLEST_PAGE || bytes + PAGE_HEAD > page / 4 * 3;
                prop_assert!(count == 1 || page <= LARGEST_PAGE && is_full);
                rest = &rest[count..];
            }
        }

        /// Receipts before the first byte that is not what it was are as they were, and nothing else is made of it.
        #[test]
        fn what_stands_before_damage_is_read(
            lengths in prop::collection::vec(0_usize..50, 1..8), at: prop::sample::Index, flip in 1_u8..,
        ) {
            let (mut block, mut begins) = (Vec::new(), Vec::new());
            for (number, length) in (0..).zip(&lengths) {
                begins.push(block.len());
                put(&mut block, &entry(number, *length));
            }
            let at = at.index(block.len());
            let hit = begins.iter().rposition(|begin| *begin <= at).unwrap();
            block[at] ^= flip;
            let (found, _) = split(&block);
            prop_assert!(found.len() >= hit);
            for ((number, length), receipt) in (0..).zip(&lengths).zip(&found[..hit]) {
                prop_assert_eq!(*receipt, &entry(number, *length)[..]);
            }
            let _ = Outline::of(u64::MAX, &block);
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>, first: u64) {
            let _ = (split(&bytes), Outline::of(first, &bytes));
        }
    }

    #[test]
    fn what_cannot_be_read_hides_no_other() {
        let database = database();
        let good = [entry(5, 10), entry(9, 10)];
        write(&database, |table| {
            append(table, 0, &[&good[0][..], b"?", &good[1]]).unwrap();
            table.insert(3, &b"?"[..]).unwrap();
            append(table, 7, &good).unwrap();
        });
        assert_eq!(found(&database, 0), [0, 2, 7, 8]);
        assert_eq!(found(&database, 1), [2, 7, 8]);
        assert_eq!(found(&database, 4), [7, 8]);
        let table = database.begin_read().unwrap().open_table(RECEIPTS).unwrap();
        assert_eq!(table.receipt(1).unwrap().unwrap(), b"?");
        assert_eq!(table.receipt(4), Err(damaged()), "it may have been there");
        assert_eq!(table.receipt(9).unwrap(), None);
        let first = table.get(0).unwrap().unwrap();
        let outline = Outline::of(0, first.value()).unwrap();
        assert_eq!((outline.last, outline.served_at), (2, 9));
        assert_eq!(outline.names.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 2]);
        assert!(Outline::of(3, b"?").is_err());
        assert!(Outline::of(3, b"").is_err());
    }

    #[test]
    fn receipts_that_were_kept_on_their_own_are_taken_over() {
        let database = database();
        let numbers: Vec<_> = (3..1500).chain([1600, 1601]).collect();
        let transaction = database.begin_write().unwrap();
        {
            let mut former = transaction.open_table(FORMER_RECEIPTS).unwrap();
            for number in &numbers {
                former.insert(number, &entry(*number, 1800)[..]).unwrap();
            }
            former.insert(1602, &b"?"[..]).unwrap();
            take_over(&former, &mut transaction.open_table(RECEIPTS).unwrap()).unwrap();
        }
        transaction.commit().unwrap();
        assert_eq!(found(&database, 0), numbers);
        let table = database.begin_read().unwrap().open_table(RECEIPTS).unwrap();
        assert_eq!(table.receipt(1000).unwrap(), Some(entry(1000, 1800)));
        assert_eq!(table.receipt(1602).unwrap().as_deref(), Some(&b"?"[..]), "whoever can read it may");
        assert!(table.len().unwrap() < 60);
    }
}
