//! A container's log on its way from the engine to a reader.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::channel::Sender;

use super::ansi::Ansi;
use super::query::LogQuery;
use crate::engine::{Body, Channel, Frame, Frames};

/// Copies until the log ends, the reader goes away, or the engine sends nonsense.
pub(super) async fn copy(mut log: Body, is_raw: bool, query: LogQuery, mut reader: Sender<Bytes>) {
    let mut frames = Frames::default();
    let mut style = [Ansi::default(); 2];
    while let Some(Ok(piece)) = log.frame().await {
        let Ok(bytes) = piece.into_data() else { continue };
        let mut out = Vec::new();
        if is_raw {
            append(&mut out, &Frame { channel: Channel::Stdout, message: bytes }, &query, &mut style);
        } else {
            frames.push(&bytes);
            loop {
                match frames.next() {
                    Ok(Some(frame)) => append(&mut out, &frame, &query, &mut style),
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
        }
        if !out.is_empty() && reader.send_data(out.into()).await.is_err() {
            return;
        }
    }
}

/// Writes one message in the form that the query asks for.
fn append(out: &mut Vec<u8>, frame: &Frame, query: &LogQuery, style: &mut [Ansi; 2]) {
    let [stdout, stderr] = style;
    let style = match frame.channel {
        Channel::Stdout => stdout,
        Channel::Stderr => stderr,
    };
    let message = if query.ansi { frame.message.to_vec() } else { style.strip(&frame.message) };
    if query.bare {
        return out.extend(message);
    }
    let message = if query.text {
        String::from_utf8_lossy(&message).into_owned()
    } else {
        BASE64_STANDARD.encode(message)
    };
    let line = serde_json::json!({ "channel": frame.channel.as_str(), "message": message });
    out.extend(line.to_string().bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_each_form() {
        let frame = Frame { channel: Channel::Stderr, message: Bytes::from_static(b"\x1b[1mhi\x1b[0m\n") };
        let write = |query| {
            let mut out = Vec::new();
            append(&mut out, &frame, &LogQuery::parse(query).unwrap(), &mut [Ansi::default(); 2]);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(write(""), "{\"channel\":\"stderr\",\"message\":\"aGkK\"}\n");
        assert_eq!(write("text"), "{\"channel\":\"stderr\",\"message\":\"hi\\n\"}\n");
        assert_eq!(write("text&bare"), "hi\n");
        assert_eq!(write("bare&ansi"), "\u{1b}[1mhi\u{1b}[0m\n");
    }
}
