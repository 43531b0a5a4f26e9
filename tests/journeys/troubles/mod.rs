//! What the published clients make of trouble, of tools, of structured outputs and of images: nothing half looks whole,
//! and nothing is asked more often, or earlier, than it should be.

mod upstream;

use std::time::Duration;

use cloister_tests::inference::{Inference, seen_by};
use serde_json::{Value, json};
use tempfile::TempDir;

use upstream::Upstream;

/// The moods, and by which ways the programs ask for each.
const ASKED: [(&str, &[&str]); 9] = [
    ("busy", &["chat", "stream", "messages", "alone"]),
    ("broken", &["chat", "stream", "messages", "alone"]),
    ("silent", &["chat", "messages"]),
    ("breaks", &["chat", "messages"]),
    ("trails", &["chat", "messages"]),
    ("tools", &["chat", "stream", "messages", "messages-stream"]),
    ("structured", &["chat", "stream"]),
    ("terse", &["stream"]),
    ("sees", &["chat", "messages"]),
];
/// How long the upstream asks to be left alone.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What every client makes of a mood, whatever its language; `patience` is its exception for silence.
fn expected(mood: &str, way: &str, patience: &str) -> Value {
    let called = |reason: &str| json!(["weather", { "city": "Paris", "days": 3 }, reason]);
    match (mood, way) {
        ("busy", "alone") => json!("RateLimitError"),
        ("broken", "alone") => json!("InternalServerError"),
        ("silent", _) => json!(patience),
        // The text so far, then an exception, and nothing before it looked whole.
        ("breaks" | "trails", _) => json!(["hel", true, false]),
        ("tools", "chat" | "stream") => called("tool_calls"),
        ("tools", _) => called("tool_use"),
        ("structured", _) => json!({ "city": "Paris", "degrees": 21 }),
        _ => json!("hello"),
    }
}

async fn a_client_is_told_the_truth(program: &str, patience: &str) {
    let directory = TempDir::new().unwrap();
    let upstream = Upstream::start().await;
    let asked = ASKED.iter().flat_map(|(mood, ways)| ways.iter().map(move |way| (*mood, *way)));
    let models: Vec<String> = asked.clone().map(|(mood, way)| format!("{mood}/{way}")).collect();
    let gateway = Inference::before(directory.path(), upstream.address, &models).await;
    let seen = seen_by(program, &gateway).await;
    for ((mood, way), model) in asked.zip(&models) {
        assert_eq!(seen[model.as_str()], expected(mood, way, patience), "{model}: {seen:#}");
        let requests = upstream.requests(model);
        let is_asked_again = matches!(mood, "busy" | "broken") && way != "alone";
        assert_eq!(requests.len(), if is_asked_again { 2 } else { 1 }, "{model}");
        if let ("busy", [first, second]) = (mood, requests.as_slice()) {
            let pause = second.at.duration_since(first.at);
            assert!(pause >= RETRY_AFTER, "{model} was asked again after {pause:?}");
        }
    }
    an_image_passes(&upstream);
}

/// In the format of the upstream, byte for byte, whatever the format of the client.
fn an_image_passes(upstream: &Upstream) {
    let content = |model: &str| upstream.requests(model)[0].body["messages"][0]["content"].clone();
    let parts = content("sees/chat");
    let image = &parts[1]["image_url"];
    assert_eq!((&parts[0]["text"], &image["detail"]), (&json!("What is this?"), &json!("low")), "{parts}");
    assert!(image["url"].as_str().unwrap().starts_with("data:image/png;base64,iVBOR"), "{parts}");
    let turned = content("sees/messages");
    assert_eq!(turned[0]["image_url"]["url"], image["url"], "{turned}");
    assert_eq!(turned[1]["text"], "What is this?", "{turned}");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_clients_are_told_the_truth() {
    a_client_is_told_the_truth("troubles.py", "APITimeoutError").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn javascript_clients_are_told_the_truth() {
    a_client_is_told_the_truth("troubles.mjs", "APIConnectionTimeoutError").await;
}
