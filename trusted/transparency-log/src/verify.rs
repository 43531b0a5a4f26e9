//! Reading a log that somebody else keeps: nothing here believes what it is given.

use signed_note::{Note, StandardVerifier, Verifier as _, VerifierList};
use tlog_tiles::{check_record, check_tree};

use crate::{Hash, Tree};

/// Largest checkpoint, in bytes.
pub const MAX_CHECKPOINT_BYTES: usize = 64 * 1024;
/// Most hashes of a proof: two for each of 64 levels.
const MAX_PROOF_HASHES: usize = 128;

/// Why something about a log does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Not `<name>+<hash>+<key>` of an Ed25519 key.
    #[error("this is not a verifier key (<name>+<hash>+<key>, Ed25519)")]
    VerifierKey,
    /// Not a signed note with a checkpoint in it.
    #[error("this is not a signed checkpoint")]
    Malformed,
    /// The signature of the expected key is missing or wrong.
    #[error("the checkpoint is not signed by the expected key")]
    Signature,
    /// A checkpoint of another log.
    #[error("the checkpoint is of the log {found:?}, not {expected:?}")]
    Origin {
        /// Name in the checkpoint.
        found: String,
        /// Name of the key.
        expected: String,
    },
    /// The record is not at that place in the tree.
    #[error("the log does not contain the record at that place")]
    Inclusion,
    /// The larger tree does not begin with the smaller one: the past was changed.
    #[error("the log was changed after the fact: it does not begin with what it was before")]
    Consistency,
}

/// The state of a log at some time, as its key signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Name of the log.
    pub origin: String,
    /// Number of records.
    pub size: u64,
    /// Root of the tree.
    pub root: Hash,
}

impl Checkpoint {
    /// Reads a signed checkpoint and verifies it by the log's `verifier_key`. The log must have the name of
    /// the key.
    pub fn verified(note: &str, verifier_key: &str) -> Result<Self, VerifyError> {
        let verifier = StandardVerifier::new(verifier_key.trim()).map_err(|_| VerifyError::VerifierKey)?;
        let expected = verifier.name().to_owned();
        if note.len() > MAX_CHECKPOINT_BYTES {
            return Err(VerifyError::Malformed);
        }
        let note = Note::from_bytes(note.as_bytes()).map_err(|_| VerifyError::Malformed)?;
        // Succeeds only with at least one signature that holds.
        note.verify(&VerifierList::new(vec![Box::new(verifier)])).map_err(|_| VerifyError::Signature)?;
        let checkpoint =
            tlog_tiles::Checkpoint::from_bytes(note.text()).map_err(|_| VerifyError::Malformed)?;
        if checkpoint.origin() != expected {
            return Err(VerifyError::Origin { found: checkpoint.origin().to_owned(), expected });
        }
        Ok(Self { origin: expected, size: checkpoint.size(), root: checkpoint.hash().0 })
    }
}

/// Whether checkpoints can be verified by this key.
#[must_use]
pub fn is_verifier_key(text: &str) -> bool {
    StandardVerifier::new(text.trim()).is_ok()
}

/// Root of the tree of these records.
pub fn root_of<R: AsRef<[u8]>>(records: impl IntoIterator<Item = R>) -> Hash {
    let mut tree = Tree::new();
    records.into_iter().for_each(|record| tree.push(record.as_ref()));
    tree.root()
}

/// Checks that the record with the hash `leaf` is number `index` of the tree of `size` records with `root`.
pub fn inclusion(proof: &[Hash], size: u64, root: Hash, index: u64, leaf: Hash) -> Result<(), VerifyError> {
    let proof = hashes(proof).ok_or(VerifyError::Inclusion)?;
    check_record(&proof, size, tlog_tiles::Hash(root), index, tlog_tiles::Hash(leaf))
        .map_err(|_| VerifyError::Inclusion)
}

/// Checks that the tree of `size` records with `root` begins with the tree of `old_size` records with
/// `old_root`.
pub fn consistency(
    proof: &[Hash],
    old_size: u64,
    old_root: Hash,
    size: u64,
    root: Hash,
) -> Result<(), VerifyError> {
    if old_size == 0 {
        // Every tree begins with the empty one, which has one root only.
        let holds = proof.is_empty() && old_root == Tree::new().root();
        return if holds { Ok(()) } else { Err(VerifyError::Consistency) };
    }
    let proof = hashes(proof).ok_or(VerifyError::Consistency)?;
    check_tree(&proof, size, tlog_tiles::Hash(root), old_size, tlog_tiles::Hash(old_root))
        .map_err(|_| VerifyError::Consistency)
}

fn hashes(proof: &[Hash]) -> Option<Vec<tlog_tiles::Hash>> {
    (proof.len() <= MAX_PROOF_HASHES).then(|| proof.iter().copied().map(tlog_tiles::Hash).collect())
}
