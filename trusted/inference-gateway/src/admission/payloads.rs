//! How much of a request is no words: pictures, sounds and documents that stand in it as base64.

use serde_json::value::RawValue;

use super::features::MEDIA;
use crate::body::{Few, Raw, members, object};

/// Most entries of a list that are looked at; what is in a longer one counts as words.
const MAX_ENTRIES: usize = 1 << 16;
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
    /// Parts that are no text.
    pub(super) parts: u64,
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
            if kind.is_some_and(|kind| MEDIA.iter().any(|(names, ..)| names.contains(&kind.as_str()))) {
                self.parts += 1;
                self.bytes += payload(&part);
            } else {
                for inner in [part.content, part.output].into_iter().filter_map(Raw::text) {
                    self.look(inner, depth);
                }
            }
        }
    }
}

/// The payloads of a part, in bytes.
fn payload(part: &Part<'_>) -> u64 {
    let Part { image_url, input_audio, audio, file, video_url, input_video, source, file_data, .. } = part;
    let holders = [image_url, input_audio, audio, file, video_url, input_video, source, file_data];
    let texts = holders.into_iter().filter_map(|holder| holder.text()).flat_map(|json| {
        let inner: Option<Holder<'_>> = object(json);
        // A document may be given as its words.
        let is_words = inner.is_some_and(|inner| inner.kind.text() == Some("\"text\""));
        let inner = inner.filter(|_| !is_words).unwrap_or_default();
        [Some(json), inner.url.text(), inner.data.text(), inner.file_data.text()]
    });
    texts.flatten().filter(|json| is_payload(json)).map(|json| json.len() as u64).sum()
}

/// Whether a text of JSON is base64, on its own or in a `data:` address, and not words in that dress.
fn is_payload(json: &str) -> bool {
    let Some(text) = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return false };
    let data = match text.strip_prefix("data:") {
        None => text,
        Some(rest) if rest.starts_with("text/") || rest.starts_with("text\\/") => return false,
        Some(rest) => match rest.split_once(";base64,") {
            Some((_, data)) => data,
            None => return false,
        },
    };
    // Slashes may be escaped.
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_\\".contains(&byte);
    data.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::admission::features::Features;
    use crate::surface::Surface;

    fn of(list: &Value) -> (u64, u64) {
        let list = serde_json::value::to_raw_value(list).unwrap();
        let Payloads { bytes, parts } = Payloads::of(&list);
        (bytes, parts)
    }

    fn said(part: &Value) -> Value {
        json!([{"role": "user", "content": [part]}])
    }

    #[test]
    fn only_what_is_base64_in_its_place_is_no_words() {
        let base64 = "A".repeat(98);
        let address = format!("data:image/png;base64,{}", "A".repeat(78));
        for (part, expected) in [
            (json!({"type": "image_url", "image_url": {"url": address}}), (102, 1)),
            (json!({"type": "image_url", "image_url": address}), (102, 1)),
            (json!({"type": "input_audio", "input_audio": {"data": base64, "format": "wav"}}), (100, 1)),
            (json!({"type": "input_file", "file_data": address}), (102, 1)),
            (json!({"type": "file", "file": {"file_data": address}}), (102, 1)),
            (json!({"type": "image", "source": {"type": "base64", "data": base64}}), (100, 1)),
            (
                json!({"type": "tool_result", "content": [{"type": "image", "source": {"type": "base64", "data": base64}}]}),
                (100, 1),
            ),
            (json!({"type": "image_url", "image_url": {"url": "https://pictures.example/cat"}}), (0, 1)),
            (json!({"type": "document", "source": {"type": "text", "data": base64}}), (0, 1)),
            (
                json!({"type": "file", "file": {"file_data": format!("data:text/plain;base64,{base64}")}}),
                (0, 1),
            ),
            (json!({"type": "image_url", "image_url": {"url": "some words of a prompt"}}), (0, 1)),
            (json!({"type": "image_url", "caption": base64}), (0, 1)),
            (json!({"type": "text", "text": base64, "image_url": {"url": address}}), (0, 0)),
            (json!({"type": "function", "parameters": {"type": "image", "data": base64}}), (0, 0)),
        ] {
            assert_eq!(of(&said(&part)), expected, "{part}");
        }
        assert_eq!(of(&json!(base64)), (0, 0));
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
