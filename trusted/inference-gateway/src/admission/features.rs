//! What a request is like, as far as it matters to who decides: sizes and kinds, and nothing that was said but for a hash.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::payloads::Payloads;
use crate::body::Body;
use crate::format::{MAX_ANSWERS, count, prompts};
use crate::surface::Surface;

/// Parts that are no text: names of their types, how they are told, and the fewest tokens that one takes.
pub(super) const MEDIA: [(&[&str], &str, u64); 4] = [
    (&["image_url", "input_image", "image"], "image", 85),
    (&["input_audio", "audio"], "audio", 10),
    (&["file", "input_file", "document"], "file", 50),
    (&["video_url", "input_video", "video"], "video", 85),
];

/// Members whose texts are not read by a model as words.
const NO_WORDS: [&str; 13] = [
    "role",
    "id",
    "call_id",
    "tool_call_id",
    "tool_use_id",
    "url",
    "image_url",
    "file_data",
    "file_url",
    "file_id",
    "media_type",
    "detail",
    "cache_control",
];

/// Members of a body that a model reads, for the low estimate.
const READ: [&str; 6] = ["messages", "input", "prompt", "system", "instructions", "tools"];
/// Members with parts that may be no text.
const WITH_PARTS: [&str; 3] = ["messages", "input", "system"];
/// Members that no model reads; of any other that is no number it may see every character.
const UNREAD: [&str; 2] = ["model", "provider"];

/// What a request is like. Members are those of `request` in `consult/pre`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Features {
    /// A low estimate.
    estimated_prompt_tokens: u64,
    has_tools: bool,
    input_modalities: Vec<&'static str>,
    reasoning: &'static str,
    response_format: &'static str,
    /// What the prompt begins with, told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix_hash: Option<String>,
    /// An estimate of its words that is rather high.
    #[serde(skip)]
    pub(super) prompt_tokens: u64,
    /// The same of all that is no words.
    #[serde(skip)]
    pub(super) media_tokens: u64,
    /// Tokens that it allows an answer; not 0.
    #[serde(skip)]
    pub(super) max_completion: Option<u64>,
    /// Whether it does so by the younger of two names, which older upstreams pass over in silence.
    #[serde(skip)]
    pub(super) is_limit_young: bool,
    /// Answers that it has made; none of embeddings, which have no tokens.
    #[serde(skip)]
    pub(super) answers: u64,
}

impl Features {
    /// Of a body that came in by a surface. One that cannot be read is like one without anything.
    pub(super) fn of(surface: Surface, bytes: &[u8]) -> Self {
        let body = Body::parse(bytes).ok();
        let raw = |name: &str| body.as_ref().and_then(|body| body.raw(name));
        let mut words = Words::default();
        for value in READ.into_iter().filter_map(raw) {
            words.member(value);
        }
        let limited = |names: &[&str]| names.iter().filter_map(|name| count(raw(name)?)).max();
        let kinds = words.media.iter().zip(MEDIA);
        let media = kinds.filter(|(count, _)| **count > 0).map(|(_, (_, kind, _))| kind);
        let (prompt_tokens, media_tokens) = most_tokens(bytes, body.as_ref(), words.numbers);
        Self {
            estimated_prompt_tokens: words.tokens(),
            has_tools: raw("tools").or_else(|| raw("functions")).is_some_and(|tools| !is_empty(tools)),
            input_modalities: std::iter::once("text").chain(media).collect(),
            reasoning: reasoning(&raw),
            response_format: response_format(&raw),
            prefix_hash: None,
            prompt_tokens,
            media_tokens,
            max_completion: limited(limits(surface)),
            is_limit_young: limits(surface).contains(&"max_completion_tokens")
                && limited(&["max_tokens"]).is_none(),
            answers: answers(surface, &raw),
        }
    }

    /// The same with a hash of what the prompt begins with.
    pub(super) fn with_prefix(self, prefix_hash: Option<String>) -> Self {
        Self { prefix_hash, ..self }
    }
}

/// Members that limit what comes back.
const fn limits(surface: Surface) -> &'static [&'static str] {
    match surface {
        // Under both names, the upstream gets the one that it knows.
        Surface::Chat | Surface::Completions => &["max_completion_tokens", "max_tokens"],
        Surface::Responses => &["max_output_tokens"],
        Surface::Messages => &["max_tokens"],
        Surface::Embeddings => &[],
    }
}

