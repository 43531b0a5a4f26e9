//! What the measured kernel command line says about the root file system.

const HASH: &str = "cloister.rootfs_verity=";
const BLOCKS: &str = "cloister.rootfs_blocks=";
/// Hexadecimal digits of a BLAKE2b-512.
const HASH_DIGITS: usize = 128;
/// Most blocks of a root file system: 16 TiB, so that no size in bytes overflows.
const MAX_BLOCKS: u64 = 1 << 32;

/// The root file system that this image was made with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RootPromise {
    /// Root of the hash tree: BLAKE2b-512, 128 lower-case hexadecimal digits.
    pub(super) root_hash: String,
    /// Blocks of the file system, each of [`super::root_disk::BLOCK_BYTES`]; the hash tree follows them.
    pub(super) blocks: u64,
}

/// A command line that does not name a root file system.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandLineError {
    #[error("it must hold {HASH} once, with {HASH_DIGITS} lower-case hex digits")]
    Hash,
    #[error("it must hold {BLOCKS} once, with a number from 1 to {MAX_BLOCKS}")]
    Blocks,
}

impl RootPromise {
    /// Reads the promise; a parameter that comes twice is as bad as none, since only one was meant.
    pub(super) fn parse(line: &str) -> Result<Self, CommandLineError> {
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let root_hash = only(line, HASH)
            .filter(|hash| hash.len() == HASH_DIGITS && hash.bytes().all(is_digit))
            .ok_or(CommandLineError::Hash)?;
        let blocks = only(line, BLOCKS)
            .and_then(|text| text.parse().ok())
            .filter(|blocks| (1..=MAX_BLOCKS).contains(blocks))
            .ok_or(CommandLineError::Blocks)?;
        Ok(Self { root_hash: root_hash.to_owned(), blocks })
    }
}

fn only<'a>(line: &'a str, parameter: &str) -> Option<&'a str> {
    let mut values = line.split_ascii_whitespace().filter_map(|word| word.strip_prefix(parameter));
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn needs_both_parameters_exactly_once() {
        let hash = format!("{HASH}{}", "ab".repeat(64));
        let blocks = format!("{BLOCKS}51401");
        let promise = RootPromise { root_hash: "ab".repeat(64), blocks: 51_401 };
        assert_eq!(RootPromise::parse(&format!("quiet {hash} {blocks}\n")), Ok(promise));
        assert_eq!(RootPromise::parse(&hash), Err(CommandLineError::Blocks));
        assert_eq!(RootPromise::parse(&blocks), Err(CommandLineError::Hash));
        assert_eq!(RootPromise::parse(&format!("{hash} {blocks} {blocks}")), Err(CommandLineError::Blocks));
        assert_eq!(RootPromise::parse(&format!("{hash} {hash} {blocks}")), Err(CommandLineError::Hash));
        assert_eq!(RootPromise::parse(&format!("{hash}0 {blocks}")), Err(CommandLineError::Hash));
        assert_eq!(
            RootPromise::parse(&format!("{} {blocks}", hash.to_uppercase())),
            Err(CommandLineError::Hash)
        );
        assert_eq!(RootPromise::parse(&format!("{hash} {BLOCKS}0")), Err(CommandLineError::Blocks));
        assert_eq!(
            RootPromise::parse(&format!("{hash} {BLOCKS}{}", u64::MAX)),
            Err(CommandLineError::Blocks)
        );
    }

    proptest! {
        #[test]
        fn what_is_taken_is_words_for_the_kernel(
            hash in "[0-9a-f]{127,129}|[0-9a-fA-F -]{128}", blocks in "[0-9+]{0,20}|-?[0-9 ]{1,8}",
        ) {
            if let Ok(promise) = RootPromise::parse(&format!("quiet {HASH}{hash} {BLOCKS}{blocks}")) {
                prop_assert_eq!(promise.root_hash.len(), 128);
                prop_assert!(promise.root_hash.bytes().all(|b| b.is_ascii_hexdigit()));
                prop_assert!(promise.blocks.checked_mul(4096).is_some());
            }
        }

        #[test]
        fn never_panics(line: String) {
            let _ = RootPromise::parse(&line);
        }
    }
}
