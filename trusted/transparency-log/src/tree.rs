use tlog_tiles::{HashReader, stored_hash_index, stored_hashes_for_record_hash, tree_hash};

/// A hash of the tree, SHA-256.
pub type Hash = [u8; 32];

/// Hash of a record as a leaf: SHA-256(0 ‖ record).
#[must_use]
pub fn leaf_hash(record: &[u8]) -> Hash {
    tlog_tiles::record_hash(record).0
}

/// A record on its way into a log, with its hash, which whoever brings it makes: the thread that writes has less to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    pub(crate) record: Vec<u8>,
    pub(crate) hash: Hash,
}

impl From<Vec<u8>> for Leaf {
    fn from(record: Vec<u8>) -> Self {
        Self { hash: leaf_hash(&record), record }
    }
}

/// A Merkle tree (RFC 6962) that grows leaf by leaf and remembers its right edge only: at most 64 hashes.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    size: u64,
    edge: Edge,
}

/// Roots of the perfect subtrees that the leaves make up, left to right, by their storage index.
#[derive(Debug, Clone, Default)]
struct Edge(Vec<(u64, tlog_tiles::Hash)>);

impl HashReader for Edge {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<tlog_tiles::Hash>, tlog_tiles::Error> {
        let find = |wanted: &u64| {
            let found = self.0.iter().rev().find(|(index, _)| index == wanted);
            found.map(|(_, hash)| *hash).ok_or(tlog_tiles::Error::IndexesNotInTree)
        };
        indexes.iter().map(find).collect()
    }
}

impl Tree {
    /// A tree without leaves.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of leaves.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Adds a record.
    pub fn push(&mut self, record: &[u8]) {
        self.push_leaf(leaf_hash(record), |_| {});
    }

    /// Adds a leaf and hands over all hashes that it completes, in the order in which they are stored.
    pub(crate) fn push_leaf(&mut self, leaf: Hash, mut stored: impl FnMut(Hash)) {
        let leaf = tlog_tiles::Hash(leaf);
        // The edge holds what the new leaf is combined with, always: the error cannot happen, and were it
        // to, the root would be wrong and nothing would verify.
        let completed =
            stored_hashes_for_record_hash(self.size, leaf, &self.edge).unwrap_or_else(|_| vec![leaf]);
        let joined = completed.len().saturating_sub(1);
        self.edge.0.truncate(self.edge.0.len().saturating_sub(joined));
        if let Some(last) = completed.last() {
            let level = u8::try_from(joined).unwrap_or(u8::MAX);
            self.edge.0.push((stored_hash_index(level, self.size >> joined), *last));
        }
        self.size += 1;
        for hash in completed {
            stored(hash.0);
        }
    }

    /// Root of the tree; of an empty one the hash of nothing.
    #[must_use]
    pub fn root(&self) -> Hash {
        // As above.
        tree_hash(self.size, &self.edge).map_or([0; 32], |hash| hash.0)
    }
}
