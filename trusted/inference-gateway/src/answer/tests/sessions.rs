//! Sessions that receipts cite.

use super::proof::verified;
use super::support::*;
use crate::upstream::fake::{Act, Fake, until};

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
