//! Follows a stream of Anthropic's events: whether anything of the answer has come, and whether all of it.

use std::collections::BTreeSet;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::body::{Raw, members};
use crate::format::metering::Meter;

/// Most blocks that are open at once.
const MAX_OPEN: usize = 16;
/// Longest usage, in bytes.
const MAX_USAGE_BYTES: usize = 4096;
/// Most members of all that is told of it.
const MAX_USAGE_MEMBERS: usize = 64;

members! {
    pub(super) struct Wire { kind as "type", message, index, content_block, delta, usage, error }
    pub(super) struct Message { id, kind as "type", role, model, content, stop_reason, stop_sequence, usage }
    pub(super) struct Block { kind as "type", text, thinking, signature, data, id, name, input }
    struct Counts { output_tokens }
    pub(super) struct Delta {
        kind as "type",
        text,
        thinking,
        signature,
        partial_json,
        stop_reason,
        stop_sequence,
    }
}

/// What an event is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Moment<'a> {
    /// The message begins.
    Start(Message<'a>),
    /// A block begins.
    BlockStart(u32, Block<'a>),
    /// Part of a block.
    BlockDelta(u32, Delta<'a>),
    /// A block ends.
    BlockStop(u32),
    /// Why it ended, and what was used.
    MessageDelta(Delta<'a>),
    /// The end of a whole answer.
    Stop,
    /// A sign of life, or an event that nobody knows.
    Other,
    /// The upstream says that it failed: the `error` member.
    Failed(&'a str),
}

/// What is known of the stream.
#[derive(Debug, Default)]
pub(super) struct Follow {
    is_started: bool,
    is_stopped: bool,
    open: BTreeSet<u32>,
    next_index: u32,
    pub(super) stop_reason: Option<String>,
    pub(super) model: Option<String>,
    usage: Map<String, Value>,
    /// Whether the end of the message counted what came out: its beginning knows little of that.
    has_counted: bool,
}

impl Follow {
    /// The next event; `None` for what such a stream may not hold.
    pub(super) fn judge<'a>(&mut self, wire: &Wire<'a>) -> Option<Moment<'a>> {
        let kind: String = wire.kind.read()?;
        let is_within = self.is_started && !self.is_stopped;
        match kind.as_str() {
            "error" => return Some(Moment::Failed(wire.error.text().unwrap_or("{}"))),
            "message_start" => return self.start(wire),
            "content_block_start" | "content_block_delta" | "content_block_stop" if is_within => {}
            "message_delta" if is_within => {
                self.note_last(wire.usage)?;
                let delta: Delta<'a> = wire.delta.read().unwrap_or_default();
                if let Some(reason) = delta.stop_reason.read() {
                    self.stop_reason = Some(reason);
                }
                return Some(Moment::MessageDelta(delta));
            }
            "message_stop" => {
                let is_whole = is_within && self.is_finished();
                self.is_stopped = true;
                return is_whole.then_some(Moment::Stop);
            }
            "content_block_start" | "content_block_delta" | "content_block_stop" | "message_delta" => {
                return None;
            }
            _ => return Some(Moment::Other),
        }
        let index: u32 = wire.index.read()?;
        self.block(&kind, index, wire)
    }

    fn start<'a>(&mut self, wire: &Wire<'a>) -> Option<Moment<'a>> {
        let message: Message<'a> = wire.message.text().and_then(crate::body::object)?;
        if std::mem::replace(&mut self.is_started, true) {
            return None;
        }
        self.model = message.model.read();
        self.note_usage(message.usage)?;
        Some(Moment::Start(message))
    }

    fn block<'a>(&mut self, kind: &str, index: u32, wire: &Wire<'a>) -> Option<Moment<'a>> {
        match kind {
            "content_block_start" => {
                let is_next = index == self.next_index && self.open.len() < MAX_OPEN;
                self.next_index = self.next_index.saturating_add(1);
                let block: Block<'a> = wire.content_block.text().and_then(crate::body::object)?;
                (is_next && self.open.insert(index)).then_some(Moment::BlockStart(index, block))
            }
            "content_block_delta" => {
                let delta: Delta<'a> = wire.delta.text().and_then(crate::body::object)?;
                self.open.contains(&index).then_some(Moment::BlockDelta(index, delta))
            }
            _ => self.open.remove(&index).then_some(Moment::BlockStop(index)),
        }
    }

    /// What the end of a message tells of the usage, or a whole one.
    pub(super) fn note_last(&mut self, usage: Raw<'_>) -> Option<()> {
        let counts: Option<Counts<'_>> = usage.read();
        self.has_counted |= counts.is_some_and(|counts| counts.output_tokens.value().is_some());
        self.note_usage(usage)
    }

    /// Counts come in parts: each replaces what was told of the same before.
    fn note_usage(&mut self, usage: Raw<'_>) -> Option<()> {
        let Some(told) = usage.text() else { return Some(()) };
        if told.len() > MAX_USAGE_BYTES {
            return None;
        }
        let told: Map<String, Value> = serde_json::from_str(told).ok()?;
        self.usage.extend(told.into_iter().filter(|(_, value)| !value.is_null()));
        (self.usage.len() <= MAX_USAGE_MEMBERS).then_some(())
    }

    /// Tells all that was told of the usage; gives what the client gets of it, `None` where nothing was told.
    pub(super) fn tell(&self, meter: &mut Meter) -> Option<Box<RawValue>> {
        if self.usage.is_empty() {
            return None;
        }
        let usage = serde_json::value::to_raw_value(&self.usage).ok()?;
        if self.has_counted { meter.told(&usage) } else { meter.told_early(&usage) }
    }

    /// Whether the answer is whole, be it without its terminator.
    pub(super) fn is_finished(&self) -> bool {
        self.stop_reason.is_some() && self.open.is_empty()
    }

    /// Whether the terminator came.
    pub(super) const fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}

impl<'a> Delta<'a> {
    /// What it adds to a block.
    pub(super) fn added(&self) -> [Raw<'a>; 3] {
        [self.text, self.thinking, self.partial_json]
    }
}
