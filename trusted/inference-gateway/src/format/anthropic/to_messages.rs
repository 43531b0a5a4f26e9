//! A chat answer as an answer of the Messages surface.

use bytes::{Bytes, BytesMut};
use serde_json::value::RawValue;

use super::native::stop;
use super::stop_reason;
use crate::accounting::Tokens;
use crate::body::{Few, Raw, members, object};
use crate::config::Pricing;
use crate::format::frame::{broken_messages, named_event};
use crate::format::metering::Meter;
use crate::format::object::{Object, list, object_in};
use crate::format::{Ending, NotAnAnswer, Shaped, Step, Translate, Whole, answer, fault};
use crate::stream::{ChatStream, Choice, Chunk, Ended, Event, Message, Verdict};

/// Most tool calls of an answer.
const MAX_CALLS: usize = 1024;

members! {
    struct Call { index, id, function }
    struct Function { name, arguments }
}

/// Which block is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    Text,
    Thinking,
    /// A call, by the upstream's index.
    Call(u64),
}

/// Turns answers as they come.
#[derive(Debug)]
pub(in crate::format) struct ToMessages {
    id: String,
    model: String,
    hides_reasoning: bool,
    stream: ChatStream,
    meter: Meter,
    is_started: bool,
    open: Open,
    /// Blocks that began.
    blocks: u64,
    /// Calls that began: all below this index.
    calls: u64,
    finish_reason: Option<String>,
    stop_sequence: Option<String>,
}

impl ToMessages {
    pub(in crate::format) fn new(shaped: &Shaped, answer_id: &str, pricing: &Pricing) -> Self {
        Self {
            id: answer_id.to_owned(),
            model: shaped.model.clone(),
            hides_reasoning: shaped.hides_reasoning,
            stream: ChatStream::default(),
            meter: Meter::new(shaped.prompt_estimate, pricing),
            is_started: false,
            open: Open::Nothing,
            blocks: 0,
            calls: 0,
            finish_reason: None,
            stop_sequence: None,
        }
    }

    /// Usage in Anthropic's words, with its price.
    fn usage_member(&self) -> String {
        let tokens = self.meter.tokens();
        let fresh = tokens.prompt.saturating_sub(tokens.cache_read.saturating_add(tokens.cache_creation));
        Object::new()
            .json("input_tokens", &fresh.to_string())
            .json("cache_creation_input_tokens", &tokens.cache_creation.to_string())
            .json("cache_read_input_tokens", &tokens.cache_read.to_string())
            .json("output_tokens", &tokens.completion.to_string())
            .json("cost", &self.meter.cost(tokens))
            .done()
    }

