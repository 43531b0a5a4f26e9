//! How events are written to clients.

use bytes::Bytes;
use memchr::memchr2_iter;

use super::object::Object;
use crate::error::{GatewayError, Kind};
use crate::surface::Surface;

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

/// What ends a stream that failed: the error in the words of its surface, and no terminator. Begins with a blank line.
/// `request_id` is that of the request (`req_…`), `number` that of the event where events are numbered.
pub(super) fn failed(surface: Surface, request_id: &str, number: u64, error: &GatewayError) -> Bytes {
    let (row, param) = (error.kind.row(), error.param.as_deref());
    let with_param = |object: Object| match param {
        Some(param) => object.text("param", param),
        None => object.json("param", "null"),
    };
    let event = match surface {
        Surface::Messages => named_event("error", error.messages_body(request_id)),
        Surface::Responses => {
            let code = if row.status.is_server_error() { "server_error" } else { row.kind };
            let error = Object::of_type("error").text("code", code).text("message", &error.message);
            named_event("error", with_param(error).json("sequence_number", &number.to_string()).bytes())
        }
        Surface::Chat | Surface::Completions | Surface::Embeddings => {
            let error = Object::new().text("message", &error.message).text("type", row.kind);
            let error = with_param(error.json("code", row.status.as_str()));
            data_event(Object::new().json("error", &error.done()).bytes())
        }
    };
    [b"\n\n".as_slice(), &event].concat().into()
}

/// What ends a broken stream of chunks.
pub(super) fn broken_chat(message: &str) -> Bytes {
    failed(Surface::Chat, "", 0, &GatewayError::new(Kind::Upstream, message))
}

/// What ends a broken stream of the Messages surface, whose answer has this id.
pub(super) fn broken_messages(message: &str, answer_id: &str) -> Bytes {
    let request_id = answer_id.replacen("msg_", "req_", 1);
    failed(Surface::Messages, &request_id, 0, &GatewayError::new(Kind::Upstream, message))
}

/// What ends a broken stream of the Responses surface, as the event of this number.
pub(super) fn broken_responses(message: &str, number: u64) -> Bytes {
    failed(Surface::Responses, "", number, &GatewayError::new(Kind::Upstream, message))
}
