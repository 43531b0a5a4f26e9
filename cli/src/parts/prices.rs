//! The operator's list of sizes and prices, from a file.

use std::path::Path;

use cloister_metering::{MAX_FILE_BYTES, PriceList};

use crate::failure::Failure;
use crate::files;

/// Reads the list; without a file the one that charges nothing.
pub(crate) fn read(path: Option<&Path>) -> Result<PriceList, Failure> {
    let Some(path) = path else { return Ok(PriceList::default()) };
    let read = files::read(path, MAX_FILE_BYTES as u64).and_then(|text| {
        PriceList::parse(&text).map_err(|error| {
            Failure::usage(format!("{} is not a list of prices", path.display())).caused_by(error)
        })
    });
    read.map_err(|failure| {
        failure.hint("begin with examples/prices.json of the source tree; docs/usage.md explains it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_list_is_refused_with_its_place() {
        assert!(read(None).unwrap().is_free());
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/prices.json");
        assert!(!read(Some(Path::new(example))).unwrap().is_free());
        assert!(read(Some(Path::new("/nonexistent"))).unwrap_err().message.contains("cannot read"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"sizes\": [],\n \"vcpu_hour\": \"-1\"}").unwrap();
        let failure = read(Some(file.path())).unwrap_err();
        assert!(failure.chain().contains("the price \"-1\" is negative at line 2"), "{}", failure.chain());
    }
}
