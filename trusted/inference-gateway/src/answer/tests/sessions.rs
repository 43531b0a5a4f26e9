//! Sessions that receipts cite.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use cloister_aci::verify::{self, Check, Finding, Known};
use cloister_verifier::Clock;
use jiff::SignedDuration;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::proof::{verdict, verified};
use super::support::*;
use crate::upstream::fake::{Act, Fake, chunk, until};

#[tokio::test]
async fn a_session_is_held_until_its_receipt_is_there() {
    let fake = Fake::start_tls(|_, _| {
        let mut acts = begun(&answer()[..3]);
        acts.push(Act::Hang);
        acts
    })
    .await;
    let (_, pin) = fake.certificate.clone().unwrap();
    let bench = verified(&fake, pin).await;
    let store = &bench.running.gateway().store;
    let response = bench.request("/v1/chat/completions", &chat(true)).send().await.unwrap();
    let headers = response.headers().clone();
    assert_eq!(store.held_sessions(), 1);
    drop(response);
    bench.rows_of(1).await;
    until(|| store.held_sessions() == 0).await;
    let receipt = receipt(store, &Reply { status: 200, headers, body: "".into() });
    let id = event(&receipt, "upstream.verified").unwrap()["session_id"].as_str().unwrap();
    assert!(store.session(id).unwrap().is_some());
}

/// What was verified of an upstream ends while an answer is under way, its session included, and the upstream proves nothing
/// any more: the answer ends as it began, on the channel that held then, and nobody else's prompt goes there.
#[tokio::test]
async fn evidence_that_expires_in_mid_stream_ends_no_answer_and_begins_none() {
    let let_go = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&let_go);
    let fake = Fake::start_tls(move |_, _| {
        let (first, rest) = (&answer()[..3], &answer()[3..]);
        let mut acts = begun(first);
        acts.push(Act::Wait(Arc::clone(&waiting)));
        acts.extend(rest.iter().map(|event| Act::Send(chunk(event))));
        acts.push(Act::Send(chunk(b"")));
        acts
    })
    .await;
    let (_, pin) = fake.certificate.clone().unwrap();
    let dir = TempDir::new().unwrap();
    let proof = dir.path().join("proof");
    let prove = || std::fs::write(&proof, verdict(&fake, pin).to_string()).unwrap();
    prove();
    let program = json!(["/bin/sh", "-c", format!("cat > /dev/null; cat {}", proof.display())]);
    let ahead = Arc::new(AtomicI64::new(0));
    let clock = {
        let (ahead, system) = (Arc::clone(&ahead), Clock::system());
        Clock::from_fn(move || system.now() + SignedDuration::from_secs(ahead.load(Ordering::SeqCst)))
    };
    let more = json!({"verifier_command": program});
    let bench = Bench::at(clock, vec![upstream("third", &fake.url(), 0, &more)], json!({})).await;
    let mut request = chat(true);
    request["provider"] = json!({"aci_verified": true});
    let begun = bench.request("/v1/chat/completions", &request).send().await.unwrap();
    let headers = begun.headers().clone();
    assert_eq!(fake.seen.lock().len(), 1);

    // Longer than verifications hold (300 s), and sessions (an hour).
    std::fs::remove_file(&proof).unwrap();
    ahead.fetch_add(3700, Ordering::SeqCst);
    assert_eq!(bench.ask(&request).await.error(), (503, "upstream_verification_failed".to_owned()));
    assert_eq!(fake.seen.lock().len(), 1, "a prompt went out without proof");
    let_go.add_permits(2);
    let ended = Reply { status: 200, headers, body: begun.bytes().await.unwrap() };
    assert_eq!(seen(&ended), complete());

    // Its account cites what held when it began.
    let receipt = bench.checked_receipt(&ended);
    let store = &bench.running.gateway().store;
    let id = event(&receipt, "upstream.verified").unwrap()["session_id"].as_str().unwrap();
    let session = cloister_aci::parse(&store.session(id).unwrap().unwrap()).unwrap();
    let known = Known { session: Some(&session), ..Known::default() };
    let found = verify::receipt(&receipt, &known);
    for check in [Check::Upstream, Check::Session] {
        assert!(found.contains(&(check, Finding::Holds)), "{check}: {found:?}");
    }
    until(|| store.held_sessions() == 0).await;

    // Proved anew, after the time for which a failure is remembered.
    prove();
    ahead.fetch_add(10, Ordering::SeqCst);
    assert_eq!(seen(&bench.ask(&request).await), complete());
}
