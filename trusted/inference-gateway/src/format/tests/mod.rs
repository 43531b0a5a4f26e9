//! Requests and answers as clients and upstreams see them.

mod chat;
mod fault;
mod messages;
mod responses;
mod streamed;
mod turned;

use bytes::Bytes;

use super::*;
use crate::config::GatewayConfig;
use crate::routing::{Catalogue, Model};
use crate::stream::Events;

/// A model `m` with one route to an upstream that has these members besides.
fn model(upstream: &str, model: &str) -> std::sync::Arc<Model> {
    let config = format!(
        r#"{{"state_dir":"/nowhere","upstreams":[{{"name":"up","base_url":"https://secret.example.com",
            "bearer_token":"token-1234","models":{{"m":"own-model"}}{upstream}}}],"models":[{{"id":"m",
            "pricing":{{"prompt":"0.000001","completion":"0.000002","cache_read":"0.0000005"}}{model}}}]}}"#
    );
    let config = GatewayConfig::parse(config.as_bytes()).unwrap();
    std::sync::Arc::clone(Catalogue::new(&config).model("m").unwrap())
}

fn openai() -> std::sync::Arc<Model> {
    model("", "")
}

fn shaped(surface: Surface, body: &str, model: &Model) -> Result<Shaped, GatewayError> {
    shape(surface, &Bytes::from(body.to_owned()), model)
}

fn sent(surface: Surface, body: &str, model: &Model) -> Result<String, GatewayError> {
    let sent = outgoing(&shaped(surface, body, model)?, &model.routes[0])?;
    Ok(String::from_utf8(sent.body.to_vec()).unwrap())
}

fn follow(surface: Surface, body: &str, model: &Model) -> Box<dyn Translate> {
    let mut shaped = shaped(surface, body, model).unwrap();
    shaped.created = 1_750_000_000;
    let id = answer_id(surface, "req_0123").unwrap_or_default();
    translator(&shaped, &model.routes[0], &id, &model.config.pricing).unwrap()
}

/// What a client gets of a stream that comes in pieces: its bytes, the steps' names, and how it ends.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    text: String,
    steps: Vec<&'static str>,
    ending: Ending,
}

fn relay(translate: &mut dyn Translate, pieces: &[&[u8]]) -> Got {
    let (mut events, mut got) =
        (Events::default(), Got { text: String::new(), steps: Vec::new(), ending: Ending::Truncated });
    let mut take = |event: &Event| {
        let (name, bytes, is_over) = match translate.event(event) {
            Step::Content(bytes) => ("content", bytes, false),
            Step::Frame(bytes) => ("frame", bytes, false),
            Step::Done(bytes) => ("done", bytes, true),
            Step::Failed(_) => ("failed", Bytes::new(), true),
            Step::Broken => ("broken", Bytes::new(), true),
        };
        got.steps.push(name);
        got.text.push_str(std::str::from_utf8(&bytes).unwrap());
        is_over
    };
    for piece in pieces {
        events.push(piece);
        while let Some(event) = events.next() {
            if take(&event.unwrap()) {
                got.ending = Ending::Whole(Bytes::new());
                return got;
            }
        }
    }
    if let Some(event) = events.finish()
        && take(&event)
    {
        got.ending = Ending::Whole(Bytes::new());
        return got;
    }
    got.ending = if events.is_within_event() { Ending::Truncated } else { translate.end() };
    if let Ending::Whole(bytes) = &got.ending {
        got.text.push_str(std::str::from_utf8(bytes).unwrap());
    }
    got
}

fn stream(events: &[&str]) -> String {
    events.iter().fold(String::new(), |stream, data| stream + "data: " + data + "\n\n")
}
