//! A recorded answer, cut at every byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;

use super::support::*;
use crate::upstream::fake::{Act, Fake, chunk, stream_head};

/// Gateways that work beside each other, each on a part of the cuts.
const GATEWAYS: usize = 6;

/// How a stream is cut.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// The connection breaks.
    Broken,
    /// The body ends as if nothing was missing.
    Clean,
}

/// The events of an answer, and how many of them hold no content, and everything that counts.
fn recorded() -> (Vec<Vec<u8>>, usize, usize) {
    let delta = |delta: &str, finish: &str| {
        data(&format!(r#"{{"choices":[{{"index":0,"delta":{{{delta}}},"finish_reason":{finish}}}]}}"#))
    };
    let events = vec![
        delta(r#""role":"assistant""#, "null"),
        delta(r#""content":"one two""#, "null"),
        delta(r#""content":" three""#, "null"),
        delta("", r#""stop""#),
        done(),
    ];
    (events, 1, 4)
}

async fn cut_at(cut: Cut, lengths: impl Iterator<Item = usize>) {
    let (events, silent, counting) = recorded();
    let whole: Vec<u8> = events.concat();
    let content = events[..=silent].concat().len();
    let finished = events[..counting].concat().len();
    let at = Arc::new(AtomicUsize::new(0));
    let mine = Arc::clone(&at);
    let first = Fake::start(move |_, _| {
        let kept = &whole[..mine.load(Ordering::Relaxed)];
        let mut acts = vec![Act::Send(stream_head())];
        if !kept.is_empty() {
            acts.push(Act::Send(chunk(kept)));
        }
        acts.push(match cut {
            Cut::Broken => Act::Close,
            Cut::Clean => Act::Send(chunk(b"")),
        });
        acts
    })
    .await;
    let second = good().await;
    let bench = Bench::pair(&first, &second).await;
    for length in lengths {
        at.store(length, Ordering::Relaxed);
        let reply = bench.ask(&chat(true)).await;
        assert_eq!(reply.status, 200);
        let got = seen(&reply);
        let receipt = bench.checked_receipt(&reply);
        let is_first = event(&receipt, "route.selected").unwrap()["target_route_id"] == "one:vendor/model";
        // At a clean end, an event whose second line end is missing is whole.
        let spare = usize::from(matches!(cut, Cut::Clean));
        assert_eq!(is_first, length + spare >= content, "{cut:?} at {length}");
        if got == complete() {
            assert!(!is_first || length + spare >= finished, "{cut:?} at {length}");
        } else {
            assert_broken(&got, &got.text);
            assert!(is_first && "one two three".starts_with(&got.text), "{cut:?} at {length}: {got:?}");
        }
        // The breaker would spare the route that is cut.
        for route in &bench.running.gateway().live().catalogue.model(MODEL).unwrap().routes {
            route.breaker.succeeded();
        }
    }
}

async fn cut_everywhere(cut: Cut) {
    let length = recorded().0.concat().len();
    join_all((0..GATEWAYS).map(|begin| cut_at(cut, (begin..=length).step_by(GATEWAYS)))).await;
}

#[tokio::test]
async fn a_broken_connection_never_makes_a_whole_answer() {
    cut_everywhere(Cut::Broken).await;
}

#[tokio::test]
async fn a_clean_end_never_makes_a_whole_answer() {
    cut_everywhere(Cut::Clean).await;
}
