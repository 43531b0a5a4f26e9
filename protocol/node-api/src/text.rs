//! Texts as they come over the wire: short, and fit for databases, terminals and logs, whoever wrote
//! them.

use serde::{Deserialize, Deserializer};

/// Longest text in bytes; a longer one is cut when it is read.
pub const MAX_TEXT_BYTES: usize = 4 * 1024;

pub(crate) fn plain<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(cleaned)
}

pub(crate) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(cleaned))
}

fn cleaned(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    if text.contains(is_harmful) { text.replace(is_harmful, " ") } else { text }
}

fn is_harmful(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}
