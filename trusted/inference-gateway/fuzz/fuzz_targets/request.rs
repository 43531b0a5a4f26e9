//! Any bytes as a request on every surface: it is refused with 400, or what goes out is JSON with the route's own model.
#![no_main]

use bytes::Bytes;
use cloister_inference_gateway::body::{Body, Constraints};
use cloister_inference_gateway::config::GatewayConfig;
use cloister_inference_gateway::format::{outgoing, shape};
use cloister_inference_gateway::routing::Catalogue;
use cloister_inference_gateway::surface::Surface;

const CONFIG: &[u8] = br#"{"state_dir":"/nowhere","upstreams":[
    {"name":"a","base_url":"https://a.example","models":{"m":"own"},"reasoning_dialect":"reasoning_effort"},
    {"name":"b","base_url":"https://b.example","models":{"m":"own"},"provider":"anthropic","path":"/v1/messages"}]}"#;

/// Numbers may be larger than any that a reader knows.
type Members = std::collections::BTreeMap<String, Box<serde_json::value::RawValue>>;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let catalogue = Catalogue::new(&GatewayConfig::parse(CONFIG).expect("the configuration is one"));
    let model = catalogue.model("m").expect("it has the model");
    let bytes = Bytes::copy_from_slice(bytes);
    if let Ok(body) = Body::parse(&bytes) {
        drop(Constraints::of(&body));
    }
    for surface in Surface::ALL {
        match shape(surface, &bytes, model) {
            Err(error) => assert_eq!(error.status().as_u16(), 400),
            Ok(shaped) => {
                assert!(shaped.prompt_estimate <= 1000 * bytes.len() as u64);
                for route in &model.routes {
                    let Ok(sent) = outgoing(&shaped, route) else { continue };
                    let sent: Members =
                        serde_json::from_slice(&sent.body).expect("what goes out is an object");
                    assert_eq!(sent.get("model").map(|model| model.get()), Some("\"own\""));
                    assert!(!sent.contains_key("provider"));
                }
            }
        }
    }
});
