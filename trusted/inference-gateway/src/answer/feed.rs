//! An upstream's stream as what the client gets for it: whole events, translated and judged.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};

use super::failure::NO_ROOM;
use crate::door::{NoRoom, SMALL, Share};
use crate::format::{Ending, Step, Translate, UpstreamFault};
use crate::stream::{Event, Events};
use crate::upstream::{Answer, SendFailure};

/// Follows one stream.
#[derive(Debug)]
pub(super) struct Feed {
    answer: Answer,
    events: Events,
    pub(super) translator: Box<dyn Translate>,
    /// Of the upstream's bytes.
    pub(super) received: Sha256,
    waiting: VecDeque<Fed>,
    /// The memory of an event that is not complete.
    share: Share,
    /// Since when there is none for it.
    lacks_room: Option<Instant>,
    idle: Duration,
    /// When silence lasts too long.
    silent_until: Instant,
    /// When the answer has to be whole.
    whole_until: Option<Instant>,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Fed {
    /// Whole events for the client; maybe none.
    Bytes {
        /// The events.
        bytes: Bytes,
        /// Whether a client may show anything of them.
        has_content: bool,
    },
    /// The answer is whole; these are its last bytes.
    Whole(Bytes),
    /// The upstream says that it failed.
    Failed(UpstreamFault),
    /// The stream broke.
    Broken(Break),
}

/// How a stream breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Break {
    /// The connection did.
    Transport,
    /// A limit in time passed.
    TimedOut,
    /// It ended before the answer was whole.
    Truncated,
    /// It holds what no answer may hold.
    Malformed,
    /// Some of the choices that were asked for never came.
    Fewer,
    /// An event of it is longer than any that is passed on.
    TooLong,
    /// The gateway has no memory for an event, and had none for as long as it waited.
    NoRoom,
}

impl Break {
    /// Whether clients can bring it about: such a break counts against no route.
    pub(super) const fn is_of_client(self) -> bool {
        matches!(self, Self::Fewer | Self::TooLong)
    }

    /// For the operator.
    pub(super) const fn why(self) -> &'static str {
        match self {
            Self::Transport => "the connection to the upstream broke",
            Self::TimedOut => "the upstream timed out",
            Self::Truncated => "the upstream's answer was cut",
            Self::Malformed => "the upstream's answer cannot be understood",
            Self::Fewer => "the upstream made fewer answers than were asked for",
            Self::TooLong => "an event of the upstream is too long to be passed on",
            Self::NoRoom => NO_ROOM,
        }
    }
}

impl Feed {
    pub(super) fn new(
        answer: Answer,
        translator: Box<dyn Translate>,
        idle: Duration,
        whole_until: Option<Instant>,
        share: Share,
    ) -> Self {
        Self {
            answer,
            events: Events::default(),
            translator,
            received: Sha256::new(),
            waiting: VecDeque::new(),
            share,
            lacks_room: None,
            idle,
            silent_until: Instant::now() + idle,
            whole_until,
        }
    }

    /// What comes next. Nothing is lost when it is not awaited to its end.
    pub(super) async fn next(&mut self) -> Fed {
        loop {
            if let Some(next) = self.waiting.pop_front() {
                return next;
            }
            if self.make_room().await.is_err() {
                return Fed::Broken(Break::NoRoom);
            }
            let until = self.whole_until.map_or(self.silent_until, |whole| whole.min(self.silent_until));
            // The answer's own limit is no less than what is left.
            match timeout_at(until, self.answer.piece(self.idle)).await {
                Err(_) | Ok(Err(SendFailure::TimedOut)) => return Fed::Broken(Break::TimedOut),
                Ok(Err(_)) => return Fed::Broken(Break::Transport),
                Ok(Ok(Some(piece))) => {
                    self.silent_until = Instant::now() + self.idle;
                    self.received.update(&piece);
                    self.events.push(&piece);
                    self.take();
                }
                Ok(Ok(None)) => self.end(),
            }
        }
    }

