//! Chat, text completions and embeddings of upstreams that speak OpenAI's format: what clients get of their answers.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::capacity::MAX_INPUTS;
use super::frame::{DONE, broken_chat, data_event};
use super::metering::Meter;
use super::{Ending, NotAnAnswer, Shaped, Step, Translate, Whole, fault};
use crate::accounting::Tokens;
use crate::body::{Few, Raw, members, raw_text, to_json};
use crate::config::Pricing;
use crate::stream::{ChatStream, Choice, Chunk, Ended, Event, Verdict};
use crate::surface::Surface;

/// Who speaks in every answer.
static ASSISTANT: LazyLock<Box<RawValue>> = LazyLock::new(|| raw_text("assistant"));

/// Chat and text completions.
#[derive(Debug)]
pub(super) struct Chat {
    surface: Surface,
    id: Box<RawValue>,
    model: Box<RawValue>,
    wants_usage: bool,
    hides_reasoning: bool,
    stream: ChatStream,
    /// Choices of which a part went out.
    begun: BTreeSet<u32>,
    meter: Meter,
}

impl Chat {
    pub(super) fn new(shaped: &Shaped, answer_id: &str, pricing: &Pricing) -> Self {
        Self {
            surface: shaped.surface,
            id: raw_text(answer_id),
            model: raw_text(&shaped.model),
            wants_usage: shaped.wants_usage,
            hides_reasoning: shaped.hides_reasoning,
            stream: ChatStream::of(shaped.choices),
            begun: BTreeSet::new(),
            meter: Meter::new(shaped.prompt_estimate, pricing),
        }
    }

    /// A chunk or answer as the client gets it. Clients rely on the first part of a choice to say who speaks; some
    /// upstreams leave that out.
    fn written<'a>(&'a self, mut chunk: Chunk<'a>, usage: Option<&'a RawValue>, first: &[u32]) -> Vec<u8> {
        chunk.id = Raw::of(&self.id);
        chunk.model = Raw::of(&self.model);
        chunk.usage = usage.map_or(Raw::ABSENT, Raw::of);
        for choice in chunk.choices.iter_mut().flat_map(|choices| &mut choices.0) {
            let is_first = first.contains(&choice.index);
            if let Some(delta) =
                choice.delta.as_mut().filter(|delta| is_first && !delta.role.says_something())
            {
                delta.role = Raw::of(&ASSISTANT);
            }
        }
        if self.hides_reasoning {
            for choice in chunk.choices.iter_mut().flat_map(|choices| &mut choices.0) {
                choice.delta = choice.delta.map(crate::stream::Message::without_reasoning);
                choice.message = choice.message.map(crate::stream::Message::without_reasoning);
            }
        }
        to_json(&chunk)
    }

    /// Choices of which this is the first part that goes out.
    fn begin(&mut self, chunk: &Chunk<'_>) -> Vec<u32> {
        if self.surface != Surface::Chat {
            return Vec::new();
        }
        let choices = chunk.choices.iter().flat_map(|choices| &choices.0);
        let parts = choices.filter(|choice| choice.delta.is_some()).map(|choice| choice.index);
        parts.filter(|index| self.begun.insert(*index)).collect()
    }

    fn count(&mut self, chunk: &Chunk<'_>) {
        let choices = chunk.choices.iter().flat_map(|choices| &choices.0);
        for text in choices.flat_map(texts).filter_map(Raw::text) {
            self.meter.characters.add_json(text);
        }
    }

    /// A chunk for the client; empty where nothing of it is left.
    fn passed_on(&mut self, chunk: Chunk<'_>) -> Bytes {
        let is_empty = chunk.choices.as_ref().is_none_or(|choices| choices.0.is_empty());
        let usage = chunk.usage.value().and_then(|usage| self.meter.told(usage));
        let usage = usage.filter(|_| self.wants_usage);
        let is_nothing = match (&usage, chunk.usage.value()) {
            (None, Some(_)) => is_empty,
            _ => self.hides_reasoning && usage.is_none() && !is_empty && is_only_reasoning(&chunk),
        };
        if is_nothing {
            return Bytes::new();
        }
        let first = self.begin(&chunk);
        data_event(self.written(chunk, usage.as_deref(), &first))
    }
}

/// What counts where the upstream tells no usage.
fn texts<'a>(choice: &Choice<'a>) -> Vec<Raw<'a>> {
    let message = choice.delta.or(choice.message).unwrap_or_default();
    let reasoning =
        if message.reasoning.says_something() { message.reasoning } else { message.reasoning_content };
    vec![choice.text, message.content, message.refusal, message.tool_calls, reasoning]
}

fn is_only_reasoning(chunk: &Chunk<'_>) -> bool {
    chunk.choices.iter().flat_map(|choices| &choices.0).all(|choice| {
        let rest = choice.delta.unwrap_or_default().without_reasoning();
        let says_something = rest.shown().into_iter().any(Raw::says_something) || rest.role.says_something();
        choice.has_content() && !says_something && !choice.finish_reason.says_something()
    })
}

