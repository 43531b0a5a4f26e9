//! Objects in canonical form, written member by member in one pass.

use serde::Serialize;

/// An object that is being written. Who writes it gives the members in canonical order; names are ASCII without quotes,
/// backslashes and control characters.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    json: &'a mut Vec<u8>,
    /// What stands before the next member.
    before: u8,
}

impl<'a> Object<'a> {
    /// One without members so far.
    pub(crate) const fn begin(json: &'a mut Vec<u8>) -> Self {
        Self { json, before: b'{' }
    }

    /// One that goes on behind at least one member.
    pub(crate) const fn go_on(json: &'a mut Vec<u8>) -> Self {
        Self { json, before: b',' }
    }

    /// A member, whose value goes behind what is given.
    pub(crate) fn member(&mut self, name: &'static str) -> &mut Vec<u8> {
        self.json.extend_from_slice(&[self.before, b'"']);
        self.json.extend_from_slice(name.as_bytes());
        self.json.extend_from_slice(b"\":");
        self.before = b',';
        self.json
    }

    /// A text. One copy of this stays in a processor's caches; twenty, for the members of a receipt, do not.
    #[inline(never)]
    pub(crate) fn text(&mut self, name: &'static str, text: &str) -> Result<&mut Self, serde_json::Error> {
        let json = self.member(name);
        if is_plain(text) {
            json.reserve(text.len() + 2);
            json.push(b'"');
            json.extend_from_slice(text.as_bytes());
            json.push(b'"');
            return Ok(self);
        }
        self.value_of(text)
    }

    /// A text, or no member.
    pub(crate) fn text_if_any(
        &mut self,
        name: &'static str,
        text: Option<&str>,
    ) -> Result<&mut Self, serde_json::Error> {
        match text {
            Some(text) => self.text(name, text),
            None => Ok(self),
        }
    }

    /// Any value that is written in canonical form.
    pub(crate) fn value(
        &mut self,
        name: &'static str,
        value: &impl Serialize,
    ) -> Result<&mut Self, serde_json::Error> {
        self.member(name);
        self.value_of(value)
    }

    fn value_of(&mut self, value: &(impl Serialize + ?Sized)) -> Result<&mut Self, serde_json::Error> {
        serde_json::to_writer(&mut *self.json, value)?;
        Ok(self)
    }

    /// The end of it.
    pub(crate) fn end(&mut self) {
        self.json.push(b'}');
    }
}

/// Whether a text is written as it is. All of it is looked at, which the compiler does many bytes at a time.
fn is_plain(text: &str) -> bool {
    let is_special = |byte| u8::from(byte < b' ') | u8::from(byte == b'"') | u8::from(byte == b'\\');
    text.bytes().fold(0, |found, byte| found | is_special(byte)) == 0
}