    /// Has an event that is not complete counted among the bodies; a small one is not.
    async fn make_room(&mut self) -> Result<(), NoRoom> {
        let waiting = self.events.waiting();
        if waiting <= SMALL {
            self.share.give_back();
            return Ok(());
        }
        // Whoever gave up waiting in between comes back here.
        let since = *self.lacks_room.get_or_insert_with(Instant::now);
        timeout_at(since + self.idle, self.share.cover(waiting)).await.map_err(|_| NoRoom)??;
        self.lacks_room = None;
        self.was_kept_waiting(since.elapsed());
        Ok(())
    }

    /// Whether what comes next waits for memory, and not for the upstream.
    pub(super) const fn lacks_room(&self) -> bool {
        self.lacks_room.is_some()
    }

    /// Nobody listened for so long: neither the silence nor the slowness of that time is the upstream's.
    pub(super) fn was_kept_waiting(&mut self, time: Duration) {
        if self.lacks_room.is_some() {
            // All of the time without room is counted when there is some.
            return;
        }
        self.silent_until += time;
        self.whole_until = self.whole_until.map(|until| until + time);
    }

    /// Translates all events that are complete.
    fn take(&mut self) {
        let mut batch = Batch::default();
        while let Some(event) = self.events.next() {
            let last = match event {
                Ok(event) => batch.push(self.translator.event(&event)),
                Err(_) => Some(Fed::Broken(Break::TooLong)),
            };
            if let Some(last) = last.map(|last| self.lacking(last)) {
                self.waiting.extend(batch.take().into_iter().chain([last]));
                return;
            }
        }
        self.waiting.extend(batch.take());
    }

    /// An end that is none only because some of the choices are not there.
    fn lacking(&self, end: Fed) -> Fed {
        match end {
            Fed::Broken(Break::Truncated | Break::Malformed) if self.translator.lacks_choices() => {
                Fed::Broken(Break::Fewer)
            }
            end => end,
        }
    }

    /// The upstream's stream ended cleanly.
    fn end(&mut self) {
        let mut batch = Batch::default();
        let rest: Option<Event> = self.events.finish();
        let last = rest.and_then(|event| batch.push(self.translator.event(&event)));
        let last = last.unwrap_or_else(|| match self.translator.end() {
            Ending::Whole(bytes) => Fed::Whole(bytes),
            Ending::Truncated => Fed::Broken(Break::Truncated),
        });
        let last = self.lacking(last);
        self.waiting.extend(batch.take().into_iter().chain([last]));
    }

    /// Nobody listens any more. Where every choice has ended, the upstream is about to tell what it used: that is read,
    /// for so long at most. In the middle of an answer the upstream is not made to go on.
    pub(super) async fn read_on(&mut self, time: Duration) {
        if !self.translator.has_finished() {
            return;
        }
        let until = Instant::now() + time;
        while let Ok(Fed::Bytes { .. }) = timeout_at(until, self.next()).await {}
    }

    /// Reads what may follow the end, so that the connection can be used again; for a moment.
    pub(super) async fn drain(mut self) {
        const MOMENT: Duration = Duration::from_millis(500);
        let until = Instant::now() + MOMENT;
        while let Ok(Ok(Some(_))) = timeout_at(until, self.answer.piece(MOMENT)).await {}
    }
}

/// Events that came together go out together.
#[derive(Debug, Default)]
struct Batch {
    first: Bytes,
    more: BytesMut,
    has_content: bool,
}

impl Batch {
    /// Adds what one event means; an end is given back.
    fn push(&mut self, step: Step) -> Option<Fed> {
        let (bytes, has_content) = match step {
            Step::Content(bytes) => (bytes, true),
            Step::Frame(bytes) => (bytes, false),
            Step::Done(bytes) => return Some(Fed::Whole(bytes)),
            Step::Failed(fault) => return Some(Fed::Failed(fault)),
            Step::Broken => return Some(Fed::Broken(Break::Malformed)),
        };
        self.has_content |= has_content;
        if self.first.is_empty() && self.more.is_empty() {
            self.first = bytes;
        } else {
            if self.more.is_empty() {
                self.more.extend_from_slice(&std::mem::take(&mut self.first));
            }
            self.more.extend_from_slice(&bytes);
        }
        None
    }

    fn take(self) -> Option<Fed> {
        // A single event, which is the rule, is not copied.
        let bytes = if self.more.is_empty() { self.first } else { self.more.freeze() };
        (self.has_content || !bytes.is_empty()).then_some(Fed::Bytes { bytes, has_content: self.has_content })
    }
}
