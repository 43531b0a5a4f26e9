//! Any bytes as an upstream's whole answer or error: what a client gets is JSON, and names no upstream.
#![no_main]

use bytes::Bytes;
use cloister_inference_gateway::config::{GatewayConfig, Pricing};
use cloister_inference_gateway::format::{fault, shape, translator};
use cloister_inference_gateway::routing::Catalogue;
use cloister_inference_gateway::surface::Surface;

const CONFIG: &[u8] = br#"{"state_dir":"/nowhere","upstreams":[
    {"name":"first","base_url":"https://secret.example.com","models":{"m":"own-model"}},
    {"name":"second","base_url":"https://secret.example.com","models":{"m":"own-model"},"provider":"anthropic",
     "path":"/v1/messages"}]}"#;
const ASK: &[u8] = br#"{"model":"m","max_tokens":5,"messages":[],"prompt":"x","input":"x"}"#;

/// Numbers may be larger than any that a reader knows.
type Members = std::collections::BTreeMap<String, Box<serde_json::value::RawValue>>;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let catalogue = Catalogue::new(&GatewayConfig::parse(CONFIG).expect("the configuration is one"));
    let model = catalogue.model("m").expect("it has the model");
    for surface in Surface::ALL {
        let Ok(shaped) = shape(surface, &Bytes::from_static(ASK), model) else { continue };
        for route in &model.routes {
            let Some(mut translate) = translator(&shaped, route, "id", &Pricing::default()) else { continue };
            if let Ok(whole) = translate.whole(bytes) {
                let document: Members = serde_json::from_slice(&whole.body).expect("an answer is an object");
                assert_eq!(document.get("model").map(|model| model.get()), Some("\"m\""));
            }
        }
    }
    let read = fault::read(bytes);
    for status in [400, 401, 404, 429, 500, 503] {
        let status = http::StatusCode::from_u16(status).expect("a status");
        let error = fault::public(status, &read, &model.routes[0]);
        let told =
            [error.message.as_str(), error.param.as_deref().unwrap_or_default()].join(" ").to_lowercase();
        assert!(!told.contains("secret.example.com") && !told.contains("own-model") && !told.contains("://"));
    }
});