    fn note(&mut self, choice: &Choice<'_>) {
        if let Some(reason) = choice.finish_reason.read::<String>().filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason);
            self.stop_sequence = choice.stop_reason.read();
        }
    }

    /// Members of the end: why the model stopped.
    fn end_members(&self, object: Object) -> Object {
        if let Some(sequence) = &self.stop_sequence {
            object.text("stop_reason", "stop_sequence").text("stop_sequence", sequence)
        } else {
            // What says no reason was not whole: nothing is made up here.
            let reason = stop_reason(self.finish_reason.as_deref().unwrap_or_default());
            object.text("stop_reason", reason).json("stop_sequence", "null")
        }
    }

    /// The blocks of a whole message.
    fn content(&self, message: &Message<'_>) -> Result<String, NotAnAnswer> {
        let mut blocks = Vec::new();
        if let Some(thought) = thought(message).filter(|_| !self.hides_reasoning) {
            blocks.push(Object::of_type("thinking").json("thinking", thought).text("signature", "").done());
        }
        if let Some(text) = text(message) {
            blocks.push(Object::of_type("text").json("text", text).done());
        }
        for call in calls(message)?.0 {
            let function: Function<'_> = call.function.text().and_then(object).ok_or(NotAnAnswer)?;
            let arguments: String = function.arguments.read().unwrap_or_default();
            // What is no object cannot be told as one.
            let (Some(input), Some(id), Some(name)) =
                (object_in(&arguments), call.id.text(), function.name.text())
            else {
                return Err(NotAnAnswer);
            };
            blocks.push(
                Object::of_type("tool_use").json("id", id).json("name", name).json("input", input).done(),
            );
        }
        Ok(list(&blocks))
    }

    fn chunk(&mut self, chunk: &Chunk<'_>) -> Option<Bytes> {
        if let Some(usage) = chunk.usage.value() {
            self.meter.told(usage);
        }
        let mut events = BytesMut::new();
        for choice in chunk.choices.iter().flat_map(|choices| &choices.0).filter(|choice| choice.index == 0) {
            self.start(&mut events);
            let delta = choice.delta.unwrap_or_default();
            if let Some(thought) = thought(&delta) {
                self.meter.characters.add_json(thought);
                if !self.hides_reasoning {
                    self.open(
                        Open::Thinking,
                        r#"{"type":"thinking","thinking":"","signature":""}"#,
                        &mut events,
                    );
                    self.delta(&Object::of_type("thinking_delta").json("thinking", thought), &mut events);
                }
            }
            if let Some(text) = text(&delta) {
                self.meter.characters.add_json(text);
                self.open(Open::Text, r#"{"type":"text","text":""}"#, &mut events);
                self.delta(&Object::of_type("text_delta").json("text", text), &mut events);
            }
            for (place, call) in calls(&delta).ok()?.0.iter().enumerate() {
                self.call(call, u64::try_from(place).ok()?, &mut events)?;
            }
            self.note(choice);
        }
        Some(events.freeze())
    }

    fn start(&mut self, events: &mut BytesMut) {
        if std::mem::replace(&mut self.is_started, true) {
            return;
        }
        let message =
            self.document().json("content", "[]").json("stop_reason", "null").json("stop_sequence", "null");
        // What goes in is told at the end: nobody knows it yet.
        let message = message.json("usage", r#"{"input_tokens":0,"output_tokens":0}"#);
        push("message_start", Object::of_type("message_start").json("message", &message.done()), events);
    }

    fn document(&self) -> Object {
        Object::new()
            .text("id", &self.id)
            .text("type", "message")
            .text("role", "assistant")
            .text("model", &self.model)
    }

    /// Sees to it that a block of a kind is open, and no other.
    fn open(&mut self, wanted: Open, block: &str, events: &mut BytesMut) {
        if self.open == wanted {
            return;
        }
        self.close(events);
        let index = self.blocks.to_string();
        let start = Object::of_type("content_block_start").json("index", &index).json("content_block", block);
        push("content_block_start", start, events);
        self.blocks += 1;
        self.open = wanted;
    }

    fn close(&mut self, events: &mut BytesMut) {
        if std::mem::replace(&mut self.open, Open::Nothing) != Open::Nothing {
            let index = self.blocks.saturating_sub(1).to_string();
            push("content_block_stop", Object::of_type("content_block_stop").json("index", &index), events);
        }
    }

    fn delta(&self, delta: &Object, events: &mut BytesMut) {
        let index = self.blocks.saturating_sub(1).to_string();
        let event =
            Object::of_type("content_block_delta").json("index", &index).json("delta", &delta.clone().done());
        push("content_block_delta", event, events);
    }

    /// A fragment of a call. Calls come one after the other: what belongs to one that is over cannot be told.
    fn call(&mut self, call: &Call<'_>, place: u64, events: &mut BytesMut) -> Option<()> {
        let index = call.index.read::<u64>().unwrap_or(place);
        let function: Function<'_> = call.function.text().and_then(object).unwrap_or_default();
        if self.open != Open::Call(index) {
            if index < self.calls {
                return None;
            }
            let block =
                Object::of_type("tool_use").json("id", call.id.text()?).json("name", function.name.text()?);
            self.open(Open::Call(index), &block.json("input", "{}").done(), events);
            self.calls = index.saturating_add(1);
        }
        if let Some(arguments) = function.arguments.text().filter(|_| function.arguments.says_something()) {
            self.meter.characters.add_json(arguments);
            self.delta(&Object::of_type("input_json_delta").json("partial_json", arguments), events);
        }
        Some(())
    }

    fn tail(&mut self) -> Bytes {
        self.meter.is_whole = true;
        let mut events = BytesMut::new();
        self.start(&mut events);
        self.close(&mut events);
        let delta = self.end_members(Object::new()).done();
        let event =
            Object::of_type("message_delta").json("delta", &delta).json("usage", &self.usage_member());
        push("message_delta", event, &mut events);
        events.extend_from_slice(&stop());
        events.freeze()
    }
}

fn push(name: &str, event: Object, events: &mut BytesMut) {
    events.extend_from_slice(&named_event(name, event.bytes()));
}

fn thought<'a>(message: &Message<'a>) -> Option<&'a str> {
    let texts = [message.reasoning_content, message.reasoning];
    texts
        .into_iter()
        .filter(|text| text.says_something())
        .find_map(|text| text.text().filter(|text| text.starts_with('"')))
}

