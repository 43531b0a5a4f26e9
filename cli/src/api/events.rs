//! Server-sent events.

use std::collections::VecDeque;

use reqwest::Response;

/// Longest event that is kept, in bytes; the rest of a longer line is dropped.
const MAX_LINE_BYTES: usize = 256 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its kind; `message` when the server named none.
    pub(crate) name: String,
    /// Its data, lines joined.
    pub(crate) data: String,
    /// The place of the stream that it ends at, if the server named one.
    pub(crate) id: Option<String>,
}

/// The events of one answer.
#[derive(Debug)]
pub(crate) struct Events {
    answer: Response,
    parser: Parser,
}

impl Events {
    pub(super) fn new(answer: Response) -> Self {
        Self { answer, parser: Parser::default() }
    }

    /// The next event; `None` when the stream ended or broke off.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.parser.ready.pop_front() {
                return Some(event);
            }
            let chunk = self.answer.chunk().await.ok()??;
            self.parser.feed(&chunk);
        }
    }
}

/// Splits bytes into events, however they are cut into pieces.
#[derive(Debug, Default)]
struct Parser {
    line: Vec<u8>,
    name: Option<String>,
    id: Option<String>,
    data: Vec<String>,
    ready: VecDeque<Event>,
}

impl Parser {
    fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => self.end_line(),
                _ if self.line.len() < MAX_LINE_BYTES => self.line.push(*byte),
                _ => {}
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).trim_end_matches('\r').to_owned();
        let (field, value) = line.split_once(':').unwrap_or((line.as_str(), ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = Some(value.to_owned()),
            "id" => self.id = Some(value.to_owned()),
            "data" if self.data.iter().map(String::len).sum::<usize>() < MAX_LINE_BYTES => {
                self.data.push(value.to_owned());
            }
            "" if line.is_empty() => self.end_event(),
            _ => {}
        }
    }

    fn end_event(&mut self) {
        let name = self.name.take().unwrap_or_else(|| "message".to_owned());
        let (id, data) = (self.id.take(), std::mem::take(&mut self.data));
        if !data.is_empty() {
            self.ready.push_back(Event { name, data: data.join("\n"), id });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: &str = ": keep-alive\n\nid: 7\nevent: state\ndata: {\"status\":\"starting\"}\n\nevent: complete\r\n\
                          data: a\r\ndata: b\r\n\r\nevent: empty\n\nevent: cut off\ndata: x";

    proptest! {
        #[test]
        fn pieces_do_not_matter(cut in 0..STREAM.len()) {
            let mut parser = Parser::default();
            parser.feed(&STREAM.as_bytes()[..cut]);
            parser.feed(&STREAM.as_bytes()[cut..]);
            let events: Vec<_> = parser.ready.iter().map(|event| (event.name.as_str(), event.data.as_str())).collect();
            let ids: Vec<_> = parser.ready.iter().map(|event| event.id.as_deref()).collect();
            prop_assert_eq!(ids, [Some("7"), None]);
            prop_assert_eq!(events, [("state", "{\"status\":\"starting\"}"), ("complete", "a\nb")]);
        }

        #[test]
        fn hostile_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            Parser::default().feed(&bytes);
        }
    }
}
