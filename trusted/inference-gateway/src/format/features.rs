//! What a request needs, told without telling what it says: an estimate of its tokens, its modalities, its tools.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::reasoning;
use crate::body::{Body, Few, Raw, members, object};

/// Bytes of the beginning of a prompt by which like prompts are told.
pub const PREFIX_BYTES: usize = 4096;
/// Most entries of a list in a request.
pub(super) const MAX_ENTRIES: usize = 1 << 16;

/// What is assumed of a part that is no text, in tokens: the least that any model counts.
const FLOORS: [(Modality, u64); 4] =
    [(Modality::Image, 85), (Modality::Audio, 25), (Modality::File, 100), (Modality::Video, 250)];

/// Types of the parts of a message that are no text.
const PARTS: [(&str, Modality); 10] = [
    ("image_url", Modality::Image),
    ("input_image", Modality::Image),
    ("image", Modality::Image),
    ("input_audio", Modality::Audio),
    ("audio", Modality::Audio),
    ("file", Modality::File),
    ("input_file", Modality::File),
    ("document", Modality::File),
    ("video_url", Modality::Video),
    ("input_video", Modality::Video),
];

/// What goes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Modality {
    /// Words.
    Text,
    /// Pictures.
    Image,
    /// Sound.
    Audio,
    /// Documents.
    File,
    /// Moving pictures.
    Video,
}

impl Modality {
    /// Its name in the interface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::File => "file",
            Self::Video => "video",
        }
    }
}

/// What a request needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    /// A low estimate of the tokens that go in.
    pub estimated_prompt_tokens: u64,
    /// Whether it offers tools.
    pub has_tools: bool,
    /// What goes in, each once, in the order of [`Modality`].
    pub input_modalities: Vec<Modality>,
    /// `enabled`, `disabled` or `unspecified`.
    pub reasoning: &'static str,
    /// `text`, `json_object` or `json_schema`.
    pub response_format: &'static str,
    /// The first 4096 bytes of `role`, a zero byte, text, and so on; `None` for a shorter prompt. Never leaves the
    /// gateway but hashed.
    pub prefix: Option<Vec<u8>>,
}

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

    /// Tokens, a low estimate: five ASCII characters or three others make one. Not 0 for what is not empty.
    #[must_use]
    pub const fn tokens(self) -> u64 {
        let tokens = self.ascii / 5 + self.others / 3 + self.whole;
        if tokens == 0 && self.ascii + self.others > 0 { 1 } else { tokens }
    }
}

#[derive(Debug, Default)]
struct Reader {
    characters: Characters,
    modalities: Vec<Modality>,
    /// `None` where nobody asks for it.
    prefix: Option<Vec<u8>>,
}

members! {
    struct Entry { role, content, tool_calls, arguments, output }
    struct Part { kind as "type", text, input, content }
}

