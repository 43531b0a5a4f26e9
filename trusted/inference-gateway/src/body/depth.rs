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

/// How many values JSON has, at most: all but the first stand after a comma, or begin a list or an object.
pub(super) fn most_values(text: &[u8]) -> usize {
    let (mut count, mut at) = (1, 0_usize);
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'[' | b'{' | b',' => count += 1,
            b'"' => at = end_of_string(text, at),
            _ => {}
        }
    }
    count
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

    #[test]
    fn no_value_is_missed() {
        for (json, most) in
            [("0", 1), (r#""[,""#, 1), ("[]", 2), ("[0,0]", 3), (r#"{"a":[0,{"b":",,"}]}"#, 5)]
        {
            assert_eq!(most_values(json.as_bytes()), most, "{json}");
        }
    }
}
