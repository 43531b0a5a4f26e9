//! What a reader complains of, by the member, and never with a value: it might be a credential.

use serde::Deserialize;
use serde_json::error::Category;

use super::ConfigError;

/// How the words of a library for a text that is no URL begin.
const NO_URL: [&str; 8] = [
    "relative URL without a base",
    "empty host",
    "invalid port number",
    "invalid domain character",
    "invalid international domain name",
    "invalid IPv4 address",
    "invalid IPv6 address",
    "a cannot-be-a-base URL",
];

/// What libraries call what they expect, and what people do.
const EXPECTED: [(&str, &str); 7] = [
    ("a map", "an object"),
    ("a sequence", "an array"),
    ("a Decimal type representing a fixed-point number", "a decimal number as text, such as \"0.25\""),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number from 0 to 18446744073709551615"),
    ("usize", "a whole number"),
];

/// Reads JSON, or says which member cannot be read, and where it stands.
pub(super) fn read<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T, ConfigError> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let is_member = error.inner().is_data() && error.path().iter().next().is_some();
        complaint(is_member.then(|| error.path().to_string()), error.inner())
    })?;
    // Nothing may follow.
    reader.end().map_err(|error| complaint(None, &error))?;
    Ok(read)
}

fn complaint(member: Option<String>, error: &serde_json::Error) -> ConfigError {
    let at = member.unwrap_or_else(|| "the configuration".to_owned());
    ConfigError::Malformed { at, what: what(error), line: error.line(), column: error.column() }
}

/// The kind of a reader's complaint. Its own words may quote what it read.
fn what(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Eof => return "the text ends too early".to_owned(),
        Category::Syntax | Category::Io => return "not JSON".to_owned(),
        Category::Data => {}
    }
    let words = error.to_string();
    let words = words.rsplit_once(" at line ").map_or(&*words, |(words, _)| words);
    if ["unknown field", "missing field", "duplicate field"].iter().any(|begin| words.starts_with(begin)) {
        return words.split(", expected").next().unwrap_or_default().to_owned();
    }
    if NO_URL.iter().any(|begin| words.starts_with(begin)) {
        return "has to be an absolute URL, such as https://api.example.com".to_owned();
    }
    // What was read may itself look like the end: what is expected stands last.
    let is_usual = ["invalid type: ", "invalid value: ", "invalid length ", "unknown variant "]
        .iter()
        .any(|begin| words.starts_with(begin));
    match words.rsplit_once(", expected ").filter(|_| is_usual) {
        Some((_, expected)) => {
            let expected = if expected.starts_with("struct ") { "a map" } else { expected };
            let known = EXPECTED.into_iter().find(|(theirs, _)| *theirs == expected);
            format!("has to be {}", known.map_or(expected, |(_, ours)| ours))
        }
        None => "has a value that cannot be read".to_owned(),
    }
}
