//! What the measured kernel command line says about the root file system.

const HASH: &str = "cloister.rootfs_sha256=";
const BYTES: &str = "cloister.rootfs_bytes=";

/// The root file system that this image was made with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RootPromise {
    /// Size of the file system image in bytes, a multiple of the sector size.
    pub(super) bytes: u64,
}

/// A command line that does not name a root file system.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommandLineError {
    #[error("it must hold {HASH} once, with 64 hex digits")]
    Hash,
    #[error("it must hold {BYTES} once, with a number")]
    Bytes,
}

impl RootPromise {
    /// Reads the promise; a parameter that comes twice is as bad as none, since only one was meant.
    pub(super) fn parse(line: &str) -> Result<Self, CommandLineError> {
        let hash = only(line, HASH).ok_or(CommandLineError::Hash)?;
        if hash.len() != 64 || !hash.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(CommandLineError::Hash);
        }
        let bytes = only(line, BYTES).and_then(|text| text.parse().ok()).ok_or(CommandLineError::Bytes)?;
        Ok(Self { bytes })
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
        let hash = format!("{HASH}{}", "ab".repeat(32));
        let bytes = format!("{BYTES}4096");
        assert_eq!(RootPromise::parse(&format!("quiet {hash} {bytes}\n")), Ok(RootPromise { bytes: 4096 }));
        assert_eq!(RootPromise::parse(&hash), Err(CommandLineError::Bytes));
        assert_eq!(RootPromise::parse(&bytes), Err(CommandLineError::Hash));
        assert_eq!(RootPromise::parse(&format!("{hash} {bytes} {bytes}")), Err(CommandLineError::Bytes));
        assert_eq!(RootPromise::parse(&format!("{hash}0 {bytes}")), Err(CommandLineError::Hash));
    }

    proptest! {
        #[test]
        fn never_panics(line: String) {
            let _ = RootPromise::parse(&line);
        }
    }
}
