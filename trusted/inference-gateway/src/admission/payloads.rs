//! How much of a request is no words: pictures, sounds and documents, and what they may come to in tokens.
//!
//! | Part | Tokens |
//! |---|---|
//! | a picture | one for 750 pixels, which is what Anthropic counts and more than one for each 28 by 28, as open models do; at least as many as OpenAI's largest one (8 tiles of 170, and 85), at most 16,384, to which all of them scale down |
//! | a sound | one for 16 bytes: 32 in a second, which is the most that any model counts, at 4 kbit/s |
//! | a document, a video | one for each byte, at least 16,384 |
//! | a picture or sound that is elsewhere, or in a format that nobody knows | 16,384 |
//! | a document or video that is elsewhere | 131,072 |
//! | a document that is given as its words | 1,024, and its words |

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::value::RawValue;

use super::features::MEDIA;
use crate::body::{Few, Raw, members, object};

/// Most entries of a list that are looked at; what is in a longer one counts as words.
const MAX_ENTRIES: usize = 1 << 16;
/// Digits of a picture that are looked at for its size.
const HEAD: usize = 256 << 10;
/// Pixels of a picture that make a token.
const PIXELS: u64 = 750;
/// Fewest and most tokens of a picture.
const IMAGE: (u64, u64) = (1445, 16_384);
/// Bytes of a sound that make a token.
const SOUND: u64 = 16;
/// Fewest tokens of a sound, or of a document that is given as its words.
const SMALL: u64 = 1024;
/// Fewest tokens of a document or a video, and those of a sound that is elsewhere.
const LARGE: u64 = 16_384;
/// Tokens of a document or a video that is elsewhere.
const UNKNOWN: u64 = 131_072;
/// How deep parts lie in each other: a message, its content, a tool's result, and what is in that.
const DEPTH: usize = 4;

members! {
    struct Part {
        kind as "type", content, output, image_url, input_audio, audio, file, video_url, input_video, source, file_data
    }
    struct Holder { kind as "type", url, data, file_data }
}

/// What of a list of messages is no words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Payloads {
    /// Its length as it is written, in bytes, all of them ASCII.
    pub(super) bytes: u64,
    /// Tokens that it may come to.
    pub(super) tokens: u64,
}

impl Payloads {
    /// Of messages, or of what goes in as a list of parts. What is not where it belongs counts as words.
    pub(super) fn of(list: &RawValue) -> Self {
        let mut payloads = Self::default();
        payloads.look(list.get(), DEPTH);
        payloads
    }

    fn look(&mut self, json: &str, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        if !json.starts_with('[') {
            return;
        }
        let Ok(Few(entries)) = serde_json::from_str::<Few<&RawValue, MAX_ENTRIES>>(json) else { return };
        for entry in entries {
            let Some(part) = object::<Part<'_>>(entry.get()) else { continue };
            let kind: Option<String> = part.kind.read();
            let kind = kind.and_then(|kind| MEDIA.iter().find(|(names, ..)| names.contains(&kind.as_str())));
            if let Some((_, kind, _)) = kind {
                let payload = Payload::of(&part);
                self.bytes += payload.bytes;
                self.tokens = self.tokens.saturating_add(payload.tokens(kind));
            } else {
                for inner in [part.content, part.output].into_iter().filter_map(Raw::text) {
                    self.look(inner, depth);
                }
            }
        }
    }
}

/// What a part holds.
#[derive(Debug, Default)]
struct Payload<'a> {
    /// Length of what is base64, as it is written.
    bytes: u64,
    /// Its digits; nothing for what is elsewhere.
    data: Vec<&'a str>,
    /// Whether it is given as its words.
    is_words: bool,
}

impl<'a> Payload<'a> {
    fn of(part: &Part<'a>) -> Self {
        let Part { image_url, input_audio, audio, file, video_url, input_video, source, file_data, .. } =
            *part;
        let holders = [image_url, input_audio, audio, file, video_url, input_video, source, file_data];
        let mut payload = Self::default();
        for json in holders.into_iter().filter_map(Raw::text) {
            let inner: Holder<'_> = object(json).unwrap_or_default();
            // A document may be given as its words.
            let is_words = inner.kind.text() == Some("\"text\"");
            let inner = if is_words { Holder::default() } else { inner };
            let texts = [Some(json), inner.url.text(), inner.data.text(), inner.file_data.text()];
            payload.is_words |= is_words || texts.iter().flatten().any(|json| is_told_in_words(json));
            for (json, data) in texts.into_iter().flatten().filter_map(|json| Some((json, data_of(json)?))) {
                payload.bytes += json.len() as u64;
                payload.data.push(data);
            }
        }
        payload
    }

