//! The Messages surface at upstreams that have it.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::follow::{Follow, Message, Moment, Wire};
use crate::accounting::Tokens;
use crate::body::{Raw, object, raw_text, to_json};
use crate::config::Pricing;
use crate::format::frame::{broken_messages, named_event};
use crate::format::metering::Meter;
use crate::format::object::Object;
use crate::format::{Ending, NotAnAnswer, Shaped, Step, Translate, Whole, answer, fault};
use crate::stream::Event;

/// Ids and models are the gateway's, the rest passes.
#[derive(Debug)]
pub(in crate::format) struct Native {
    answer_id: String,
    id: Box<RawValue>,
    model: Box<RawValue>,
    follow: Follow,
    meter: Meter,
}

impl Native {
    pub(in crate::format) fn new(shaped: &Shaped, answer_id: &str, pricing: &Pricing) -> Self {
        Self {
            answer_id: answer_id.to_owned(),
            id: raw_text(answer_id),
            model: raw_text(&shaped.model),
            follow: Follow::default(),
            meter: Meter::new(shaped.prompt_estimate, pricing),
        }
    }

    fn own<'a>(&'a self, message: Message<'a>) -> Message<'a> {
        Message { id: Raw::of(&self.id), model: Raw::of(&self.model), ..message }
    }

    fn follow(&mut self, data: &[u8]) -> Option<Step> {
        let wire: Wire<'_> = object(std::str::from_utf8(data).ok()?)?;
        let moment = self.follow.judge(&wire)?;
        let kind: String = wire.kind.read()?;
        Some(match moment {
            Moment::Failed(error) => Step::Failed(fault::of_member(error)),
            Moment::Start(message) => {
                self.follow.tell(&mut self.meter);
                let usage = message.usage.value().and_then(Meter::shown);
                let message = Message { usage: usage.as_deref().map_or(Raw::ABSENT, Raw::of), ..message };
                let message = to_json(&self.own(message));
                let event = Object::of_type(&kind).json("message", &String::from_utf8(message).ok()?);
                Step::Frame(named_event(&kind, event.bytes()))
            }
            Moment::MessageDelta(_) => {
                let usage = self.follow.tell(&mut self.meter);
                let event = Object::of_type(&kind).json("delta", wire.delta.text().unwrap_or("{}"));
                let event = event.maybe("usage", usage.as_deref().map(RawValue::get));
                Step::Frame(named_event(&kind, event.bytes()))
            }
            Moment::BlockDelta(_, delta) => {
                delta
                    .added()
                    .into_iter()
                    .filter_map(Raw::text)
                    .for_each(|text| self.meter.characters.add_json(text));
                Step::Content(named_event(&kind, to_json(&wire)))
            }
            Moment::BlockStart(_, block) if block.name.says_something() => {
                Step::Content(named_event(&kind, to_json(&wire)))
            }
            Moment::BlockStart(..) | Moment::BlockStop(_) => Step::Frame(named_event(&kind, to_json(&wire))),
            Moment::Stop => {
                self.meter.is_whole = true;
                Step::Done(stop())
            }
            Moment::Other => Step::Frame(Bytes::new()),
        })
    }
}

/// The end of a message.
pub(super) fn stop() -> Bytes {
    named_event("message_stop", Object::of_type("message_stop").bytes())
}

impl Translate for Native {
    fn whole(&mut self, body: &[u8]) -> Result<Whole, NotAnAnswer> {
        let mut message: Message<'_> = answer(body)?;
        let is_message = message.kind.text() == Some("\"message\"");
        let content = message.content.text().filter(|content| content.starts_with('[')).ok_or(NotAnAnswer)?;
        if !is_message || !message.stop_reason.says_something() {
            return Err(NotAnAnswer);
        }
        self.meter.characters.add_json(content);
        self.meter.is_whole = true;
        self.follow.model = message.model.read();
        self.follow.stop_reason = message.stop_reason.read();
        let usage = message.usage.value().and_then(|usage| self.meter.told(usage));
        message.usage = usage.as_deref().map_or(Raw::ABSENT, Raw::of);
        Ok(Whole {
            body: to_json(&self.own(message)).into(),
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
            (true, false) => {
                self.meter.is_whole = true;
                Ending::Whole(stop())
            }
            (false, _) => Ending::Truncated,
        }
    }

    fn broken_tail(&mut self, message: &str) -> Bytes {
        broken_messages(message, &self.answer_id)
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
