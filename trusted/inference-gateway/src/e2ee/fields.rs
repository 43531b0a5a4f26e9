//! Which members are texts to hide. One table for each direction; both versions share them.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::json::{Values, compact, is_parts};
use super::{MAX_FIELDS, NotSealed};
use crate::body::{Body, Change, Few, is_too_deep, raw_text};
use crate::error::GatewayError;

/// Members of a request that are texts, or have them.
pub(super) const OF_REQUEST: [&str; 3] = ["messages", "prompt", "input"];
/// Members of an answer's message that are texts.
const TEXTS: [&str; 3] = ["content", "reasoning", "reasoning_content"];
/// Members of a message's sound.
const SOUND: [&str; 2] = ["data", "transcript"];
/// Members that say once more what the texts say, quote it, or show what it asked for. Nobody encrypts them, so they do not
/// go out.
const IN_CLEAR: [&str; 5] =
    ["reasoning_details", "thinking_blocks", "reasoning_items", "annotations", "images"];

/// Visits every value of a request that is a ciphertext, and puts the text in its place. With `media`, images and
/// sounds are among them. Members beside [`OF_REQUEST`] are not looked at, and need not be there.
pub(super) fn of_request(
    request: &mut Map<String, Value>,
    media: bool,
    values: &mut Values,
    open: &mut impl FnMut(&str, &str) -> Result<String, GatewayError>,
) -> Result<(), GatewayError> {
    let messages = request.get_mut("messages").and_then(Value::as_array_mut);
    for (m, message) in messages.into_iter().flatten().enumerate() {
        let Some(content) = message.get_mut("content") else { continue };
        let field = format!("messages.{m}.content");
        match content {
            Value::String(value) => {
                let text = open(&field, value)?;
                *content = structured(&text, values)?.unwrap_or(Value::String(text));
            }
            Value::Array(parts) => {
                for (c, part) in parts.iter_mut().enumerate() {
                    let places: &[&str] =
                        if media { &["text", "image_url/url", "input_audio/data"] } else { &["text"] };
                    for place in places {
                        let Some(Value::String(value)) = part.pointer_mut(&format!("/{place}")) else {
                            continue;
                        };
                        *value = open(&format!("{field}.{c}.{}", place.replace('/', ".")), value)?;
                    }
                }
            }
            _ => {}
        }
    }
    for name in ["prompt", "input"] {
        match request.get_mut(name) {
            Some(Value::String(value)) => *value = open(name, value)?,
            Some(Value::Array(items)) => {
                for (i, item) in items.iter_mut().enumerate() {
                    if let Value::String(value) = item {
                        *value = open(&format!("{name}.{i}"), value)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A content that was encrypted as a whole: its parts. A text that only looks like a list stays a text.
fn structured(text: &str, values: &mut Values) -> Result<Option<Value>, GatewayError> {
    if !text.starts_with('[') || is_too_deep(text.as_bytes()) || !is_parts(text) {
        return Ok(None);
    }
    values.take(text)?;
    let parts: Option<Vec<Value>> = serde_json::from_str(text).ok();
    Ok(parts.filter(|parts| parts.iter().all(Value::is_object)).map(Value::Array))
}

/// Gives every text of an answer, or of one event of a stream, to be sealed, and writes the ciphertext in its place. What
/// says the same in clear is taken out; other members stay as they came.
pub(super) fn of_answer(answer: &Body<'_>, seal: &mut Seal<'_>) -> Result<Vec<u8>, NotSealed> {
    let mut changes = Vec::new();
    let lists: [(&str, SealEntry); 2] = [("choices", of_choice), ("data", of_vector)];
    for (name, seal_entry) in lists {
        let Some(list) = answer.raw(name) else { continue };
        let Few(entries): Few<&RawValue, MAX_FIELDS> = serde_json::from_str(list.get())?;
        let mut sealed = Vec::with_capacity(list.get().len());
        for (position, entry) in entries.iter().enumerate() {
            let entry = inner(entry)?;
            let index = entry.raw("index").and_then(|index| index.get().parse().ok());
            let field = format!("{name}.{}", index.unwrap_or(position as u64));
            sealed.push(if sealed.is_empty() { b'[' } else { b',' });
            sealed.append(&mut seal_entry(&entry, &field, seal)?);
        }
        if !sealed.is_empty() {
            sealed.push(b']');
            changes.push((name, set(sealed)?));
        }
    }
    Ok(answer.rewrite(&changes))
}

/// Seals a text of a field.
pub(super) type Seal<'a> = dyn FnMut(&str, &[u8]) -> Result<String, NotSealed> + 'a;
type SealEntry = fn(&Body<'_>, &str, &mut Seal<'_>) -> Result<Vec<u8>, NotSealed>;
type Changes = Vec<(&'static str, Change)>;

fn of_choice(choice: &Body<'_>, field: &str, seal: &mut Seal<'_>) -> Result<Vec<u8>, NotSealed> {
    let mut changes = sealed(choice, field, &["text"], seal)?;
    for holder in ["message", "delta"] {
        if let Some(message) = choice.raw(holder) {
            let message = of_message(&inner(message)?, &format!("{field}.{holder}"), seal)?;
            changes.push((holder, set(message)?));
        }
    }
    if choice.has("logprobs") {
        changes.push(("logprobs", set(b"null".to_vec())?));
    }
    Ok(choice.rewrite(&changes))
}

fn of_message(message: &Body<'_>, field: &str, seal: &mut Seal<'_>) -> Result<Vec<u8>, NotSealed> {
    let mut changes = sealed(message, field, &TEXTS, seal)?;
    if let Some(sound) = message.raw("audio") {
        let sound = inner(sound)?;
        let texts = sealed(&sound, &format!("{field}.audio"), &SOUND, seal)?;
        changes.push(("audio", set(sound.rewrite(&texts))?));
    }
    changes.extend(IN_CLEAR.map(|name| (name, Change::Remove)));
    Ok(message.rewrite(&changes))
}

/// A vector is sealed as JSON in any of its forms, numbers or base64: who opens it parses what is inside.
fn of_vector(entry: &Body<'_>, field: &str, seal: &mut Seal<'_>) -> Result<Vec<u8>, NotSealed> {
    const NAME: &str = "embedding";
    let Some(vector) = entry.raw(NAME) else { return Ok(entry.rewrite(&[])) };
    let sealed = seal(&format!("{field}.{NAME}"), &compact(vector)?)?;
    Ok(entry.rewrite(&[(NAME, Change::Set(raw_text(&sealed)))]))
}

/// These members, sealed. What is no text is sealed as JSON in its one form.
fn sealed(
    members: &Body<'_>,
    field: &str,
    names: &[&'static str],
    seal: &mut Seal<'_>,
) -> Result<Changes, NotSealed> {
    let mut changes = Changes::new();
    for name in names {
        let Some(value) = members.raw(name) else { continue };
        let text = if value.get().starts_with('"') {
            serde_json::from_str::<String>(value.get())?.into_bytes()
        } else {
            compact(value)?
        };
        changes.push((*name, Change::Set(raw_text(&seal(&format!("{field}.{name}"), &text)?))));
    }
    Ok(changes)
}

fn inner(value: &RawValue) -> Result<Body<'_>, NotSealed> {
    Body::parse(value.get().as_bytes()).map_err(|_| NotSealed::Shape)
}

fn set(json: Vec<u8>) -> Result<Change, NotSealed> {
    let json = String::from_utf8(json).map_err(|_| NotSealed::Shape)?;
    Ok(Change::Set(RawValue::from_string(json)?))
}
