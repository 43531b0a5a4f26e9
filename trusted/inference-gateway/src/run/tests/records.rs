//! A gateway whose disk fails.

use std::time::Instant;

use http::StatusCode;
use serde_json::json;

use super::{Bench, KEY, PATIENCE, TOKEN, reply};
use crate::record::bad::{Bad, Disk};
use crate::upstream::fake::until;

async fn healthy(bench: &Bench) -> u8 {
    let figures = bench.get("/v1/metrics", Some(TOKEN)).await;
    let figures = String::from_utf8(figures.body.to_vec()).unwrap();
    let mut lines = figures.lines();
    let value = lines.find_map(|line| line.strip_prefix("private_ai_gateway_records_healthy ")).unwrap();
    value.parse().unwrap()
}

#[tokio::test]
async fn nothing_is_begun_that_cannot_be_recorded() {
    let bad = Bad::default();
    let bench = Bench::on(bad.backing(), |_, _| {}).await;
    bench.leave.add_permits(10);
    let first = reply(bench.chat("plain")).await;
    assert_eq!((first.status, healthy(&bench).await), (StatusCode::OK, 1));

    until(|| bench.running.gateway.store.pending_bytes() == 0).await;
    bad.becomes(Disk::Full);
    // Whoever is under way finds it out, and gets no answer that has no record.
    let failed = reply(bench.chat("plain")).await;
    assert_eq!(failed.error().1, "internal_error");
    let health = bench.get("/health", None).await;
    let failing = json!({ "status": "failing", "reason": "records_not_written" });
    assert_eq!((health.status.as_u16(), health.json()), (503, failing));
    let left = bench.leave.available_permits();
    for _ in 0..3 {
        let refused = reply(bench.chat("plain")).await;
        assert_eq!(refused.error().1, "service_unavailable");
        assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, "5"));
    }
    assert_eq!(bench.leave.available_permits(), left, "nothing went upstream");
    assert_eq!(healthy(&bench).await, 0);
    // What was recorded can be read.
    let path = format!("/v1/aci/receipts/{}", first.header("x-receipt-id"));
    assert_eq!(bench.get(&path, Some(KEY)).await.status, StatusCode::OK);

    bad.becomes(Disk::Well);
    let deadline = Instant::now() + PATIENCE;
    while bench.get("/health", None).await.status != StatusCode::OK {
        assert!(Instant::now() < deadline, "it does not recover");
        tokio::task::yield_now().await;
    }
    assert_eq!((reply(bench.chat("plain")).await.status, healthy(&bench).await), (StatusCode::OK, 1));
    // What was used when the disk was full is recorded, too.
    until(|| bench.running.gateway.arrears.waiting() == 0).await;
    let mut rows = bench.running.gateway.store.usage(0, 10).unwrap();
    rows.sort_by_key(|row| row.row.status);
    let told: Vec<_> = rows.iter().map(|row| (row.row.status, row.row.error_source.as_deref())).collect();
    assert_eq!(told, [(200, None), (200, None), (500, Some("gateway"))]);
    assert_eq!((rows[2].row.prompt_tokens, rows[2].row.completion_tokens), (1, 1));
    let path = format!("/v1/aci/receipts/{}", rows[2].row.request_id);
    assert_eq!(bench.get(&path, Some(KEY)).await.status, StatusCode::NOT_FOUND);
}

/// Nor does a gateway that ends wait for ever for such a disk; what it can still record, it does.
#[tokio::test]
async fn an_end_records_what_waits_if_it_can() {
    for (disk, rows) in [(Disk::Full, 1), (Disk::Well, 2)] {
        let bad = Bad::default();
        let bench = Bench::on(bad.backing(), |_, _| {}).await;
        bench.leave.add_permits(2);
        // With it what the start writes is filed, too: that would find out about the disk before the next request does.
        assert_eq!(reply(bench.chat("plain")).await.status, StatusCode::OK);
        until(|| bench.running.gateway.store.pending_bytes() == 0).await;
        bad.becomes(Disk::Full);
        assert_eq!(reply(bench.chat("plain")).await.status, StatusCode::INTERNAL_SERVER_ERROR);
        bad.becomes(disk);
        let store = bench.running.gateway.store.clone();
        if disk == Disk::Well {
            until(|| store.trouble().is_none()).await;
        }
        bench.running.stop(PATIENCE, std::future::pending()).await;
        assert_eq!(store.usage(0, 10).unwrap().len(), rows);
    }
}
