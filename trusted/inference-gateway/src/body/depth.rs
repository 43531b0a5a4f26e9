//! How deep a JSON text is nested, before anybody recurses into it.

use memchr::memchr2;

/// Whether arrays and objects are nested deeper than `limit`. Of a text that is not JSON it says anything; the
/// parser refuses that.
pub(super) fn exceeds(text: &[u8], limit: usize) -> bool {
    let (mut depth, mut at) = (0_usize, 0_usize);
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => at = end_of_string(text, at),
            _ => {}
        }
    }
    false
}

/// The place after the closing quote of a string that begins at `at`. Strings may have megabytes.
pub(super) fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        match text.get(at + found) {
            Some(b'"') => return at + found + 1,
            _ => at += found + 2,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_count() {
        assert!(!exceeds(br#"{"a":"[[[[\"[[[[\\"}"#, 1));
        assert!(exceeds(br#"{"a":"\\",[}"#, 1));
        assert!(exceeds(b"[[[", 2));
        assert!(!exceeds(b"[][][]", 1));
        assert!(!exceeds(br#"["\"#, 1));
    }
}
