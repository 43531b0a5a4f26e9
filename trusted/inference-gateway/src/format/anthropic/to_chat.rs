//! An answer of Anthropic's format as a chat answer.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::finish_reason;
use super::follow::{Block, Delta, Follow, Message, Moment, Wire};
use crate::accounting::Tokens;
use crate::body::{Few, Raw, object, raw_text};
use crate::config::Pricing;
use crate::format::frame::{DONE, broken_chat, data_event};
use crate::format::metering::Meter;
use crate::format::object::{Object, inside, list};
use crate::format::{Ending, NotAnAnswer, Shaped, Step, Translate, Whole, answer, fault};
use crate::stream::Event;

/// Most blocks of an answer.
const MAX_BLOCKS: usize = 4096;

/// Turns answers as they come.
#[derive(Debug)]
pub(in crate::format) struct ToChat {
    id: String,
    model: String,
    created: u64,
    wants_usage: bool,
    hides_reasoning: bool,
    follow: Follow,
    meter: Meter,
    /// The tool call that is under way.
    call: Option<Call>,
    calls: usize,
    /// Index of the block of thoughts that is under way, and which of them it is.
    thought: Option<(u32, usize)>,
    thoughts: usize,
}

/// A tool call that is under way.
#[derive(Debug)]
struct Call {
    /// Index of its block.
    block: u32,
    /// Which call it is.
    number: usize,
    /// Its arguments, JSON, as they stand where no more is said of them; `None` once more was said.
    input: Option<String>,
}

impl ToChat {
    pub(in crate::format) fn new(shaped: &Shaped, answer_id: &str, pricing: &Pricing) -> Self {
        Self {
            id: answer_id.to_owned(),
            model: shaped.model.clone(),
            created: shaped.created,
            wants_usage: shaped.wants_usage,
            hides_reasoning: shaped.hides_reasoning,
            follow: Follow::default(),
            meter: Meter::new(shaped.prompt_estimate, pricing),
            call: None,
            calls: 0,
            thought: None,
            thoughts: 0,
        }
    }

    fn document(&self, kind: &str) -> Object {
        Object::new()
            .text("id", &self.id)
            .text("object", kind)
            .json("created", &self.created.to_string())
            .text("model", &self.model)
    }

    fn chunk(&self, delta: &str, finish: Option<&str>) -> Bytes {
        let finish = finish.map(raw_text);
        let choice = Object::new()
            .json("index", "0")
            .json("delta", delta)
            .json("finish_reason", finish.as_deref().map_or("null", RawValue::get));
        data_event(self.document("chat.completion.chunk").json("choices", &list(&[choice.done()])).bytes())
    }

    /// Usage in the words of the chat surface, with its price.
    fn usage_member(&self) -> Option<String> {
        self.meter.usage()?;
        let tokens = self.meter.tokens();
        let details = Object::new().json("cached_tokens", &tokens.cache_read.to_string()).done();
        let usage = Object::new()
            .json("prompt_tokens", &tokens.prompt.to_string())
            .json("completion_tokens", &tokens.completion.to_string())
            .json("total_tokens", &tokens.total().to_string())
            .json("prompt_tokens_details", &details)
            .json("cache_creation_input_tokens", &tokens.cache_creation.to_string())
            .json("cost", &self.meter.cost(tokens));
        Some(usage.done())
    }

