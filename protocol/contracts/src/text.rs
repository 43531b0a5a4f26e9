/// Longest text of a contract that is kept, in characters.
const MAX_CHARACTERS: usize = 200;

/// A contract's words, safe to print: bounded, and without control characters or those that reorder a line.
pub(crate) fn printable(words: &str) -> String {
    let mut kept: String = words
        .chars()
        .take(MAX_CHARACTERS)
        .map(|each| if is_plain(each) { each } else { '\u{fffd}' })
        .collect();
    if words.chars().nth(MAX_CHARACTERS).is_some() {
        kept.push('…');
    }
    kept
}

fn is_plain(each: char) -> bool {
    let reorders = matches!(each, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !each.is_control() && !reorders
}
