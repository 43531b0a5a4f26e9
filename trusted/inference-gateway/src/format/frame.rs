//! How events are written to clients.

use bytes::Bytes;
use memchr::memchr2_iter;

use super::object::Object;

/// Ends a stream of chunks.
pub(super) const DONE: &[u8] = b"data: [DONE]\n\n";

/// A JSON document as an event.
pub(super) fn data_event(json: Vec<u8>) -> Bytes {
    event("data: ", json)
}

/// A JSON document as an event with a name, which has no line ends.
pub(super) fn named_event(name: &str, json: Vec<u8>) -> Bytes {
    event(&format!("event: {name}\ndata: "), json)
}

fn event(head: &str, mut json: Vec<u8>) -> Bytes {
    // Between JSON's tokens line ends are spaces; within an event they would begin another line.
    let breaks: Vec<usize> = memchr2_iter(b'\n', b'\r', &json).collect();
    for at in breaks {
        if let Some(byte) = json.get_mut(at) {
            *byte = b' ';
        }
    }
    let mut event = Vec::with_capacity(head.len() + json.len() + 2);
    event.extend_from_slice(head.as_bytes());
    event.append(&mut json);
    event.extend_from_slice(b"\n\n");
    event.into()
}

/// What ends a broken stream of chunks: an error, and no terminator.
pub(super) fn broken_chat(message: &str) -> Bytes {
    let error = Object::new().text("message", message).text("type", "upstream_error");
    let error = error.json("code", "502").json("param", "null").done();
    let document = Object::new().json("error", &error);
    [b"\n\n".as_slice(), &data_event(document.bytes())].concat().into()
}

/// What ends a broken stream of the Messages surface, whose answer has this id.
pub(super) fn broken_messages(message: &str, answer_id: &str) -> Bytes {
    let request_id = &answer_id.replacen("msg_", "req_", 1);
    let error = Object::of_type("api_error").text("message", message).done();
    let error = Object::of_type("error").json("error", &error).text("request_id", request_id);
    [b"\n\n".as_slice(), &named_event("error", error.bytes())].concat().into()
}