    /// What it may come to, as a part of this kind.
    fn tokens(&self, kind: &str) -> u64 {
        // Four digits are three bytes.
        let bytes = self.data.iter().map(|data| data.len() as u64).sum::<u64>().div_ceil(4) * 3;
        match (kind, self.data.is_empty()) {
            _ if self.is_words => SMALL,
            ("image", false) => self.data.iter().map(|data| pixels(data).map_or(IMAGE.1, of_pixels)).sum(),
            ("image", true) => IMAGE.1,
            ("audio", false) => bytes.div_ceil(SOUND).max(SMALL),
            ("audio", true) => LARGE,
            (_, false) => bytes.max(LARGE),
            (_, true) => UNKNOWN,
        }
    }
}

fn of_pixels(pixels: u64) -> u64 {
    pixels.div_ceil(PIXELS).clamp(IMAGE.0, IMAGE.1)
}

/// How many pixels a picture says that it has; `None` in formats that nobody knows.
fn pixels(data: &str) -> Option<u64> {
    let digits =
        data.bytes().filter(|byte| !matches!(byte, b'\\' | b'=')).take(HEAD).map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            byte => byte,
        });
    let mut digits: Vec<u8> = digits.collect();
    digits.truncate(digits.len() / 4 * 4);
    let head = STANDARD_NO_PAD.decode(digits).ok()?;
    let size = imagesize::blob_size(&head).ok()?;
    u64::try_from(size.width.checked_mul(size.height)?).ok()
}

/// The inside of a JSON text.
fn inside(json: &str) -> Option<&str> {
    json.strip_prefix('"')?.strip_suffix('"')
}

/// Whether a text of JSON is words in the dress of an address.
fn is_told_in_words(json: &str) -> bool {
    let media_type = inside(json).and_then(|text| text.strip_prefix("data:"));
    media_type.is_some_and(|rest| rest.starts_with("text/") || rest.starts_with("text\\/"))
}