impl Reader {
    /// Texts, parts, or lists of either.
    fn content(&mut self, json: &str) {
        match json.as_bytes().first() {
            Some(b'"') => self.text(json),
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
        if let Some((_, modality)) = PARTS.iter().find(|(name, _)| *name == kind) {
            self.modalities.push(*modality);
            self.characters.whole +=
                FLOORS.iter().find(|(floor, _)| floor == modality).map_or(0, |(_, tokens)| *tokens);
        }
        for text in [part.text, part.content].into_iter().filter_map(Raw::text) {
            self.content(text);
        }
        if let Some(input) = part.input.text() {
            self.characters.add_json(input);
        }
    }

    fn text(&mut self, json: &str) {
        self.characters.add_json(json);
        if let Some(prefix) = self.prefix.as_mut().filter(|prefix| prefix.len() < PREFIX_BYTES) {
            let text: String = serde_json::from_str(json).unwrap_or_default();
            prefix.extend_from_slice(text.as_bytes());
            prefix.truncate(PREFIX_BYTES);
        }
    }

    fn role(&mut self, role: &str) {
        if let Some(prefix) = self.prefix.as_mut().filter(|prefix| prefix.len() < PREFIX_BYTES) {
            prefix.extend_from_slice(role.as_bytes());
            prefix.push(0);
        }
    }

    /// The whole request.
    fn request(&mut self, body: &Body<'_>) {
        for name in ["system", "instructions"] {
            if let Some(system) = body.raw(name) {
                self.role("system");
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
            self.role(&read.role.read::<String>().unwrap_or_default());
            if let Some(content) = read.content.text() {
                self.content(content);
            }
            for json in [read.tool_calls, read.arguments, read.output].into_iter().filter_map(Raw::text) {
                self.characters.add_json(json);
            }
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Format {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TextOptions {
    format: Format,
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

/// What a request needs; of any surface.
#[must_use]
pub fn features(body: &Body<'_>) -> Features {
    let mut reader = Reader { prefix: Some(Vec::new()), ..Reader::default() };
    reader.request(body);
    let Reader { characters, mut modalities, prefix } = reader;
    let mut prefix = prefix.unwrap_or_default();
    modalities.push(Modality::Text);
    modalities.sort_unstable();
    modalities.dedup();
    let has = |name| body.raw(name).is_some_and(|list| !matches!(list.get(), "[]"));
    prefix.truncate(PREFIX_BYTES);
    Features {
        estimated_prompt_tokens: characters.tokens(),
        has_tools: has("tools") || has("functions"),
        input_modalities: modalities,
        reasoning: reasoning::wish(body),
        response_format: response_format(body),
        prefix: (prefix.len() == PREFIX_BYTES).then_some(prefix),
    }
}

fn response_format(body: &Body<'_>) -> &'static str {
    let format: Option<Format> = body.get("response_format", "").ok().flatten();
    let text: Option<TextOptions> = body.get("text", "").ok().flatten();
    let kind = format.or(text.map(|text| text.format)).unwrap_or_default().kind;
    ["json_object", "json_schema"].into_iter().find(|known| *known == kind).unwrap_or("text")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn of(body: &serde_json::Value) -> Features {
        let bytes = serde_json::to_vec(body).unwrap();
        features(&Body::parse(&bytes).unwrap())
    }

    #[test]
    fn what_a_request_needs() {
        let features = of(&json!({
            "messages": [
                {"role": "system", "content": "0123456789"},
                {"role": "user", "content": [
                    {"type": "text", "text": "äöü01234"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                ]},
            ],
            "tools": [{"type": "function"}],
            "response_format": {"type": "json_schema"},
            "reasoning_effort": "low",
        }));
        assert_eq!(features.estimated_prompt_tokens, 15 / 5 + 3 / 3 + 85);
        assert!(features.has_tools);
        assert_eq!(features.input_modalities, [Modality::Text, Modality::Image]);
        assert_eq!((features.reasoning, features.response_format), ("enabled", "json_schema"));
        assert_eq!(features.prefix, None);
    }

    #[test]
    fn every_surface_counts() {
        for (body, tokens) in [
            (json!({"prompt": "0123456789"}), 2),
            (json!({"prompt": ["01234", "56789"]}), 2),
            (json!({"input": [1, 2, 3]}), 3),
            (json!({"input": [[1, 2], [3]]}), 3),
            (json!({"instructions": "01234", "input": [{"role": "user", "content": "01234"}]}), 2),
            (json!({"input": "a"}), 1),
            (
                json!({"system": [{"type": "text", "text": "01234"}], "messages": [{"role": "user", "content": [
                {"type": "tool_result", "content": [{"type": "text", "text": "01234"}]}]}]}),
                2,
            ),
            (json!({}), 0),
        ] {
            assert_eq!(of(&body).estimated_prompt_tokens, tokens, "{body}");
        }
    }

    #[test]
    fn a_prefix_is_whole_or_not_there() {
        let prompt =
            |length| of(&json!({"messages": [{"role": "user", "content": "x".repeat(length)}]})).prefix;
        assert_eq!(prompt(PREFIX_BYTES - 6), None);
        let prefix = prompt(PREFIX_BYTES - 5).unwrap();
        assert!(prefix.starts_with(b"user\0xxx") && prefix.len() == PREFIX_BYTES);
        assert_eq!(prompt(10 * PREFIX_BYTES).unwrap(), prefix);
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
        let bytes = serde_json::to_vec(&asked).unwrap();
        assert_eq!(estimate(&Body::parse(&bytes).unwrap()), (8_u64 + 17).div_ceil(4));
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
