//! What a request and its answer may come to in tokens, where nobody counted.

use serde_json::value::RawValue;

use crate::body::{Body, Few, Raw, members, object};

/// Most entries of a list in a request.
pub(crate) const MAX_ENTRIES: usize = 1 << 16;

/// Types of the parts of a message that are no text, and what is assumed of one, in tokens: the least that any model
/// counts.
const PARTS: [(&str, u64); 10] = [
    ("image_url", 85),
    ("input_image", 85),
    ("image", 85),
    ("input_audio", 25),
    ("audio", 25),
    ("file", 100),
    ("input_file", 100),
    ("document", 100),
    ("video_url", 250),
    ("input_video", 250),
];

/// Characters, and what they may come to in tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Characters {
    ascii: u64,
    others: u64,
    /// Tokens of what is no text.
    whole: u64,
    /// Texts that are not empty.
    pieces: u64,
}

impl Characters {
    /// Counts the text of a JSON value as it is written, without its quotes. An escape is one character.
    pub fn add_json(&mut self, json: &str) {
        self.pieces += u64::from(json != "\"\"");
        let mut bytes = json.bytes().peekable();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' | 0x80..0xC0 => {}
                b'\\' if bytes.next() == Some(b'u') => {
                    self.others += 1;
                    // The four digits.
                    bytes.by_ref().take(4).for_each(drop);
                }
                0xC0.. => self.others += 1,
                _ => self.ascii += 1,
            }
        }
    }

    /// Tokens, as many as it may well be, for what has to be paid although nobody counted: four ASCII characters or one
    /// other make a token, and no piece of a stream is less than one.
    #[must_use]
    pub const fn billed(self) -> u64 {
        let tokens = self.ascii.div_ceil(4) + self.others + self.whole;
        let least = self.pieces + self.whole;
        if tokens < least { least } else { tokens }
    }
}

#[derive(Debug, Default)]
struct Reader {
    characters: Characters,
}

members! {
    struct Entry { content, tool_calls, arguments, output }
    struct Part { kind as "type", text, input, content }
}

impl Reader {
    /// Texts, parts, or lists of either.
    fn content(&mut self, json: &str) {
        match json.as_bytes().first() {
            Some(b'"') => self.characters.add_json(json),
            Some(b'[') => {
                let Ok(Few(entries)) = serde_json::from_str::<Few<&RawValue, MAX_ENTRIES>>(json) else {
                    return;
                };
                for entry in entries {
                    self.content(entry.get());
                }
            }
            Some(b'{') => self.part(json),
            // A token's number.
            Some(b'0'..=b'9') => self.characters.whole += 1,
            _ => {}
        }
    }

    fn part(&mut self, json: &str) {
        let Some(part) = object::<Part<'_>>(json) else { return };
        let kind: String = part.kind.read().unwrap_or_default();
        if let Some((_, tokens)) = PARTS.iter().find(|(name, _)| *name == kind) {
            self.characters.whole += tokens;
        }
        for text in [part.text, part.content].into_iter().filter_map(Raw::text) {
            self.content(text);
        }
        if let Some(input) = part.input.text() {
            self.characters.add_json(input);
        }
    }

    /// The whole request.
    fn request(&mut self, body: &Body<'_>) {
        for name in ["system", "instructions"] {
            if let Some(system) = body.raw(name) {
                self.content(system.get());
            }
        }
        for name in ["messages", "prompt", "input"] {
            if let Some(list) = body.raw(name) {
                self.entries(list);
            }
        }
    }

    /// Messages, or the items of the Responses surface.
    fn entries(&mut self, list: &RawValue) {
        let Ok(Few(entries)) = serde_json::from_str::<Few<&RawValue, MAX_ENTRIES>>(list.get()) else {
            // One text instead of a list.
            return self.content(list.get());
        };
        for entry in entries {
            let Some(read) = object::<Entry<'_>>(entry.get()) else {
                self.content(entry.get());
                continue;
            };
            if let Some(content) = read.content.text() {
                self.content(content);
            }
            for json in [read.tool_calls, read.arguments, read.output].into_iter().filter_map(Raw::text) {
                self.characters.add_json(json);
            }
        }
    }
}

/// The tokens that go in, for where the upstream does not tell.
pub(super) fn estimate(body: &Body<'_>) -> u64 {
    let mut reader = Reader::default();
    reader.request(body);
    for definitions in ["tools", "functions"].into_iter().filter_map(|name| body.raw(name)) {
        reader.characters.add_json(definitions.get());
    }
    reader.characters.billed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn of(body: &serde_json::Value) -> u64 {
        estimate(&Body::parse(&serde_json::to_vec(body).unwrap()).unwrap())
    }

    #[test]
    fn every_surface_counts() {
        for (body, tokens) in [
            (json!({"prompt": "0123456789"}), 3),
            (json!({"prompt": ["01234", "56789"]}), 3),
            (json!({"input": [1, 2, 3]}), 3),
            (json!({"input": [[1, 2], [3]]}), 3),
            (json!({"instructions": "01234", "input": [{"role": "user", "content": "01234"}]}), 3),
            (json!({"input": "a"}), 1),
            (
                json!({"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "text", "text": "äöü01234"}]}]}),
                85 + 3 + 2,
            ),
            (
                json!({"system": [{"type": "text", "text": "01234"}], "messages": [{"role": "user", "content": [
                {"type": "tool_result", "content": [{"type": "text", "text": "01234"}]}]}]}),
                3,
            ),
            (json!({}), 0),
        ] {
            assert_eq!(of(&body), tokens, "{body}");
        }
    }

    #[test]
    fn what_nobody_counted_is_not_billed_low() {
        let billed = |pieces: &[&str]| {
            let mut characters = Characters::default();
            for piece in pieces {
                characters.add_json(piece);
            }
            characters.billed()
        };
        assert_eq!(billed(&["\"\""]), 0);
        assert_eq!(billed(&["\"hello\""]), 2);
        assert_eq!(billed(&["\"漢字\""]), 2);
        // An upstream that streams digit by digit sends a token with each.
        assert_eq!(billed(&["\"1\""; 9]), 9);
        let asked =
            json!({"messages": [{"role": "user", "content": "abcdefgh"}], "tools": [{"type": "function"}]});
        assert_eq!(of(&asked), (8_u64 + 17).div_ceil(4));
    }

    proptest! {
        /// The estimate is what the texts come to, however they are written.
        #[test]
        fn escapes_are_characters(text in "[ -~äöü漢\n\"\\\\]{0,40}") {
            let mut characters = Characters::default();
            characters.add_json(&serde_json::to_string(&text).unwrap());
            let others = text.chars().filter(|character| !character.is_ascii()).count() as u64;
            let ascii = text.len() as u64 - text.chars().filter(|c| !c.is_ascii()).map(char::len_utf8).sum::<usize>() as u64;
            let pieces = u64::from(!text.is_empty());
            prop_assert_eq!(characters, Characters { ascii, others, whole: 0, pieces });
        }
    }
}