/// The digits of a text of JSON that is base64, on its own or in a `data:` address, and not words in that dress.
fn data_of(json: &str) -> Option<&str> {
    let text = inside(json).filter(|_| !is_told_in_words(json))?;
    let data = match text.strip_prefix("data:") {
        None => text,
        Some(rest) => rest.split_once(";base64,")?.1,
    };
    // Slashes may be escaped.
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_\\".contains(&byte);
    data.bytes().all(is_digit).then_some(data)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::admission::features::Features;
    use crate::surface::Surface;

    fn of(list: &Value) -> (u64, u64) {
        let list = serde_json::value::to_raw_value(list).unwrap();
        let Payloads { bytes, tokens } = Payloads::of(&list);
        (bytes, tokens)
    }

    /// The beginning of a PNG of so many pixels, in base64.
    fn png(width: u32, height: u32) -> String {
        let mut head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        head.extend([width.to_be_bytes(), height.to_be_bytes()].concat());
        head.extend([8, 2, 0, 0, 0]);
        base64::engine::general_purpose::STANDARD.encode(head)
    }

    fn said(part: &Value) -> Value {
        json!([{"role": "user", "content": [part]}])
    }

    #[test]
    fn only_what_is_base64_in_its_place_is_no_words() {
        let base64 = "A".repeat(98);
        let address = format!("data:image/png;base64,{}", "A".repeat(78));
        for (part, expected) in [
            (json!({"type": "image_url", "image_url": {"url": address}}), (102, 16_384)),
            (json!({"type": "image_url", "image_url": address}), (102, 16_384)),
            (json!({"type": "input_audio", "input_audio": {"data": base64, "format": "wav"}}), (100, 1024)),
            (json!({"type": "input_file", "file_data": address}), (102, 16_384)),
            (json!({"type": "file", "file": {"file_data": address}}), (102, 16_384)),
            (json!({"type": "image", "source": {"type": "base64", "data": base64}}), (100, 16_384)),
            (
                json!({"type": "tool_result", "content": [{"type": "image", "source": {"type": "base64", "data": base64}}]}),
                (100, 16_384),
            ),
            (json!({"type": "image_url", "image_url": {"url": "https://pictures.example/cat"}}), (0, 16_384)),
            (
                json!({"type": "document", "source": {"type": "url", "url": "https://e.example/a"}}),
                (0, 131_072),
            ),
            (json!({"type": "document", "source": {"type": "text", "data": base64}}), (0, 1024)),
            (
                json!({"type": "file", "file": {"file_data": format!("data:text/plain;base64,{base64}")}}),
                (0, 1024),
            ),
            (json!({"type": "image_url", "image_url": {"url": "some words of a prompt"}}), (0, 16_384)),
            (json!({"type": "image_url", "caption": base64}), (0, 16_384)),
            (json!({"type": "text", "text": base64, "image_url": {"url": address}}), (0, 0)),
            (json!({"type": "function", "parameters": {"type": "image", "data": base64}}), (0, 0)),
        ] {
            assert_eq!(of(&said(&part)), expected, "{part}");
        }
        assert_eq!(of(&json!(base64)), (0, 0));
    }

    #[test]
    fn a_part_counts_by_what_is_known_of_it() {
        let url = |kind: &str, data: &str| json!({"url": format!("data:{kind};base64,{data}")});
        let long = "A".repeat(4 << 20);
        for (part, expected) in [
            (json!({"type": "image_url", "image_url": url("image/png", &png(1, 1))}), 1445),
            (
                json!({"type": "image_url", "image_url": url("image/png", &png(1500, 1000)), "detail": "low"}),
                2000,
            ),
            (json!({"type": "input_image", "image_url": url("image/png", &png(3000, 4000))["url"]}), 16_000),
            (json!({"type": "image_url", "image_url": url("image/png", &png(1 << 31, 1 << 31))}), 16_384),
            (
                json!({"type": "image", "source": {"type": "base64", "data": png(1500, 1000).replace('/', "_")}}),
                2000,
            ),
            (json!({"type": "image", "source": {"type": "base64", "data": png(1500, 1000) + &long}}), 2000),
            (json!({"type": "image_url", "image_url": url("image/png", &long)}), 16_384),
            (json!({"type": "input_audio", "input_audio": {"data": long}}), (3 << 20) / 16),
            (
                json!({"type": "file", "file": {"file_data": format!("data:application/pdf;base64,{long}")}}),
                3 << 20,
            ),
            (json!({"type": "video_url", "video_url": url("video/mp4", &long)}), 3 << 20),
            (json!({"type": "file", "file": {"file_id": "file-1"}}), 131_072),
            (json!({"type": "video_url", "video_url": {"url": "https://e.example/v"}}), 131_072),
            (json!({"type": "audio", "audio": {"id": "audio-1"}}), 16_384),
        ] {
            let told = of(&said(&part)).1;
            assert_eq!(told, expected, "{}", &part.to_string()[..60]);
        }
        // Slashes that are escaped are the same digits.
        let written = said(&json!({"type": "image_url", "image_url": url("image/png", &png(1500, 1000))}));
        let written = written.to_string().replace('/', "\\/");
        let list = RawValue::from_string(written).unwrap();
        assert_eq!(Payloads::of(&list).tokens, 2000);
    }

    #[test]
    fn no_word_that_a_model_may_read_is_passed_over() {
        let text = "a".repeat(4000);
        let schema = json!({"type": "object", "properties": {"url": {"description": text}}});
        let said = |text: &str| format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#);
        for body in [
            // The beginning of it is no number, or no text, that could be kept.
            format!(r#"{{"messages":[1e999,{{"role":"user","content":"{text}"}}]}}"#),
            said(&format!("\\ud800{text}")),
            said(&text),
            json!({"functions": [{"name": "f", "parameters": schema}]}).to_string(),
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})
                .to_string(),
            json!({"text": {"format": {"type": "json_schema", "schema": schema}}}).to_string(),
            json!({"suffix": text}).to_string(),
            json!({"tools": [{"type": "function", "function": {"parameters": schema}}]}).to_string(),
            json!({"tools": [{"function": {"parameters": {"properties": {text.clone(): {}}}}}]}).to_string(),
            json!({"messages": [{"role": text}]}).to_string(),
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "x": text}]}]})
                .to_string(),
            json!({"chat_template_kwargs": {"x": text}}).to_string(),
            format!(r#"{{"messages":"{text}""#),
        ] {
            let told = Features::of(Surface::Chat, body.as_bytes()).prompt_tokens;
            assert!((1000..3100).contains(&told), "{told} of {}", &body[..60.min(body.len())]);
        }
    }
}
