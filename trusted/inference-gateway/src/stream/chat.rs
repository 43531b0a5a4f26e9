//! What the events of a chat or text completion say: whether anything of the answer has come, and whether all of it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Event;
use crate::body::{Few, Raw, members, object};

/// The terminator's data.
const DONE: &[u8] = b"[DONE]";
/// Most choices of one answer.
pub const MAX_CHOICES: usize = 128;
/// Longest usage, in bytes: it is kept.
const MAX_USAGE_BYTES: usize = 4096;
/// Longest reason of an end that is kept, in bytes.
const MAX_REASON_BYTES: usize = 64;

/// What one event is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A comment, or nothing.
    Comment,
    /// Part of the answer that a client may show.
    Content,
    /// Part of the answer without content: a role, a finish reason, usage.
    Frame,
    /// The terminator.
    Done,
    /// The upstream says in the stream that it failed: the `error` member, JSON.
    Error(String),
    /// Not what such a stream may hold.
    Broken,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With its terminator.
    Complete,
    /// Every choice that was asked for has its finish reason, and the terminator is missing: it may be supplied.
    WithoutTerminator,
    /// Before the answer was whole.
    Truncated,
}

/// Follows one stream.
#[derive(Debug)]
pub struct ChatStream {
    /// How many choices there have to be.
    asked: usize,
    /// Why each ended, by its index; `None` before that.
    choices: Vec<Option<String>>,
    has_content: bool,
    is_done: bool,
    usage: Option<Box<RawValue>>,
    id: Option<String>,
    model: Option<String>,
}

impl Default for ChatStream {
    fn default() -> Self {
        Self::of(1)
    }
}

/// A chunk of a chat or text completion, or such an answer as a whole: the members that clients get.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Chunk<'a> {
    /// Says that the upstream failed; never passed on.
    #[serde(borrow, skip_serializing)]
    pub error: Raw<'a>,
    /// Id of the answer.
    #[serde(borrow, skip_serializing_if = "Raw::is_absent")]
    pub id: Raw<'a>,
    /// Kind of document.
    #[serde(borrow, skip_serializing_if = "Raw::is_absent")]
    pub object: Raw<'a>,
    /// Seconds since the Unix epoch.
    #[serde(borrow, skip_serializing_if = "Raw::is_absent")]
    pub created: Raw<'a>,
    /// The model that answers.
    #[serde(borrow, skip_serializing_if = "Raw::is_absent")]
    pub model: Raw<'a>,
    /// The answers.
    #[serde(borrow)]
    pub choices: Option<Few<Choice<'a>, MAX_CHOICES>>,
    /// What was used.
    #[serde(borrow, skip_serializing_if = "Raw::is_absent")]
    pub usage: Raw<'a>,
    /// How quickly it was processed.
    #[serde(borrow, skip_serializing_if = "Raw::is_absent")]
    pub service_tier: Raw<'a>,
}

/// One of the answers.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Choice<'a> {
    /// Which.
    pub index: u32,
    /// Of text completions.
    #[serde(borrow, skip_serializing_if = "Raw::is_absent")]
    pub text: Raw<'a>,
    /// Part of a message.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub delta: Option<Message<'a>>,
    /// A whole message.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message<'a>>,
    /// Probabilities.
    #[serde(borrow, skip_serializing_if = "Raw::is_absent")]
    pub logprobs: Raw<'a>,
    /// Why it ended.
    #[serde(borrow, skip_serializing_if = "Raw::is_absent")]
    pub finish_reason: Raw<'a>,
    /// The sequence that stopped it, as some engines tell; never passed on.
    #[serde(borrow, skip_serializing)]
    pub stop_reason: Raw<'a>,
}

members! {
    /// A message, or part of one.
    pub struct Message {
        role,
        content,
        refusal,
        tool_calls,
        function_call,
        annotations,
        audio,
        images,
        reasoning,
        reasoning_content,
        reasoning_details,
        thinking_blocks,
        reasoning_items,
    }
}

impl<'a> Message<'a> {
    /// Members that a client may show.
    #[must_use]
    pub fn shown(&self) -> [Raw<'a>; 10] {
        [
            self.content,
            self.refusal,
            self.tool_calls,
            self.function_call,
            self.annotations,
            self.audio,
            self.images,
            self.reasoning,
            self.reasoning_content,
            self.reasoning_details,
        ]
    }

    /// The same without what the model thought.
    #[must_use]
    pub const fn without_reasoning(self) -> Self {
        let none = Raw::ABSENT;
        Self {
            reasoning: none,
            reasoning_content: none,
            reasoning_details: none,
            thinking_blocks: none,
            reasoning_items: none,
            ..self
        }
    }
}

