//! Server-sent events, cut out of a byte stream as soon as each is complete.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2_iter;

/// Longest event, in bytes.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// A complete event, with the blank line that ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event(Bytes);

/// An event is longer than 4 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is too long")]
pub struct TooLong;

/// Cuts events out of a stream. What is not a complete event stays.
#[derive(Debug, Default)]
pub struct Events {
    waiting: BytesMut,
    /// Bytes of `waiting` that hold no end of an event.
    searched: usize,
}

impl Events {
    /// More of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// The next complete event, if there is one.
    #[expect(clippy::should_implement_trait, reason = "it is no iterator: more may come after None")]
    pub fn next(&mut self) -> Option<Result<Event, TooLong>> {
        if let Some(end) = self.end() {
            self.searched = 0;
            return Some(Ok(Event(self.waiting.split_to(end).freeze())));
        }
        (self.waiting.len() > MAX_EVENT_BYTES).then_some(Err(TooLong))
    }

    /// Bytes that wait for the end of their event.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether part of an event is waiting for its end. Line ends that follow an event are none.
    #[must_use]
    pub fn is_within_event(&self) -> bool {
        self.waiting.iter().any(|byte| !matches!(byte, b'\n' | b'\r'))
    }

    /// The last event of a stream that ended without the blank line, if it is nothing but line ends short of one.
    pub fn finish(&mut self) -> Option<Event> {
        let waiting = self.waiting.copy_to_bytes(self.waiting.len());
        self.searched = 0;
        let text = trimmed(&waiting);
        // A stream may end after its last line without the empty one; one that ends within a line was cut.
        (!text.is_empty() && text.len() < waiting.len()).then(|| {
            let mut event = BytesMut::from(text);
            event.extend_from_slice(b"\n\n");
            Event(event.freeze())
        })
    }

    /// Where the first event ends: after two line ends in a row, each `\n`, `\r\n` or `\r`. A `\r` at the very end
    /// may be half of a line end, so it is only taken for one when more has come.
    fn end(&mut self) -> Option<usize> {
        let text = &self.waiting;
        let from = self.searched.saturating_sub(3);
        let mut previous: Option<usize> = None;
        for found in memchr2_iter(b'\n', b'\r', text.get(from..)?) {
            let at = from + found;
            let is_second_half = text.get(at) == Some(&b'\n') && at > 0 && text.get(at - 1) == Some(&b'\r');
            if is_second_half {
                if previous == Some(at) {
                    previous = Some(at + 1);
                }
                continue;
            }
            let is_bare = text.get(at) == Some(&b'\n') || text.get(at + 1).is_some_and(|next| *next != b'\n');
            let length = if is_bare { 1 } else { 2 };
            let is_whole = is_bare || text.len() > at + 1;
            if previous == Some(at) && is_whole {
                return Some(at + length);
            }
            previous = Some(at + length);
        }
        self.searched = text.len();
        None
    }
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
    bytes.get(..end).unwrap_or_default()
}

impl Event {
    /// The bytes, as they are passed on.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The data: its lines, joined by line ends; `None` for a comment or an event without any.
    #[must_use]
    pub fn data(&self) -> Option<Bytes> {
        let mut lines = self.fields("data");
        let first = lines.next()?;
        let mut rest = lines.peekable();
        if rest.peek().is_none() {
            return Some(self.0.slice_ref(first));
        }
        let mut joined = BytesMut::from(first);
        for line in rest {
            joined.extend_from_slice(b"\n");
            joined.extend_from_slice(line);
        }
        Some(joined.freeze())
    }

    /// The event's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.fields("event").last().and_then(|name| std::str::from_utf8(name).ok())
    }

    fn fields(&self, name: &'static str) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| matches!(byte, b'\n' | b'\r')).filter_map(move |line| {
            let value = line.strip_prefix(name.as_bytes())?;
            match value.strip_prefix(b":") {
                Some(value) => Some(value.strip_prefix(b" ").unwrap_or(value)),
                None => value.is_empty().then_some(value),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(pieces: &[&[u8]]) -> (Vec<Bytes>, Events) {
        let (mut events, mut found) = (Events::default(), Vec::new());
        for piece in pieces {
            events.push(piece);
            while let Some(event) = events.next() {
                found.push(event.unwrap().0);
            }
        }
        (found, events)
    }

    #[test]
    fn every_line_end_ends_events() {
        for text in ["data: a\n\ndata: b\n\n", "data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\rdata: b\r\r:"] {
            let (found, _) = all(&[text.as_bytes()]);
            assert_eq!(found.len(), 2, "{text:?}");
            let data: Vec<_> = found.into_iter().map(|bytes| Event(bytes).data().unwrap()).collect();
            assert_eq!(data, ["a", "b"]);
        }
    }

    #[test]
    fn an_event_is_there_with_its_last_byte() {
        let (found, _) = all(&[b"data: a\n\n"]);
        assert_eq!(found, ["data: a\n\n"]);
        let (found, _) = all(&[b"data: a\r\n\r\n"]);
        assert_eq!(found, ["data: a\r\n\r\n"]);
    }

    #[test]
    fn data_of_several_lines_and_comments() {
        let event = |text: &'static str| Event(Bytes::from_static(text.as_bytes()));
        assert_eq!(event("event: x\ndata: a\ndata:b\n\n").data().unwrap(), "a\nb");
        assert_eq!(event("event: x\ndata: a\n\n").name(), Some("x"));
        assert_eq!(event(": ping\n\n").data(), None);
        assert_eq!(event("data\n\n").data().unwrap(), "");
        assert_eq!(event("database: a\n\n").data(), None);
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let mut events = Events::default();
        events.push(&vec![b'a'; MAX_EVENT_BYTES + 1]);
        assert_eq!(events.next(), Some(Err(TooLong)));
    }

    #[test]
    fn the_end_of_a_stream() {
        let finish = |text: &str| {
            let mut events = Events::default();
            events.push(text.as_bytes());
            assert!(events.next().is_none());
            (events.is_within_event(), events.finish().map(|event| event.0))
        };
        assert_eq!(finish("data: [DONE]\n"), (true, Some(Bytes::from_static(b"data: [DONE]\n\n"))));
        assert_eq!(finish("data: [DO"), (true, None));
        assert_eq!(finish("\n"), (false, None));
        assert_eq!(finish(""), (false, None));
    }

    proptest! {
        /// However a stream is cut into pieces, the events are the same, and no byte is lost.
        #[test]
        fn pieces_do_not_matter(
            text in prop::collection::vec(prop::sample::select(vec![b'a', b'\n', b'\r', b':', b' ']), 0..80),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            places.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for place in places {
                pieces.push(&text[from..place]);
                from = place;
            }
            pieces.push(&text[from..]);
            let (cut, cut_rest) = all(&pieces);
            let (whole, whole_rest) = all(&[&text]);
            let joined = |found: &[Bytes], rest: &Events| [found.concat(), rest.waiting.to_vec()].concat();
            prop_assert_eq!(joined(&cut, &cut_rest), text.clone());
            prop_assert_eq!(joined(&whole, &whole_rest), text);
            let data = |found: Vec<Bytes>| found.into_iter().filter_map(|bytes| Event(bytes).data()).collect::<Vec<_>>();
            prop_assert_eq!(data(cut), data(whole));
        }
    }
}