/// How often an upstream answers, whatever of that comes back.
fn answers<'a>(surface: Surface, raw: &impl Fn(&str) -> Option<&'a RawValue>) -> u64 {
    let counted = |name| raw(name).and_then(count).unwrap_or(1).min(MAX_ANSWERS);
    match surface {
        Surface::Chat => counted("n"),
        Surface::Completions => {
            let prompts = raw("prompt").map_or(1, prompts);
            counted("n").max(counted("best_of")).saturating_mul(prompts)
        }
        Surface::Responses | Surface::Messages => 1,
        Surface::Embeddings => 0,
    }
}

/// As many tokens of a prompt as there may well be: of all that is written, but what is no words, four ASCII characters
/// or one other make a token, and each number may be one. What cannot be read counts as it is. Then those of what is no
/// words.
fn most_tokens(bytes: &[u8], body: Option<&Body<'_>>, numbers: u64) -> (u64, u64) {
    let mut words = Words::default();
    let Some(body) = body else {
        words.text(&String::from_utf8_lossy(bytes));
        return (words.ascii.div_ceil(4) + words.others, 0);
    };
    let is_number = |value: &RawValue| !value.get().starts_with(['"', '[', '{']);
    let read = body.names().filter(|name| !UNREAD.contains(name)).filter_map(|name| body.raw(name));
    for value in read.filter(|value| !is_number(value)) {
        words.text(value.get());
    }
    let mut media = Payloads::default();
    for list in WITH_PARTS.into_iter().filter_map(|name| body.raw(name)) {
        let Payloads { bytes, tokens } = Payloads::of(list);
        media = Payloads { bytes: media.bytes + bytes, tokens: media.tokens.saturating_add(tokens) };
    }
    (words.ascii.saturating_sub(media.bytes).div_ceil(4) + words.others + numbers, media.tokens)
}

fn is_empty(array: &RawValue) -> bool {
    array.get().trim_start_matches('[').trim_start().starts_with(']')
}

/// `enabled`, `disabled` or `unspecified`.
fn reasoning<'a>(raw: &impl Fn(&str) -> Option<&'a RawValue>) -> &'static str {
    #[derive(Deserialize)]
    struct Reasoning {
        #[serde(default)]
        enabled: Option<bool>,
        #[serde(default)]
        effort: Option<String>,
        #[serde(default, rename = "type")]
        kind: Option<String>,
    }
    let is_on = |word: &str| !matches!(word, "none" | "disabled");
    let told = |on: bool| if on { "enabled" } else { "disabled" };
    if let Some(effort) = raw("reasoning_effort") {
        return told(serde_json::from_str::<String>(effort.get()).is_ok_and(|effort| is_on(&effort)));
    }
    let Some(value) = raw("reasoning").or_else(|| raw("thinking")) else { return "unspecified" };
    let Ok(Reasoning { enabled, effort, kind }) = serde_json::from_str(value.get()) else {
        return "unspecified";
    };
    told(enabled.unwrap_or_else(|| effort.or(kind).is_none_or(|word| is_on(&word))))
}

/// `text`, `json_object` or `json_schema`.
fn response_format<'a>(raw: &impl Fn(&str) -> Option<&'a RawValue>) -> &'static str {
    #[derive(Deserialize)]
    struct Format {
        #[serde(rename = "type")]
        kind: String,
    }
    #[derive(Deserialize)]
    struct Text {
        format: Format,
    }
    let format = raw("response_format").and_then(|value| serde_json::from_str::<Format>(value.get()).ok());
    let format = format
        .or_else(|| Some(serde_json::from_str::<Text>(raw("text")?.get()).ok()?.format))
        .map(|format| format.kind);
    match format.as_deref() {
        Some("json_object") => "json_object",
        Some("json_schema") => "json_schema",
        _ => "text",
    }
}

/// Counts what a model reads, without keeping any of it.
#[derive(Debug, Default)]
struct Words {
    ascii: u64,
    others: u64,
    /// A token may be told by its number.
    numbers: u64,
    media: [u64; MEDIA.len()],
}

impl Words {
    /// What a member says. What is JSON and yet no value, such as a number beyond all, counts as it is written.
    fn member(&mut self, value: &RawValue) {
        let mut member = Self::default();
        if member.deserialize(&mut serde_json::Deserializer::from_str(value.get())).is_err() {
            member = Self::default();
            member.text(value.get());
            member.numbers = value.get().bytes().filter(|byte| *byte == b',').count() as u64 + 1;
        }
        self.ascii += member.ascii;
        self.others += member.others;
        self.numbers += member.numbers;
        for (sum, count) in self.media.iter_mut().zip(member.media) {
            *sum += count;
        }
    }

