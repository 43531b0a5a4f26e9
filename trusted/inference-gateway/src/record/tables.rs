//! What stands where in the database, and in which form.
//!
//! Receipts and usage rows are numbered in the order in which they were kept, from 0 without gaps: new ones go to the
//! end of their tables, and what has had its time is at the beginning. Whoever looks for a receipt knows a name of
//! it, and is its owner: names are hashed with the owner, so that another key's receipt is found no more than one
//! that never was.

use redb::TableDefinition;
use sha2::{Digest, Sha256};

use super::StoreError;
use crate::admission::KeyHash;
use crate::ids;

/// Counters by name.
pub(super) const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
/// Secrets by name.
pub(super) const SECRETS: TableDefinition<&str, &[u8; 32]> = TableDefinition::new("secrets");
/// From which receipt on the log has receipts in a row, and from which index on.
pub(super) const LOG_SEGMENTS: TableDefinition<u64, u64> = TableDefinition::new("log segments");
/// Where receipts stand in the journal: blocks by the number of their first one.
pub(super) const RECEIPTS: TableDefinition<u64, BlockRow> = TableDefinition::new("receipt places");
/// The same receipts themselves, in layout 3.
pub(super) const THIRD_RECEIPTS: TableDefinition<u64, &[u8]> = TableDefinition::new("receipt blocks");
/// Receipts by number, in layouts before that.
pub(super) const FORMER_RECEIPTS: TableDefinition<u64, &[u8]> = TableDefinition::new("receipts");
/// Numbers of receipts by the hash of a name.
pub(super) const NAMES: TableDefinition<&NameHash, u64> = TableDefinition::new("names");
/// Usage rows, each as `row_codec` writes it: blocks by the number of their first one.
pub(super) const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("row blocks");
/// The same rows by number, in layouts before the fifth.
pub(super) const FORMER_ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
/// Usage rows that a control plane was told and does not take, by number; each as above.
pub(super) const SET_ASIDE: TableDefinition<u64, &[u8]> = TableDefinition::new("rows set aside");
/// Rows that a control plane is still to be told: numbers of the first, and of the one after the last.
pub(super) const OWED: TableDefinition<u64, u64> = TableDefinition::new("owed rows");
/// What each key has spent: a decimal in its binary form.
pub(super) const SPENT: TableDefinition<&[u8; 32], &[u8; 16]> = TableDefinition::new("spent");
/// Session records by the hash of their id.
pub(super) const SESSIONS: TableDefinition<&NameHash, &[u8]> = TableDefinition::new("sessions");
/// Until when a session is kept, in seconds since the Unix epoch.
pub(super) const SESSION_ENDS: TableDefinition<&NameHash, u64> = TableDefinition::new("session ends");
/// Fingerprints, and until when they are remembered.
pub(super) const FINGERPRINTS: TableDefinition<&[u8; 32], u64> = TableDefinition::new("fingerprints");
/// The same in the order in which they are forgotten.
pub(super) const FINGERPRINT_ENDS: TableDefinition<(u64, &[u8; 32]), ()> =
    TableDefinition::new("fingerprint ends");

/// Counter: the layout of the database.
pub(super) const VERSION: &str = "version";
/// Counter: the number of the next receipt.
pub(super) const NEXT_RECEIPT: &str = "next receipt";
/// Counter: the number of the next usage row.
pub(super) const NEXT_ROW: &str = "next row";
/// Counter: the generation of changes that the database gets next.
pub(super) const NEXT_GENERATION: &str = "next generation";
/// Counters: up to where the database has all of the journal, as segment and offset.
pub(super) const JOURNAL_SEGMENT: &str = "journal segment";
/// See [`JOURNAL_SEGMENT`].
pub(super) const JOURNAL_OFFSET: &str = "journal offset";
/// Counter of layout 1: the number of the next row that a control plane is told; absent when there is none.
pub(super) const NEXT_POST: &str = "next post";
/// Counter: there while receipts of an earlier layout are taken over, so that what is in the journal is theirs.
pub(super) const TAKING_OVER: &str = "taking over";
/// Counter: by which time things had had their time when the database was written last, in seconds since the Unix epoch.
pub(super) const AGE: &str = "age";
/// Counter: there if receipts are logged.
pub(super) const IS_LOGGING: &str = "is logging";
/// Secret: seed of the key that signs the log of receipts.
pub(super) const LOG_KEY: &str = "log key";

