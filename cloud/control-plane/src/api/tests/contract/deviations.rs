//! Where answers differ from the reference, and why: the table `deviations.json`. An entry that nothing needs any more
//! fails a test.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

/// A place of the reference that is not kept.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Deviation {
    /// A JSON pointer into the reference.
    pub(super) at: String,
    /// What stands there instead.
    becomes: Value,
    /// Why.
    pub(super) reason: String,
}

impl Deviation {
    /// Changes the reference.
    pub(super) fn apply(&self, document: &mut Value) {
        let (parent, name) = self.at.rsplit_once('/').unwrap();
        let parent = document.pointer_mut(parent).unwrap_or_else(|| panic!("{} is nowhere", self.at));
        parent.as_object_mut().unwrap().insert(name.replace("~1", "/"), self.becomes.clone());
    }
}

/// Everything that differs.
#[derive(Debug, Deserialize)]
pub(super) struct Deviations {
    pub(super) places: Vec<Deviation>,
    /// Statuses of failures that the reference does not list for every operation that has them, and what they are of. It
    /// lists what its own handlers raise, and leaves out what holds for all of them; our document lists both.
    pub(super) failures: BTreeMap<u16, String>,
    /// Operations of the reference that have no success here, and why.
    pub(super) unreached: BTreeMap<String, String>,
}

impl Deviations {
    /// Adds the failures to every operation; their bodies are described by our document.
    pub(super) fn tolerate_failures(&self, document: &mut Value) {
        let items = document["paths"].as_object_mut().unwrap().values_mut();
        for operation in items.flat_map(|item| item.as_object_mut().unwrap().values_mut()) {
            let responses = operation["responses"].as_object_mut().unwrap();
            for status in self.failures.keys() {
                responses.entry(status.to_string()).or_insert_with(|| Value::Object(serde_json::Map::new()));
            }
        }
    }
}

/// The table.
pub(super) static DEVIATIONS: LazyLock<Deviations> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/api/tests/contract/deviations.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
});