    fn text(&mut self, text: &str) {
        let ascii = text.bytes().filter(u8::is_ascii).count();
        let others =
            if ascii == text.len() { 0 } else { text.chars().filter(|char| !char.is_ascii()).count() };
        self.ascii += ascii as u64;
        self.others += others as u64;
    }

    fn tokens(&self) -> u64 {
        let media: u64 = self.media.iter().zip(MEDIA).map(|(count, (_, _, floor))| count * floor).sum();
        self.ascii / 5 + self.others / 3 + self.numbers + media
    }
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> DeserializeSeed<'de> for &mut Words {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Words {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.numbers += 1;
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.numbers += 1;
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.numbers += 1;
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.text(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(&mut *self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let (mut is_text, mut data) = (false, None);
        while let Some(Text(name)) = members.next_key()? {
            match name.as_ref() {
                "data" => data = Some(members.next_value::<&RawValue>()?),
                "type" => {
                    let kind = members.next_value::<&RawValue>()?.get().trim_matches('"');
                    is_text |= kind == "text";
                    for (count, (names, _, _)) in self.media.iter_mut().zip(MEDIA) {
                        *count += u64::from(names.contains(&kind));
                    }
                }
                name if NO_WORDS.contains(&name) => {
                    members.next_value::<IgnoredAny>()?;
                }
                _ => members.next_value_seed(&mut *self)?,
            }
        }
        // A document may be given as its words; any other data are none.
        if let Some(Ok(Text(text))) = data.filter(|_| is_text).map(|data| serde_json::from_str(data.get())) {
            self.text(&text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn of(body: &Value) -> Value {
        serde_json::to_value(Features::of(Surface::Chat, body.to_string().as_bytes())).unwrap()
    }

    #[test]
    fn of_each_surface() {
        let text = "a".repeat(50);
        assert_eq!(
            of(&json!({"model": "m", "messages": [{"role": "user", "content": text}], "stream": true})),
            json!({
                "estimatedPromptTokens": 10, "hasTools": false, "inputModalities": ["text"],
                "reasoning": "unspecified", "responseFormat": "text",
            })
        );
        let parts = json!([
            {"type": "text", "text": "ä".repeat(30)},
            {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", "A".repeat(9000))}},
            {"type": "input_audio", "input_audio": {"data": "A".repeat(9000), "format": "wav"}},
        ]);
        assert_eq!(
            of(&json!({
                "messages": [{"role": "user", "content": parts}], "reasoning_effort": "low",
                "tools": [{"type": "function"}], "response_format": {"type": "json_schema", "json_schema": {}},
            })),
            json!({
                "estimatedPromptTokens": 10 + 85 + 10, "hasTools": true,
                "inputModalities": ["text", "image", "audio"], "reasoning": "enabled",
                "responseFormat": "json_schema",
            })
        );
        let responses = of(&json!({
            "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://e.test/1"}]}],
            "instructions": text, "reasoning": {"effort": "none"}, "text": {"format": {"type": "json_object"}},
            "tools": [],
        }));
        assert_eq!(responses["estimatedPromptTokens"], 95);
        assert_eq!(responses["hasTools"], false);
        assert_eq!(responses["reasoning"], "disabled");
        assert_eq!(responses["responseFormat"], "json_object");
        let messages = of(&json!({
            "system": text, "thinking": {"type": "enabled", "budget_tokens": 1000},
            "messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "base64", "data": text}}]}],
        }));
        assert_eq!(messages["reasoning"], "enabled");
        assert_eq!(messages["inputModalities"], json!(["text", "file"]));
        assert_eq!(of(&json!({"prompt": [text, text]}))["estimatedPromptTokens"], 20);
        assert_eq!(of(&json!({"input": [1, 2, 3]}))["estimatedPromptTokens"], 3);
    }

    proptest! {
        /// Nothing of what was said is in what is told; and no body is too strange.
        #[test]
        fn nothing_is_repeated(secret in "[a-z]{12}", body: Vec<u8>) {
            let said = json!({
                "model": secret, "messages": [{"role": secret, "content": secret, "name": secret, "type": secret}],
                "tools": [{"type": secret}], "reasoning_effort": secret, "response_format": {"type": secret},
            });
            prop_assert!(!of(&said).to_string().contains(&secret));
            let _ = Features::of(Surface::Chat, &body);
        }
    }
}
