//! The Responses surface at upstreams that have it: ids and models are the gateway's, the rest passes.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::frame::{broken_responses, named_event};
use super::metering::Meter;
use super::{Ending, NotAnAnswer, Shaped, Step, Translate, UpstreamFault, Whole, fault};
use crate::accounting::Tokens;
use crate::body::{Body, Change, Raw, members, object, raw_text, to_json};
use crate::config::Pricing;
use crate::stream::Event;

members! {
    struct Response {
        id,
        object,
        created_at,
        completed_at,
        status,
        background,
        error,
        incomplete_details,
        instructions,
        max_output_tokens,
        max_tool_calls,
        model,
        output,
        output_text,
        parallel_tool_calls,
        previous_response_id,
        prompt_cache_key,
        reasoning,
        safety_identifier,
        service_tier,
        store,
        temperature,
        text,
        tool_choice,
        tools,
        top_logprobs,
        top_p,
        truncation,
        usage,
        user,
        metadata,
    }
    struct Envelope { kind as "type", sequence_number, response, delta, error, code, message, param }
    struct Incomplete { reason }
}

/// What an event of the stream is, by its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Content,
    Frame,
    Done,
    Failed,
    Unknown,
}

/// Types that do not follow the rule that content is a `….delta`.
const MEANINGS: [(&str, Meaning); 6] = [
    ("response.completed", Meaning::Done),
    ("response.incomplete", Meaning::Done),
    ("response.failed", Meaning::Failed),
    ("error", Meaning::Failed),
    ("response.output_item.done", Meaning::Content),
    ("response.image_generation_call.partial_image", Meaning::Content),
];

fn meaning(kind: &str) -> Meaning {
    let is_name =
        kind.len() <= 64 && kind.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_'));
    let known = MEANINGS.iter().find(|(name, _)| *name == kind).map(|(_, meaning)| *meaning);
    known.unwrap_or(match kind {
        _ if !is_name || !kind.starts_with("response.") => Meaning::Unknown,
        _ if kind.rsplit('.').next() == Some("delta") => Meaning::Content,
        _ => Meaning::Frame,
    })
}

/// Follows a response.
#[derive(Debug)]
pub(super) struct Responses {
    id: Box<RawValue>,
    model: Box<RawValue>,
    meter: Meter,
    next_number: u64,
    is_done: bool,
    finish: Option<String>,
    upstream_model: Option<String>,
}

impl Responses {
    pub(super) fn new(shaped: &Shaped, answer_id: &str, pricing: &Pricing) -> Self {
        Self {
            id: raw_text(answer_id),
            model: raw_text(&shaped.model),
            meter: Meter::new(shaped.prompt_estimate, pricing),
            next_number: 0,
            is_done: false,
            finish: None,
            upstream_model: None,
        }
    }

    /// A response as the client gets it.
    fn written(&mut self, response: &Response<'_>) -> Vec<u8> {
        if let Some(model) = response.model.read() {
            self.upstream_model = Some(model);
        }
        let usage = response.usage.value().and_then(|usage| self.meter.told(usage));
        let own = Response {
            id: Raw::of(&self.id),
            model: Raw::of(&self.model),
            usage: usage.as_deref().map_or(Raw::ABSENT, Raw::of),
            ..*response
        };
        to_json(&own)
    }

    fn note_end(&mut self, response: &Response<'_>) {
        let reason =
            response.incomplete_details.read::<Incomplete<'_>>().and_then(|details| details.reason.read());
        self.finish = Some(match reason {
            None => "stop".to_owned(),
            Some(reason) if reason == "max_output_tokens" => "length".to_owned(),
            Some(reason) => reason,
        });
    }

    fn follow(&mut self, data: &[u8]) -> Option<Step> {
        let text = std::str::from_utf8(data).ok()?;
        let envelope: Envelope<'_> = object(text)?;
        let kind: String = envelope.kind.read()?;
        let meaning = meaning(&kind);
        if meaning == Meaning::Unknown {
            return Some(Step::Frame(Bytes::new()));
        }
        if meaning == Meaning::Failed {
            return Some(Step::Failed(failure(&envelope)));
        }
        if self.is_done {
            return None;
        }
        if let Some(number) = envelope.sequence_number.read::<u64>() {
            self.next_number = number.saturating_add(1);
        }
        let json = match envelope.response.text() {
            None if meaning == Meaning::Done => return None,
            None => data.to_vec(),
            Some(response) => {
                let response: Response<'_> = object(response)?;
                if response.error.value().is_some() {
                    return Some(Step::Failed(failure(&envelope)));
                }
                if meaning == Meaning::Done {
                    self.note_end(&response);
                }
                let response = String::from_utf8(self.written(&response)).ok()?;
                let change = Change::Set(RawValue::from_string(response).ok()?);
                Body::parse_deep(data).ok()?.rewrite(&[("response", change)])
            }
        };
        if let Some(delta) = envelope.delta.text() {
            self.meter.characters.add_json(delta);
        }
        let event = named_event(&kind, json);
        Some(match meaning {
            Meaning::Done => {
                self.is_done = true;
                self.meter.is_whole = true;
                Step::Done(event)
            }
            Meaning::Content => Step::Content(event),
            Meaning::Frame | Meaning::Failed | Meaning::Unknown => Step::Frame(event),
        })
    }
}

fn failure(envelope: &Envelope<'_>) -> UpstreamFault {
    let response: Option<Response<'_>> = envelope.response.text().and_then(object);
    let error = response.and_then(|response| response.error.text()).or(envelope.error.text());
    error.map_or_else(|| fault::of_member(&String::from_utf8_lossy(&to_json(envelope))), fault::of_member)
}

impl Translate for Responses {
    fn whole(&mut self, body: &[u8]) -> Result<Whole, NotAnAnswer> {
        let response: Response<'_> = super::answer(body)?;
        let is_over = matches!(response.status.text(), Some("\"completed\"" | "\"incomplete\""));
        if !is_over
            || response.error.value().is_some()
            || !response.output.text().is_some_and(|list| list.starts_with('['))
        {
            return Err(NotAnAnswer);
        }
        self.note_end(&response);
        self.meter.is_whole = true;
        if let Some(output) = response.output.text() {
            self.meter.characters.add_json(output);
        }
        Ok(Whole {
            body: self.written(&response).into(),
            usage: self.usage().map(ToOwned::to_owned),
            tokens: self.tokens(),
            upstream_model: self.upstream_model.clone(),
        })
    }

    fn event(&mut self, event: &Event) -> Step {
        match event.data() {
            None => Step::Frame(Bytes::new()),
            Some(data) => self.follow(&data).unwrap_or(Step::Broken),
        }
    }

    fn end(&mut self) -> Ending {
        if self.is_done { Ending::Whole(Bytes::new()) } else { Ending::Truncated }
    }

    fn broken_tail(&mut self, message: &str) -> Bytes {
        broken_responses(message, self.next_number)
    }

    fn usage(&self) -> Option<&RawValue> {
        self.meter.usage()
    }

    fn tokens(&self) -> Tokens {
        self.meter.tokens()
    }

    fn finish_reasons(&self) -> Vec<String> {
        self.finish.iter().cloned().collect()
    }

    fn upstream_model(&self) -> Option<&str> {
        self.upstream_model.as_deref()
    }
}
