//! Which members are texts to hide. One table for each direction; both versions share them.

use serde_json::{Map, Value};

use super::json::{Values, is_parts};
use crate::body::is_too_deep;
use crate::error::GatewayError;

/// Members of a request that are texts, or have them.
pub(super) const OF_REQUEST: [&str; 3] = ["messages", "prompt", "input"];
/// Members of an answer's message that are texts.
const TEXTS: [&str; 3] = ["content", "reasoning", "reasoning_content"];
/// Members of a message's sound.
const SOUND: [&str; 2] = ["data", "transcript"];
/// Members that say once more what the texts say. Nobody encrypts them, so they do not go out.
const REPETITIONS: [&str; 3] = ["reasoning_details", "thinking_blocks", "reasoning_items"];

/// Visits every value of a request that is a ciphertext, and puts the text in its place. With `media`, images and
/// sounds are among them. Of the request, [`OF_REQUEST`] is enough.
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

/// Visits every text of an answer, or of one event of a stream, and puts the ciphertext in its place. What says the
/// same in clear is taken out.
pub(super) fn of_answer<E>(
    answer: &mut Value,
    seal: &mut impl FnMut(&str, &[u8]) -> Result<String, E>,
) -> Result<(), E> {
    for (i, choice) in entries(answer, "choices") {
        for holder in ["message", "delta"] {
            let Some(message) = choice.get_mut(holder).and_then(Value::as_object_mut) else { continue };
            let field = format!("choices.{i}.{holder}");
            for name in REPETITIONS {
                message.shift_remove(name);
            }
            seal_members(message, &field, &TEXTS, seal)?;
            if let Some(sound) = message.get_mut("audio").and_then(Value::as_object_mut) {
                seal_members(sound, &format!("{field}.audio"), &SOUND, seal)?;
            }
        }
        seal_members(choice, &format!("choices.{i}"), &["text"], seal)?;
        if let Some(probabilities) = choice.get_mut("logprobs") {
            *probabilities = Value::Null;
        }
    }
    for (i, entry) in entries(answer, "data") {
        seal_members(entry, &format!("data.{i}"), &["embedding"], seal)?;
    }
    Ok(())
}

/// Objects of a list with their `index`, or their position where they have none.
fn entries<'a>(answer: &'a mut Value, name: &str) -> impl Iterator<Item = (u64, &'a mut Map<String, Value>)> {
    let list = answer.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten();
    list.enumerate().filter_map(|(position, entry)| {
        let entry = entry.as_object_mut()?;
        let index = entry.get("index").and_then(Value::as_u64);
        Some((index.unwrap_or(position as u64), entry))
    })
}

fn seal_members<E>(
    members: &mut Map<String, Value>,
    field: &str,
    names: &[&str],
    seal: &mut impl FnMut(&str, &[u8]) -> Result<String, E>,
) -> Result<(), E> {
    for name in names {
        let Some(value) = members.get_mut(*name).filter(|value| !value.is_null()) else { continue };
        let field = format!("{field}.{name}");
        let sealed = match &*value {
            Value::String(text) => seal(&field, text.as_bytes()),
            other => seal(&field, other.to_string().as_bytes()),
        }?;
        *value = Value::String(sealed);
    }
    Ok(())
}