/// The layout: layout 6 has usage rows that are not JSON.
pub(super) const LAYOUT: u64 = 6;
/// Layout 5 has them in blocks.
pub(super) const FIFTH_LAYOUT: u64 = 5;
/// Layout 4 has receipts in the journal.
pub(super) const FOURTH_LAYOUT: u64 = 4;
/// Layout 3 has them in blocks of its own.
pub(super) const THIRD_LAYOUT: u64 = 3;
/// Layout 2 has a journal beside it, and knows which rows are owed.
pub(super) const SECOND_LAYOUT: u64 = 2;
/// The layout before that one.
pub(super) const FIRST_LAYOUT: u64 = 1;

/// A block of receipts: its segment of the journal, where it begins there and where it ends, in bytes; how many receipts it
/// has, and when the newest was issued, in seconds since the Unix epoch.
pub(super) type BlockRow = (u64, u64, u64, u64, u64);

/// Stands for a name: at least 80 bits of it are of a hash, so that nobody finds a name that somebody else's stands for.
pub(super) type NameHash = [u8; 16];

/// What a name names.
#[derive(Debug, Clone, Copy)]
pub(super) enum NameKind {
    Receipt = 1,
    Chat = 2,
    Session = 3,
}

/// What stands for a name; `owner` where it is one only for its owner. Names that the gateway
/// gives receipts and answers begin with their time ([`crate::ids`]), which is kept in front: new ones go to the end of their
/// table, and few pages of it change. Digits of other names may look like a time, and are as good as any.
pub(super) fn name(kind: NameKind, owner: Option<KeyHash>, name: &str) -> NameHash {
    let hash = former_name(kind, owner, name);
    let time = match kind {
        NameKind::Receipt | NameKind::Chat => ids::time_of(name),
        NameKind::Session => None,
    };
    let mut ordered = time.into_iter().flatten().chain(hash);
    std::array::from_fn(|_| ordered.next().unwrap_or_default())
}

/// What stood for a name before there were times in names.
pub(super) fn former_name(kind: NameKind, owner: Option<KeyHash>, name: &str) -> NameHash {
    let owner = owner.map_or([0; 32], |owner| owner.0);
    let hash = Sha256::new().chain_update([kind as u8]).chain_update(owner).chain_update(name).finalize();
    let mut short = NameHash::default();
    short.copy_from_slice(hash.split_at(16).0);
    short
}

/// A receipt as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceiptEntry<'a> {
    /// When it was issued, in seconds since the Unix epoch.
    pub(super) served_at: u64,
    /// Its names.
    pub(super) names: [NameHash; 2],
    /// `rcpt-…`, at most 255 bytes.
    pub(super) id: &'a [u8],
    /// The signed document.
    pub(super) document: &'a [u8],
}

impl<'a> ReceiptEntry<'a> {
    #[cfg(test)]
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length());
        self.put(&mut bytes);
        bytes
    }

    /// Bytes that it takes.
    pub(super) const fn length(self) -> usize {
        41 + self.id.len() + self.document.len()
    }

    /// Appends it.
    pub(super) fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.served_at.to_le_bytes());
        out.extend_from_slice(self.names.as_flattened());
        out.push(u8::try_from(self.id.len()).unwrap_or(u8::MAX));
        out.extend_from_slice(self.id);
        out.extend_from_slice(self.document);
    }

    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, StoreError> {
        let read = || {
            let (served_at, rest) = bytes.split_first_chunk()?;
            let (first, rest) = rest.split_first_chunk()?;
            let (second, rest) = rest.split_first_chunk()?;
            let (length, rest) = rest.split_first()?;
            let (id, document) = rest.split_at_checked(usize::from(*length))?;
            Some(Self { served_at: u64::from_le_bytes(*served_at), names: [*first, *second], id, document })
        };
        read().ok_or_else(|| StoreError::damaged("a receipt"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn receipts_come_back(
            served_at: u64, names: [NameHash; 2],
            id in prop::collection::vec(any::<u8>(), 0..=255), document: Vec<u8>,
        ) {
            let entry = ReceiptEntry { served_at, names, id: &id, document: &document };
            let bytes = entry.to_bytes();
            prop_assert_eq!(ReceiptEntry::parse(&bytes).unwrap(), entry);
            // Cut anywhere before the document, it is none.
            for length in 0..41 + id.len() {
                prop_assert!(ReceiptEntry::parse(&bytes[..length]).is_err());
            }
        }
    }

    #[test]
    fn a_name_is_one_only_for_its_owner() {
        let (one, other) = (KeyHash::of("one"), KeyHash::of("other"));
        let hash = |kind, owner| name(kind, Some(owner), "rcpt-1");
        assert_ne!(hash(NameKind::Receipt, one), hash(NameKind::Receipt, other));
        assert_ne!(hash(NameKind::Receipt, one), hash(NameKind::Chat, one));
        assert_eq!(hash(NameKind::Chat, one), hash(NameKind::Chat, one));
    }
}
