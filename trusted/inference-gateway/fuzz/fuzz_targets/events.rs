//! Any bytes as an upstream's stream, for every pair of formats: what a client gets are whole events, and what is whole
//! is followed by nothing.
#![no_main]

use bytes::Bytes;
use cloister_inference_gateway::config::{GatewayConfig, Pricing};
use cloister_inference_gateway::format::{Ending, Step, shape, translator};
use cloister_inference_gateway::routing::Catalogue;
use cloister_inference_gateway::stream::Events;
use cloister_inference_gateway::surface::Surface;

const CONFIG: &[u8] = br#"{"state_dir":"/nowhere","upstreams":[
    {"name":"a","base_url":"https://a.example","models":{"m":"own"}},
    {"name":"b","base_url":"https://b.example","models":{"m":"own"},"provider":"anthropic","path":"/v1/messages"}]}"#;
const ASK: &[u8] = br#"{"model":"m","max_tokens":5,"messages":[],"prompt":"x","input":"x","stream":true}"#;

fn check(bytes: &Bytes) {
    assert!(bytes.is_empty() || bytes.ends_with(b"\n\n"), "half an event");
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let catalogue = Catalogue::new(&GatewayConfig::parse(CONFIG).expect("the configuration is one"));
    let model = catalogue.model("m").expect("it has the model");
    for surface in [Surface::Chat, Surface::Completions, Surface::Responses, Surface::Messages] {
        let Ok(shaped) = shape(surface, &Bytes::from_static(ASK), model) else { continue };
        for route in &model.routes {
            let Some(mut translate) = translator(&shaped, route, "id", &Pricing::default()) else { continue };
            let mut events = Events::default();
            events.push(bytes);
            let mut is_over = false;
            while let Some(Ok(event)) = events.next() {
                match translate.event(&event) {
                    Step::Content(bytes) | Step::Frame(bytes) => check(&bytes),
                    Step::Done(bytes) => {
                        check(&bytes);
                        is_over = true;
                    }
                    Step::Failed(_) | Step::Broken => is_over = true,
                }
                if is_over {
                    break;
                }
            }
            if !is_over && let Ending::Whole(bytes) = translate.end() {
                check(&bytes);
            }
            check(&translate.broken_tail("words"));
            drop((translate.tokens(), translate.finish_reasons()));
        }
    }
});
