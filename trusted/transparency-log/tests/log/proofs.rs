//! Proofs against the definitions of RFC 6962, section 2.1, written down as they stand there.

use cloister_transparency_log::verify::{self, Checkpoint, VerifyError};
use cloister_transparency_log::{Hash, SigningKey, Tree, leaf_hash};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use crate::support::{ORIGIN, fill, key, open, record};

fn hash(parts: &[&[u8]]) -> Hash {
    Sha256::digest(parts.concat()).into()
}

/// Largest power of two smaller than `n`.
fn split(n: usize) -> usize {
    1 << (usize::BITS - 1 - (n - 1).leading_zeros())
}

fn tree_head(leaves: &[Vec<u8>]) -> Hash {
    match leaves {
        [] => hash(&[]),
        [leaf] => hash(&[&[0], leaf]),
        _ => {
            let (left, right) = leaves.split_at(split(leaves.len()));
            hash(&[&[1], &tree_head(left), &tree_head(right)])
        }
    }
}

fn path(index: usize, leaves: &[Vec<u8>]) -> Vec<Hash> {
    if leaves.len() == 1 {
        return Vec::new();
    }
    let k = split(leaves.len());
    let (left, right) = leaves.split_at(k);
    let (mut proof, other) = if index < k {
        (path(index, left), tree_head(right))
    } else {
        (path(index - k, right), tree_head(left))
    };
    proof.push(other);
    proof
}

fn proof(old: usize, leaves: &[Vec<u8>], whole: bool) -> Vec<Hash> {
    if old == leaves.len() {
        return if whole { Vec::new() } else { vec![tree_head(leaves)] };
    }
    let k = split(leaves.len());
    let (left, right) = leaves.split_at(k);
    let (mut result, other) = if old <= k {
        (proof(old, left, whole), tree_head(right))
    } else {
        (proof(old - k, right, false), tree_head(left))
    };
    result.push(other);
    result
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn roots_and_proofs_are_those_of_rfc_6962(size in 1_u64..130, a in any::<u64>(), b in any::<u64>()) {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path());
        let leaves: Vec<_> = (0..size).map(record).collect();
        crate::support::runtime().block_on(async {
            for leaf in &leaves {
                log.append(leaf.clone()).await.unwrap();
            }
        });
        let (index, to) = (a % size, 1 + b % size);
        let from = a % (to + 1);
        let until = |size: u64| &leaves[..usize::try_from(size).unwrap()];
        prop_assert_eq!(log.root(), tree_head(&leaves));

        let inclusion = log.inclusion(index, size).unwrap();
        prop_assert_eq!(&inclusion, &path(usize::try_from(index).unwrap(), &leaves));
        let leaf = leaf_hash(&record(index));
        prop_assert_eq!(verify::inclusion(&inclusion, size, log.root(), index, leaf), Ok(()));
        let wrong = verify::inclusion(&inclusion, size, log.root(), index, leaf_hash(b"other"));
        prop_assert_eq!(wrong, Err(VerifyError::Inclusion));

        let consistency = log.consistency(from, to).unwrap();
        let (old, new) = (tree_head(until(from)), tree_head(until(to)));
        if from > 0 {
            prop_assert_eq!(&consistency, &proof(usize::try_from(from).unwrap(), until(to), true));
        }
        prop_assert_eq!(verify::consistency(&consistency, from, old, to, new), Ok(()));
        let mut other = old;
        other[0] ^= 1;
        prop_assert_eq!(verify::consistency(&consistency, from, other, to, new), Err(VerifyError::Consistency));
        for position in 0..consistency.len() {
            let mut changed = consistency.clone();
            changed[position][31] ^= 1;
            prop_assert!(verify::consistency(&changed, from, old, to, new).is_err());
        }
    }

    #[test]
    fn no_proof_makes_a_reader_panic(
        hashes in prop::collection::vec(any::<[u8; 32]>(), 0..140),
        a in any::<u64>(), b in any::<u64>(), root in any::<[u8; 32]>(),
    ) {
        prop_assert!(verify::inclusion(&hashes, a, root, b, root).is_err());
        prop_assert!(verify::consistency(&hashes, a, root, b, root).is_err() || a == b);
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in "(?s).{0,300}", key in "[ -~]{0,80}") {
        prop_assert!(Checkpoint::verified(&text, &key).is_err());
        let good = SigningKey::from_seed(&[1; 32]).verifier_key("a");
        prop_assert!(Checkpoint::verified(&text, &good).is_err());
        let note = format!("{text}\n\n— a {text}\n");
        prop_assert!(Checkpoint::verified(&note, &good).is_err());
    }

    #[test]
    fn a_tree_that_grows_leaf_by_leaf_has_the_root_of_its_leaves(size in 0_u64..600) {
        let leaves: Vec<_> = (0..size).map(record).collect();
        let mut tree = Tree::new();
        for leaf in &leaves {
            tree.push(leaf);
        }
        prop_assert_eq!((tree.size(), tree.root()), (size, tree_head(&leaves)));
    }
}

#[test]
fn a_checkpoint_speaks_for_one_log_of_one_size() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let empty = log.checkpoint().unwrap();
    fill(&log, 3);
    let note = log.checkpoint().unwrap();
    assert_eq!(note, log.checkpoint().unwrap());
    assert!(note.starts_with("kms.example\n3\n"), "{note}");
    let verifier_key = log.verifier_key();
    assert_eq!(verifier_key, key().verifier_key(ORIGIN));
    let checkpoint = Checkpoint::verified(&note, &verifier_key).unwrap();
    assert_eq!((checkpoint.size, checkpoint.root), (3, log.root()));
    assert_eq!(Checkpoint::verified(&empty, &verifier_key).unwrap().size, 0);

    let other = SigningKey::from_seed(&[8; 32]).verifier_key(ORIGIN);
    assert_eq!(Checkpoint::verified(&note, &other), Err(VerifyError::Signature));
    let renamed = key().verifier_key("other.example");
    assert_eq!(Checkpoint::verified(&note, &renamed), Err(VerifyError::Signature));
    let forged = note.replacen("\n3\n", "\n4\n", 1);
    assert_eq!(Checkpoint::verified(&forged, &verifier_key), Err(VerifyError::Signature));
    assert_eq!(Checkpoint::verified(&note, "nonsense"), Err(VerifyError::VerifierKey));
    assert!(!verify::is_verifier_key("nonsense"));
    assert_eq!(Checkpoint::verified("nonsense", &verifier_key), Err(VerifyError::Malformed));
}

#[test]
fn nothing_is_proved_about_what_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    assert!(log.inclusion(0, 0).is_err());
    assert_eq!(log.records(0, 10).unwrap(), Vec::<Vec<u8>>::new());
    fill(&log, 5);
    assert!(log.inclusion(5, 5).is_err());
    assert!(log.inclusion(0, 6).is_err());
    assert!(log.consistency(3, 6).is_err());
    assert!(log.consistency(4, 3).is_err());
    assert!(log.inclusion(u64::MAX - 1, u64::MAX).is_err());
    assert!(log.records(6, 1).is_err());
    assert!(log.records(u64::MAX, usize::MAX).is_err());
    assert_eq!(log.records(3, 1).unwrap(), [record(3)]);
    assert_eq!(log.records(5, 1).unwrap(), Vec::<Vec<u8>>::new());
}