    fn follow(&mut self, data: &[u8]) -> Option<Step> {
        let wire: Wire<'_> = object(std::str::from_utf8(data).ok()?)?;
        Some(match self.follow.judge(&wire)? {
            Moment::Failed(error) => Step::Failed(fault::of_member(error)),
            Moment::Start(_) => {
                self.follow.tell(&mut self.meter);
                Step::Frame(self.chunk(r#"{"role":"assistant","content":""}"#, None))
            }
            Moment::BlockStart(index, block) => self.block(index, &block),
            Moment::BlockDelta(index, delta) => self.delta(index, &delta)?,
            Moment::BlockStop(index) => self.block_stop(index),
            Moment::Other => Step::Frame(Bytes::new()),
            Moment::MessageDelta(delta) => {
                self.follow.tell(&mut self.meter);
                let reason: Option<String> = delta.stop_reason.read();
                Step::Frame(
                    reason.map_or_else(Bytes::new, |reason| self.chunk("{}", Some(finish_reason(&reason)))),
                )
            }
            Moment::Stop => Step::Done(self.tail()),
        })
    }

    /// Usage, if it is wanted, and the terminator.
    fn tail(&mut self) -> Bytes {
        self.meter.is_whole = true;
        let usage = self.usage_member().filter(|_| self.wants_usage);
        let usage = usage.map(|usage| {
            let chunk = self.document("chat.completion.chunk").json("choices", "[]").json("usage", &usage);
            data_event(chunk.bytes())
        });
        [usage.unwrap_or_default().as_ref(), DONE].concat().into()
    }

    fn block(&mut self, index: u32, block: &Block<'_>) -> Step {
        match block.kind.text() {
            Some("\"tool_use\"") => {
                let function = Object::new().maybe("name", block.name.text()).text("arguments", "").done();
                let call = Object::new().json("index", &self.calls.to_string()).maybe("id", block.id.text());
                let call = call.text("type", "function").json("function", &function).done();
                let input = Some(block.input.text().unwrap_or("{}").to_owned());
                self.call = Some(Call { block: index, number: self.calls, input });
                self.calls += 1;
                Step::Content(self.chunk(&Object::new().json("tool_calls", &list(&[call])).done(), None))
            }
            Some("\"text\"") if block.text.says_something() => {
                let text = block.text.text().unwrap_or("\"\"");
                self.meter.characters.add_json(text);
                Step::Content(self.chunk(&Object::new().json("content", text).done(), None))
            }
            Some("\"thinking\"" | "\"redacted_thinking\"") => {
                self.thought = Some((index, self.thoughts));
                self.thoughts += 1;
                match block.data.text() {
                    Some(data) => self.thinking(index, "redacted_thinking", "data", data, Object::new()),
                    None => Step::Frame(Bytes::new()),
                }
            }
            _ => Step::Frame(Bytes::new()),
        }
    }

    /// A call of which nothing more was said has the arguments that it began with: none, mostly.
    fn block_stop(&mut self, index: u32) -> Step {
        let ended = self.call.take_if(|call| call.block == index);
        match ended.and_then(|call| Some((call.number, call.input?))) {
            Some((number, input)) => Step::Content(self.arguments(number, raw_text(&input).get())),
            None => Step::Frame(Bytes::new()),
        }
    }

    /// More of a call's arguments: `json` is a text.
    fn arguments(&self, number: usize, json: &str) -> Bytes {
        let function = Object::new().json("arguments", json).done();
        let call = Object::new().json("index", &number.to_string()).json("function", &function).done();
        self.chunk(&Object::new().json("tool_calls", &list(&[call])).done(), None)
    }

    /// More of a block of thoughts, in the delta that tells it otherwise. Who sends the blocks back as they came, with
    /// their signatures, may go on with tools.
    fn thinking(&self, index: u32, kind: &str, member: &str, json: &str, delta: Object) -> Step {
        let Some((_, number)) = self.thought.filter(|(open, _)| *open == index && !self.hides_reasoning)
        else {
            return Step::Content(Bytes::new());
        };
        let block = Object::new().json("index", &number.to_string()).text("type", kind).json(member, json);
        Step::Content(self.chunk(&delta.json("thinking_blocks", &list(&[block.done()])).done(), None))
    }

    fn delta(&mut self, index: u32, delta: &Delta<'_>) -> Option<Step> {
        delta.added().into_iter().filter_map(Raw::text).for_each(|text| self.meter.characters.add_json(text));
        let kind: String = delta.kind.read()?;
        Some(match kind.as_str() {
            "text_delta" => {
                let delta = Object::new().json("content", delta.text.text()?);
                Step::Content(self.chunk(&delta.done(), None))
            }
            "thinking_delta" => {
                let text = delta.thinking.text()?;
                let delta = Object::new().json("reasoning_content", text);
                self.thinking(index, "thinking", "thinking", text, delta)
            }
            "signature_delta" => {
                self.thinking(index, "thinking", "signature", delta.signature.text()?, Object::new())
            }
            "input_json_delta" => {
                let json = delta.partial_json.text()?;
                // Blocks of the upstream's own tools are no calls of the client's.
                match self.call.as_mut().filter(|call| call.block == index) {
                    Some(call) if delta.partial_json.says_something() => {
                        call.input = None;
                        let number = call.number;
                        Step::Content(self.arguments(number, json))
                    }
                    Some(_) | None => Step::Frame(Bytes::new()),
                }
            }
            _ => Step::Frame(Bytes::new()),
        })
    }

    /// The message of a whole answer.
    fn message(&self, blocks: &[Block<'_>]) -> String {
        let of = |kind: &'static str| blocks.iter().filter(move |block| block.kind.text() == Some(kind));
        let joined =
            |texts: Vec<&str>| format!("\"{}\"", texts.into_iter().filter_map(inside).collect::<String>());
        let texts: Vec<&str> = of("\"text\"").filter_map(|block| block.text.text()).collect();
        let content = if texts.is_empty() { "null".to_owned() } else { joined(texts) };
        let calls: Vec<String> = of("\"tool_use\"")
            .map(|block| {
                let arguments = raw_text(block.input.text().unwrap_or("{}"));
                let function =
                    Object::new().maybe("name", block.name.text()).json("arguments", arguments.get());
                let call = Object::new().maybe("id", block.id.text()).text("type", "function");
                call.json("function", &function.done()).done()
            })
            .collect();
        let mut message = Object::new().text("role", "assistant").json("content", &content);
        if !calls.is_empty() {
            message = message.json("tool_calls", &list(&calls));
        }
        if !self.hides_reasoning {
            let thoughts: Vec<&str> = of("\"thinking\"").filter_map(|block| block.thinking.text()).collect();
            if !thoughts.is_empty() {
                message = message.json("reasoning_content", &joined(thoughts));
            }
            let is_thought = |block: &&Block<'_>| {
                matches!(block.kind.text(), Some("\"thinking\"" | "\"redacted_thinking\""))
            };
            // In their order: the signatures are over it.
            let proved: Vec<String> = blocks.iter().filter(is_thought).map(json).collect();
            if !proved.is_empty() {
                message = message.json("thinking_blocks", &list(&proved));
            }
        }
        message.done()
    }
}

fn json(block: &Block<'_>) -> String {
    String::from_utf8(crate::body::to_json(block)).unwrap_or_default()
}

impl Translate for ToChat {
    fn whole(&mut self, body: &[u8]) -> Result<Whole, NotAnAnswer> {
        let message: Message<'_> = answer(body)?;
        let blocks: Few<Block<'_>, MAX_BLOCKS> = message.content.read().ok_or(NotAnAnswer)?;
        let reason: String = message.stop_reason.read().ok_or(NotAnAnswer)?;
        if message.kind.text() != Some("\"message\"") {
            return Err(NotAnAnswer);
        }
        self.meter.characters.add_json(message.content.text().unwrap_or_default());
        self.meter.is_whole = true;
        self.follow.model = message.model.read();
        self.follow.note_last(message.usage).ok_or(NotAnAnswer)?;
        let choice = Object::new()
            .json("index", "0")
            .json("message", &self.message(&blocks.0))
            .json("logprobs", "null")
            .text("finish_reason", finish_reason(&reason))
            .done();
        self.follow.stop_reason = Some(reason);
        self.follow.tell(&mut self.meter);
        let usage = self.usage_member();
        let document = self.document("chat.completion").json("choices", &list(&[choice]));
        Ok(Whole {
            body: document.maybe("usage", usage.as_deref()).bytes().into(),
            usage: self.usage().map(ToOwned::to_owned),
            tokens: self.tokens(),
            upstream_model: self.follow.model.clone(),
        })
    }

    fn event(&mut self, event: &Event) -> Step {
        match event.data() {
            None => Step::Frame(Bytes::new()),
            Some(data) => self.follow(&data).unwrap_or(Step::Broken),
        }
    }

    fn end(&mut self) -> Ending {
        match (self.follow.is_finished(), self.follow.is_stopped()) {
            (true, true) => Ending::Whole(Bytes::new()),
            (true, false) => Ending::Whole(self.tail()),
            (false, _) => Ending::Truncated,
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

    fn finish_reasons(&self) -> Vec<String> {
        self.follow.stop_reason.iter().cloned().collect()
    }

    fn upstream_model(&self) -> Option<&str> {
        self.follow.model.as_deref()
    }
}
