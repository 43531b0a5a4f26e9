//! Texts and their tokens.

use serde_json::Value;

/// What is answered to no text at all.
const SILENCE: &str = "(nothing was said)";

/// The tokens of a text: words with the white space before them.
pub(crate) fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.find(|character: char| !character.is_whitespace()).unwrap_or(rest.len());
        let after = rest.get(word..).unwrap_or_default();
        let end = after.find(char::is_whitespace).map_or(rest.len(), |length| word + length);
        let (token, left) = rest.split_at(end);
        tokens.push(token);
        rest = left;
    }
    tokens
}

/// An answer: what of a text a limit leaves, and whether that is all.
pub(crate) struct Answer {
    pub(crate) tokens: Vec<String>,
    pub(crate) is_whole: bool,
}

impl Answer {
    /// The beginning of a text, with at most so many tokens.
    pub(crate) fn to(text: &str, limit: Option<u64>) -> Self {
        let text = if text.is_empty() { SILENCE } else { text };
        let all = tokens(text);
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let is_whole = all.len() <= limit;
        Self { tokens: all.into_iter().take(limit).map(str::to_owned).collect(), is_whole }
    }

    pub(crate) fn text(&self) -> String {
        self.tokens.concat()
    }

    /// How many tokens it has.
    pub(crate) fn count(&self) -> usize {
        self.tokens.len()
    }
}

/// The text of a `content` member: a string, or an array of parts with `text`.
pub(crate) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

/// How many tokens a list of messages has.
pub(crate) fn count_of(messages: &[Value]) -> usize {
    messages.iter().map(|message| tokens(&text_of(&message["content"])).len()).sum()
}

/// A short name that depends on a request alone.
pub(crate) fn name_of(prefix: &str, request: &Value) -> String {
    use sha2::{Digest as _, Sha256};
    let digest: [u8; 32] = Sha256::digest(request.to_string()).into();
    let number = digest.iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("{prefix}{number:016x}")
}