impl Choice<'_> {
    /// Whether it holds anything that a client may show.
    #[must_use]
    pub fn has_content(&self) -> bool {
        let message = self.delta.as_ref().or(self.message.as_ref());
        self.text.says_something()
            || message.is_some_and(|message| message.shown().into_iter().any(Raw::says_something))
    }
}

impl ChatStream {
    /// The stream of an answer that has to have so many choices, at least one.
    #[must_use]
    pub const fn of(choices: usize) -> Self {
        let asked = if choices == 0 { 1 } else { choices };
        Self {
            asked,
            choices: Vec::new(),
            has_content: false,
            is_done: false,
            usage: None,
            id: None,
            model: None,
        }
    }

    /// What an event is.
    pub fn judge(&mut self, event: &Event) -> Verdict {
        event.data().map_or(Verdict::Comment, |data| self.follow(&data).0)
    }

    /// What the data of an event is, and the chunk, where it is one.
    pub fn follow<'a>(&mut self, data: &'a [u8]) -> (Verdict, Option<Chunk<'a>>) {
        if self.is_done {
            return (Verdict::Broken, None);
        }
        if data.trim_ascii() == DONE {
            self.is_done = true;
            return (Verdict::Done, None);
        }
        let chunk = std::str::from_utf8(data).ok().and_then(object::<Chunk<'a>>);
        chunk.map_or((Verdict::Broken, None), |chunk| (self.take(&chunk), Some(chunk)))
    }

    /// What a chunk is, or a whole answer.
    pub fn take(&mut self, chunk: &Chunk<'_>) -> Verdict {
        if let Some(error) = chunk.error.text() {
            return Verdict::Error(error.to_owned());
        }
        let Some(Few(choices)) = &chunk.choices else { return Verdict::Broken };
        let is_usable = |choice: &Choice<'_>| index(choice) < MAX_CHOICES;
        let usage = chunk.usage.value();
        if !choices.iter().all(is_usable) || usage.is_some_and(|usage| usage.get().len() > MAX_USAGE_BYTES) {
            return Verdict::Broken;
        }
        if let Some(usage) = usage {
            self.usage = Some(usage.to_owned());
        }
        if self.id.is_none() {
            self.id = chunk.id.read();
        }
        if self.model.is_none() {
            self.model = chunk.model.read();
        }
        let mut has_content = false;
        for choice in choices {
            self.note(choice);
            has_content |= choice.has_content();
        }
        self.has_content |= has_content;
        if has_content { Verdict::Content } else { Verdict::Frame }
    }

    fn note(&mut self, choice: &Choice<'_>) {
        let index = index(choice);
        if self.choices.len() <= index {
            self.choices.resize(index + 1, None);
        }
        // Some engines send an empty one with every chunk.
        let told: Option<String> = choice.finish_reason.read().filter(|told: &String| !told.is_empty());
        if let (Some(reason), Some(told)) = (self.choices.get_mut(index), told) {
            *reason = Some(if told.len() <= MAX_REASON_BYTES { told } else { String::new() });
        }
    }

    /// Why the choices ended, in their order.
    pub fn finish_reasons(&self) -> impl Iterator<Item = &str> {
        self.choices.iter().filter_map(Option::as_deref)
    }

    /// How the stream stands, if nothing more comes.
    #[must_use]
    pub fn ended(&self) -> Ended {
        let is_finished = self.choices.len() >= self.asked && self.choices.iter().all(Option::is_some);
        match (is_finished, self.is_done) {
            (true, true) => Ended::Complete,
            (true, false) => Ended::WithoutTerminator,
            // A terminator after half an answer does not make it whole.
            (false, _) => Ended::Truncated,
        }
    }

    /// Whether there are fewer choices than were asked for, and each of those that are there has ended.
    #[must_use]
    pub fn lacks_choices(&self) -> bool {
        (1..self.asked).contains(&self.choices.len()) && self.choices.iter().all(Option::is_some)
    }

    /// Whether anything came that a client may show.
    #[must_use]
    pub const fn has_content(&self) -> bool {
        self.has_content
    }

    /// The usage that was told last, JSON.
    #[must_use]
    pub fn usage(&self) -> Option<&RawValue> {
        self.usage.as_deref()
    }

    /// The id of the answer, as the upstream gave it.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The model, as the upstream names it.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

fn index(choice: &Choice<'_>) -> usize {
    usize::try_from(choice.index).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
