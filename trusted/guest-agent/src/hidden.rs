//! Words that must not be printed: what the guest prints reaches the node.

use std::fmt;
use std::sync::Arc;

use cloister_sealed_env::Environment;
use zeroize::Zeroizing;

/// Shorter values are words like any other, and hiding them would hide nothing and garble everything.
const MIN_BYTES: usize = 6;
const INSTEAD: &str = "[hidden]";

/// Values of the sealed environment, to be hidden wherever a program prints them by accident, such as in a
/// message of the compose front end. A program that wants to tell them can: it only has to encode them.
#[derive(Clone, Default)]
pub(crate) struct Hidden(Arc<[Zeroizing<String>]>);

impl Hidden {
    /// Each line of each value that is long enough; lines end where those of programs do.
    pub(crate) fn of(environment: &Environment) -> Self {
        let lines = environment.iter().flat_map(|(_, value)| value.split(['\n', '\r']));
        let lines = lines.map(str::trim).filter(|line| line.len() >= MIN_BYTES);
        let mut words: Vec<_> = lines.map(|line| Zeroizing::new(line.to_owned())).collect();
        // One may contain another.
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        Self(words.into())
    }

    /// The line without them. Where the line was `cut`, its end may be the beginning of one.
    pub(crate) fn hide(&self, line: String, cut: bool) -> String {
        let mut line = line;
        for word in self.0.iter() {
            if line.contains(word.as_str()) {
                line = line.replace(word.as_str(), INSTEAD);
            }
        }
        if cut {
            // A character that was cut through is none any more.
            line.truncate(line.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
            let begun = |word: &Zeroizing<String>| {
                let lengths = (MIN_BYTES..word.len()).rev();
                let mut begun =
                    lengths.filter(|length| word.get(..*length).is_some_and(|part| line.ends_with(part)));
                begun.next()
            };
            if let Some(length) = self.0.iter().filter_map(begun).max() {
                line.truncate(line.len().saturating_sub(length));
                line.push_str(INSTEAD);
            }
        }
        line
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} hidden words]", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hidden(values: &[&str]) -> Hidden {
        let pairs = values.iter().enumerate().map(|(number, value)| (format!("V{number}"), *value));
        Hidden::of(&Environment::from_pairs(pairs).unwrap())
    }

    #[test]
    fn hides_values_and_their_lines() {
        let hidden = hidden(&["s3cr3t-token", "s3cr3t", "1", "-----BEGIN KEY-----\n  MIIEvQIBADAN\n"]);
        let hide = |line: &str| hidden.hide(line.to_owned(), false);
        assert_eq!(hide("invalid port \"s3cr3t-token\": 1"), "invalid port \"[hidden]\": 1");
        assert_eq!(hide("s3cr3ts3cr3t"), "[hidden][hidden]");
        assert_eq!(hide("key MIIEvQIBADAN"), "key [hidden]");
        assert_eq!(hide("nothing of it"), "nothing of it");
        assert_eq!(hidden.hide("it is s3cr3t-to".to_owned(), true), "it is [hidden]-to");
        assert_eq!(hidden.hide("it is MIIEvQIB".to_owned(), true), "it is [hidden]");
        assert_eq!(format!("{hidden:?}"), "[4 hidden words]");
    }

    proptest! {
        #[test]
        fn no_value_gets_through(before: String, value in "[^\\s\\x00\\[\\]]{6,40}", after: String, kept in 0usize..40) {
            prop_assume!(!INSTEAD.contains(value.as_str()));
            let hidden = hidden(&[&value]);
            let line = format!("{before}{value}{after}");
            prop_assert!(!hidden.hide(line, false).contains(&value));
            let part: String = value.chars().take(kept).collect();
            if part.len() >= MIN_BYTES {
                let line = hidden.hide(format!("{before}{part}"), true);
                prop_assert!(!line.ends_with(&part));
            }
        }
    }
}
