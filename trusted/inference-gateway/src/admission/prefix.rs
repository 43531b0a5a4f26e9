//! What a prompt begins with, told apart without being told: a control plane that knows which upstream has seen a beginning
//! can send the next request with it there.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read as _};
use std::ops::RangeInclusive;
use std::path::Path;

use aws_lc_rs::hmac;
use serde::Deserialize;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::KeyHash;
use crate::body::{Body, Few, Raw, members, object};
use crate::format::MAX_ENTRIES;
use crate::surface::Surface;

/// Bytes that a beginning has; what is shorter has none.
const LENGTH: usize = 4096;
/// Bytes of its hash that are told.
const TOLD: usize = 16;
/// Bytes of a secret.
const SECRET: RangeInclusive<usize> = 32..=4096;

/// A secret under which beginnings are hashed, each for the key that asks: neither who knows only the hash nor who can ask
/// with another key finds out whether a prompt begins with certain words.
pub(super) struct PrefixKey(hmac::Key);

impl fmt::Debug for PrefixKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PrefixKey")
    }
}

impl PrefixKey {
    /// Of a file of text; white space around it does not count. Fails if that is not readable, or has fewer than 32 or more
    /// than 4,096 bytes.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        // So much white space may be around it.
        let mut bytes = Zeroizing::new(Vec::with_capacity(2 * SECRET.end()));
        std::fs::File::open(path)?.take(bytes.capacity() as u64).read_to_end(&mut bytes)?;
        let secret = bytes.trim_ascii();
        if !SECRET.contains(&secret.len()) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// 32 hex digits: the first half of HMAC-SHA256 over the hash of the key that asks and the first 4,096 bytes of this: the
    /// role of each message that has texts (none where there are no messages), a zero byte, and those texts, in their order.
    /// `None` for a prompt that is shorter, and for embeddings, of which upstreams keep no beginnings.
    pub(super) fn hash(&self, owner: KeyHash, surface: Surface, body: &[u8]) -> Option<String> {
        let body = (body.len() > LENGTH).then(|| Body::parse(body).ok())??;
        let mut beginning = Beginning::default();
        beginning.request(surface, &body);
        if !beginning.is_full() {
            return None;
        }
        let mut hash = hmac::Context::with_key(&self.0);
        hash.update(&owner.0);
        hash.update(&beginning.0);
        hash.sign().as_ref().get(..TOLD).map(hex::encode)
    }
}