impl Translate for Chat {
    fn whole(&mut self, body: &[u8]) -> Result<Whole, NotAnAnswer> {
        let chunk: Chunk<'_> = super::answer(body)?;
        let (Verdict::Content | Verdict::Frame) = self.stream.take(&chunk) else { return Err(NotAnAnswer) };
        let choices = chunk.choices.as_ref().map(|Few(choices)| choices.as_slice()).unwrap_or_default();
        let is_answer = |choice: &Choice<'_>| match self.surface {
            Surface::Completions => choice.text.text().is_some(),
            _ => choice.message.is_some(),
        };
        // As of a stream: each choice that was asked for is there, and says why it ended.
        if !choices.iter().all(is_answer) || self.stream.ended() == Ended::Truncated {
            return Err(NotAnAnswer);
        }
        self.count(&chunk);
        self.meter.is_whole = true;
        let usage = chunk.usage.value().and_then(|usage| self.meter.told(usage));
        Ok(Whole {
            body: self.written(chunk, usage.as_deref(), &[]).into(),
            usage: self.usage().map(ToOwned::to_owned),
            tokens: self.tokens(),
            upstream_model: self.upstream_model().map(ToOwned::to_owned),
        })
    }

    fn event(&mut self, event: &Event) -> Step {
        let Some(data) = event.data() else { return Step::Frame(Bytes::new()) };
        let (verdict, chunk) = self.stream.follow(&data);
        match (verdict, chunk) {
            (Verdict::Content, Some(chunk)) => {
                self.count(&chunk);
                Step::Content(self.passed_on(chunk))
            }
            (Verdict::Frame, Some(chunk)) => Step::Frame(self.passed_on(chunk)),
            (Verdict::Comment, _) => Step::Frame(Bytes::new()),
            (Verdict::Error(error), _) => Step::Failed(fault::of_member(&error)),
            // A terminator after half an answer does not make it whole.
            (Verdict::Done, _) if self.stream.ended() == Ended::Complete => {
                self.meter.is_whole = true;
                Step::Done(Bytes::from_static(DONE))
            }
            (Verdict::Done | Verdict::Broken | Verdict::Content | Verdict::Frame, _) => Step::Broken,
        }
    }

    fn end(&mut self) -> Ending {
        match self.stream.ended() {
            Ended::Complete => Ending::Whole(Bytes::new()),
            Ended::WithoutTerminator => {
                self.meter.is_whole = true;
                Ending::Whole(Bytes::from_static(DONE))
            }
            Ended::Truncated => Ending::Truncated,
        }
    }

    fn broken_tail(&mut self, message: &str) -> Bytes {
        broken_chat(message)
    }

    fn usage(&self) -> Option<&RawValue> {
        self.meter.usage()
    }

    fn tokens(&self) -> Tokens {
        self.meter.tokens()
    }

    fn lacks_choices(&self) -> bool {
        self.stream.lacks_choices()
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

members! {
    struct EmbeddingList { object, data, model, usage }
}

/// Embeddings, which never stream.
#[derive(Debug)]
pub(super) struct Embeddings {
    model: Box<RawValue>,
    upstream_model: Option<String>,
    meter: Meter,
}

impl Embeddings {
    pub(super) fn new(shaped: &Shaped, pricing: &Pricing) -> Self {
        let meter = Meter::new(shaped.prompt_estimate, pricing);
        Self { model: raw_text(&shaped.model), upstream_model: None, meter }
    }
}

impl Translate for Embeddings {
    fn whole(&mut self, body: &[u8]) -> Result<Whole, NotAnAnswer> {
        let mut list: EmbeddingList<'_> = super::answer(body)?;
        // Each entry may have to be sealed: no more of them are looked at than anybody may ask for.
        let entries: Option<Few<&RawValue, MAX_INPUTS>> = list.data.read();
        if entries.is_none_or(|Few(entries)| entries.is_empty()) {
            return Err(NotAnAnswer);
        }
        self.upstream_model = list.model.read();
        self.meter.is_whole = true;
        let usage = list.usage.value().and_then(|usage| self.meter.told(usage));
        list.model = Raw::of(&self.model);
        list.usage = usage.as_deref().map_or(Raw::ABSENT, Raw::of);
        Ok(Whole {
            body: to_json(&list).into(),
            usage: self.usage().map(ToOwned::to_owned),
            tokens: self.tokens(),
            upstream_model: self.upstream_model.clone(),
        })
    }

    fn event(&mut self, _event: &Event) -> Step {
        Step::Broken
    }

    fn end(&mut self) -> Ending {
        Ending::Truncated
    }

    fn broken_tail(&mut self, message: &str) -> Bytes {
        broken_chat(message)
    }

    fn usage(&self) -> Option<&RawValue> {
        self.meter.usage()
    }

    fn tokens(&self) -> Tokens {
        self.meter.tokens()
    }

    fn finish_reasons(&self) -> Vec<String> {
        Vec::new()
    }

    fn upstream_model(&self) -> Option<&str> {
        self.upstream_model.as_deref()
    }
}
