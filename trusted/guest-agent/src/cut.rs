//! Texts of unknown length and content, made fit for status lines and the console.

/// The first `max_bytes` bytes of a text, cut between characters, without control characters other than
/// line breaks.
pub(crate) fn printable(text: &str, max_bytes: usize) -> String {
    let mut cut = text.len().min(max_bytes);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let (kept, _) = text.split_at(cut);
    kept.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_short_and_without_control_characters(text: String, max in 0usize..40) {
            let cut = printable(&text, max);
            prop_assert!(!cut.chars().any(|c| c.is_control() && c != '\n'));
            // A control character may be two bytes long; what replaces it is one.
            prop_assert!(cut.len() <= max);
        }
    }
}