members! {
    struct Message { role, content }
    struct Part { text }
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Never longer than [`LENGTH`].
#[derive(Default)]
struct Beginning(Vec<u8>);

impl Beginning {
    fn is_full(&self) -> bool {
        self.0.len() == LENGTH
    }

    fn push(&mut self, text: &str) {
        self.0.extend(text.bytes().take(LENGTH - self.0.len()));
    }

    /// Instructions of other surfaces are what a message of the system is in a chat.
    fn request(&mut self, surface: Surface, body: &Body<'_>) {
        let (system, list) = match surface {
            Surface::Chat => (None, "messages"),
            Surface::Completions => (None, "prompt"),
            Surface::Responses => (Some("instructions"), "input"),
            Surface::Messages => (Some("system"), "messages"),
            Surface::Embeddings => return,
        };
        if let Some(system) = system.and_then(|name| body.raw(name)) {
            self.message("system", system);
        }
        for entry in body.raw(list).map(entries).unwrap_or_default() {
            if self.is_full() {
                return;
            }
            let Some(Message { role, content }) = object(entry.get()) else {
                self.message("", entry);
                continue;
            };
            let role = text(role).unwrap_or_default();
            if let Some(content) = content.value() {
                self.message(&role, content);
            }
        }
    }

    fn message(&mut self, role: &str, content: &RawValue) {
        let mut head = Some([role, "\0"]);
        for part in entries(content) {
            if self.is_full() {
                return;
            }
            let part = object::<Part<'_>>(part.get()).map_or(Raw::of(part), |part| part.text);
            if let Some(text) = text(part) {
                head.take().into_iter().flatten().for_each(|head| self.push(head));
                self.push(&text);
            }
        }
    }
}

/// Those of a list, or what is there instead of one.
fn entries(value: &RawValue) -> Vec<&RawValue> {
    if !value.get().starts_with('[') {
        return vec![value];
    }
    serde_json::from_str(value.get()).map_or_else(|_| Vec::new(), |Few::<_, MAX_ENTRIES>(list)| list)
}

/// What is no text is not read as one: a prompt may be told as millions of numbers.
fn text(value: Raw<'_>) -> Option<Cow<'_, str>> {
    let is_text = value.text()?.starts_with('"');
    is_text.then(|| value.read())?.map(|Text(text)| text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const OWNER: KeyHash = KeyHash([1; 32]);

    fn key() -> PrefixKey {
        PrefixKey(hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]))
    }

    fn of(surface: Surface, body: &Value) -> Option<String> {
        key().hash(OWNER, surface, body.to_string().as_bytes())
    }

    fn hash(beginning: &[u8]) -> String {
        let whole = [&OWNER.0, beginning].concat();
        hex::encode(&hmac::sign(&key().0, &whole).as_ref()[..16])
    }

    #[test]
    fn a_beginning_is_the_same_however_it_is_sent() {
        let long = "ä".repeat(3000);
        let whole = hash(&format!("system\0briefuser\0{long}").as_bytes()[..4096]);
        let parts = json!([{"type": "text", "text": "br"}, {"type": "text", "text": "ief"}]);
        for (surface, body) in [
            (
                Surface::Chat,
                json!({"messages": [{"role": "system", "content": "brief"}, {"role": "user", "content": long}]}),
            ),
            (
                Surface::Chat,
                json!({"system": "not of a chat", "messages": [
                    {"role": "system", "content": parts},
                    {"role": "user", "content": null},
                    {"content": long, "role": "user"},
                    {"role": "assistant", "content": "more"},
                ]}),
            ),
            (
                Surface::Messages,
                json!({"system": "brief", "messages": [{"role": "user", "content": [{"type": "text", "text": long}]}]}),
            ),
            (
                Surface::Messages,
                json!({"system": [{"text": "brief"}], "messages": [{"role": "user", "content": [
                    {"type": "image", "source": {"data": "AAAA"}}, long,
                ]}]}),
            ),
            (
                Surface::Responses,
                json!({"instructions": "brief", "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": long}]},
                ]}),
            ),
        ] {
            assert_eq!(of(surface, &body).as_ref(), Some(&whole), "{body}");
        }
        let alone = hash(&format!("\0{long}").as_bytes()[..4096]);
        for (surface, body) in [
            (Surface::Completions, json!({"prompt": long})),
            (Surface::Completions, json!({"prompt": [long]})),
            (Surface::Responses, json!({"input": long})),
        ] {
            assert_eq!(of(surface, &body).as_ref(), Some(&alone), "{body}");
        }
        assert_eq!(of(Surface::Embeddings, &json!({"input": long})), None);
    }

    #[test]
    fn only_what_fills_it_has_one_and_each_owner_another() {
        for (length, has_one) in [(4090, false), (4091, true), (4092, true)] {
            let of = |content: String| {
                of(Surface::Chat, &json!({"messages": [{"role": "user", "content": content}]}))
            };
            let (short, more) = ("a".repeat(length), format!("{}b", "a".repeat(length)));
            assert_eq!(of(short.clone()).is_some(), has_one, "{length}");
            assert_eq!(of(short) == of(more), has_one, "{length}");
        }
        let other = PrefixKey(hmac::Key::new(hmac::HMAC_SHA256, &[8; 32]));
        let body = json!({"prompt": "a".repeat(5000)}).to_string();
        let hashes = [(&key(), OWNER), (&other, OWNER), (&key(), KeyHash([2; 32]))]
            .map(|(key, owner)| key.hash(owner, Surface::Completions, body.as_bytes()).unwrap());
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2]);
    }

    #[test]
    fn a_secret_is_long_enough_and_shown_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        PrefixKey::read(&path).unwrap_err();
        for (length, is_one) in
            [(0, false), (31, false), (32, true), (4096, true), (4097, false), (9000, false)]
        {
            std::fs::write(&path, format!("{}\n", "s".repeat(length))).unwrap();
            let read = PrefixKey::read(&path);
            assert_eq!(read.is_ok(), is_one, "{length}");
            assert!(!format!("{read:?}").contains("sss"));
        }
    }

    fn surface() -> impl Strategy<Value = Surface> {
        prop::sample::select(vec![
            Surface::Chat,
            Surface::Completions,
            Surface::Responses,
            Surface::Messages,
            Surface::Embeddings,
        ])
    }

    proptest! {
        /// No body is too strange.
        #[test]
        fn whatever_it_is_of(surface in surface(), entry in "[\\[\\]{}\",:a0]{0,6}", count in 1..3000_usize) {
            let entries = vec![entry.as_str(); count].join(",");
            for name in ["system", "messages", "prompt", "input"] {
                let told = key().hash(OWNER, surface, format!("{{\"{name}\":[{entries}]}}").as_bytes());
                prop_assert!(told.is_none_or(|told| told.len() == 2 * TOLD));
            }
        }

        /// Tokens that are told by their numbers have no texts.
        #[test]
        fn numbers_are_no_texts(surface in surface(), numbers in prop::collection::vec(any::<u16>(), 5000)) {
            let body = json!({"prompt": numbers, "input": [numbers], "messages": [{"content": numbers}]});
            prop_assert_eq!(of(surface, &body), None);
        }
    }
}