/// What it says, or that it does not want to.
fn text<'a>(message: &Message<'a>) -> Option<&'a str> {
    let texts = [message.content, message.refusal];
    texts
        .into_iter()
        .filter(|text| text.says_something())
        .find_map(|text| text.text().filter(|text| text.starts_with('"')))
}

fn calls<'a>(message: &Message<'a>) -> Result<Few<Call<'a>, MAX_CALLS>, NotAnAnswer> {
    match message.tool_calls.text() {
        None => Ok(Few::default()),
        Some(_) => message.tool_calls.read().ok_or(NotAnAnswer),
    }
}

impl Translate for ToMessages {
    fn whole(&mut self, body: &[u8]) -> Result<Whole, NotAnAnswer> {
        let chunk: Chunk<'_> = answer(body)?;
        let (Verdict::Content | Verdict::Frame) = self.stream.take(&chunk) else { return Err(NotAnAnswer) };
        // As of a stream: it says why it ended.
        if self.stream.ended() == Ended::Truncated {
            return Err(NotAnAnswer);
        }
        let choice = chunk.choices.as_ref().and_then(|choices| choices.0.first()).ok_or(NotAnAnswer)?;
        let message = choice.message.ok_or(NotAnAnswer)?;
        for text in message.shown().into_iter().filter_map(Raw::text) {
            self.meter.characters.add_json(text);
        }
        if let Some(usage) = chunk.usage.value() {
            self.meter.told(usage);
        }
        self.note(choice);
        self.meter.is_whole = true;
        let document = self.document().json("content", &self.content(&message)?);
        let document = self.end_members(document).json("usage", &self.usage_member());
        Ok(Whole {
            body: document.bytes().into(),
            usage: self.usage().map(ToOwned::to_owned),
            tokens: self.tokens(),
            upstream_model: self.upstream_model().map(ToOwned::to_owned),
        })
    }

    fn event(&mut self, event: &Event) -> Step {
        let Some(data) = event.data() else { return Step::Frame(Bytes::new()) };
        let (verdict, chunk) = self.stream.follow(&data);
        match (verdict, chunk) {
            (Verdict::Content, Some(chunk)) => self.chunk(&chunk).map_or(Step::Broken, Step::Content),
            (Verdict::Frame, Some(chunk)) => self.chunk(&chunk).map_or(Step::Broken, Step::Frame),
            (Verdict::Comment, _) => Step::Frame(Bytes::new()),
            (Verdict::Error(error), _) => Step::Failed(fault::of_member(&error)),
            (Verdict::Done, _) if self.stream.ended() == Ended::Complete => Step::Done(self.tail()),
            (Verdict::Done | Verdict::Broken | Verdict::Content | Verdict::Frame, _) => Step::Broken,
        }
    }

    fn end(&mut self) -> Ending {
        match self.stream.ended() {
            Ended::Complete => Ending::Whole(Bytes::new()),
            Ended::WithoutTerminator => Ending::Whole(self.tail()),
            Ended::Truncated => Ending::Truncated,
        }
    }

    fn broken_tail(&mut self, message: &str) -> Bytes {
        broken_messages(message, &self.id)
    }

    fn usage(&self) -> Option<&RawValue> {
        self.meter.usage()
    }

    fn tokens(&self) -> Tokens {
        self.meter.tokens()
    }

    fn has_finished(&self) -> bool {
        self.stream.ended() != Ended::Truncated
    }

    fn finish_reasons(&self) -> Vec<String> {
        self.stream.finish_reasons().map(ToOwned::to_owned).collect()
    }

    fn upstream_model(&self) -> Option<&str> {
        self.stream.model()
    }
}
