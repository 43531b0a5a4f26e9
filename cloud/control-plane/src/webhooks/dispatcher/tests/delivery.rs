use super::*;

#[tokio::test]
async fn a_receiver_that_fails_gets_four_attempts_each_signed_anew() {
    on_both(|store| async move {
        let mut bench = Bench::new(store).await;
        let id = bench.webhook("down").await;
        bench.receivers.script("down", &[Reply::Status(500), Reply::Refused, Reply::Status(302)]);
        bench.receivers.always("down", Reply::Status(500));
        bench.happens(0, "a").await;
        bench.settled().await;
        for (attempts, wait_ms) in [(1, 60_000), (2, 600_000), (3, 3_600_000)] {
            assert_eq!(bench.receivers.requests().len(), attempts);
            bench.advance_ms(wait_ms - 1).await;
            assert_eq!(bench.receivers.requests().len(), attempts, "not before its time");
            bench.advance_ms(1).await;
        }
        bench.advance_ms(ALL_WAITS_MS).await;
        let requests = bench.receivers.requests();
        assert_eq!(requests.len(), 4);
        let mut now_ms = START.parse::<Timestamp>().unwrap().as_millisecond();
        for (request, wait_ms) in requests.iter().zip([0, 60_000, 600_000, 3_600_000]) {
            now_ms += wait_ms;
            assert!(is_signed(request, &secret(1), now_ms) && !is_signed(request, &secret(2), now_ms));
            assert_eq!(request.headers["X-Webhook-Timestamp"], (now_ms / 1000).to_string());
            assert_eq!(request.body, requests[0].body, "the same event");
        }
        let row = bench.deliveries(id).await.remove(0);
        assert_eq!((row.status.as_str(), row.attempts, row.response_status), ("failed", 4, 500));
        assert_eq!((row.error_message.as_str(), row.delivered_at_ms), ("the receiver answered 500", None));
        let attempts = bench.store.webhook_attempts(row.id).await.unwrap();
        let statuses: Vec<_> = attempts.iter().map(|row| (row.number, row.response_status)).collect();
        assert_eq!(statuses, [(1, 500), (2, 0), (3, 302), (4, 500)]);
        assert!(attempts[1].error_message.contains("refused"), "{:?}", attempts[1]);
        bench.stop().await;
    })
    .await;
}

#[tokio::test]
async fn the_body_says_what_happened_where() {
    on_both(|store| async move {
        let mut bench = Bench::new(store).await;
        let id = bench.webhook("up").await;
        bench.happens(1, "a").await;
        bench.settled().await;
        let request = bench.receivers.requests().remove(0);
        let row = bench.deliveries(id).await.remove(0);
        let expected = json!({
            "id": row.event_id, "event": "cvm.started", "version": "1", "created_at": START,
            "workspace": {"id": "ada-lab", "name": "Ada Lab"},
            "data": {"cvm_name": "web-1", "marker": "a"},
        });
        assert_eq!(request.json(), expected);
        assert_eq!(request.headers["X-Webhook-Event"], "cvm.started");
        assert_eq!(request.headers["webhook-id"], row.event_id.as_str());
        let webhook_id = cloister_management_api::WebhookId(id).to_string();
        assert_eq!(request.headers["X-Webhook-Id"], webhook_id.as_str());
        assert_eq!((row.status.as_str(), row.attempts, row.response_status), ("success", 1, 200));
        assert_eq!(row.delivered_at_ms, Some(bench.clock.now_ms()));
        bench.stop().await;
    })
    .await;
}

#[tokio::test]
async fn events_of_a_cvm_come_in_their_order_and_those_of_others_do_not_wait() {
    on_both(|store| async move {
        let mut bench = Bench::new(store).await;
        bench.webhook("shop").await;
        bench.receivers.script("shop", &[Reply::Status(503)]);
        bench.happens(0, "first").await;
        bench.settled().await;
        bench.happens(0, "second").await;
        bench.happens(1, "other").await;
        bench.happens(0, "third").await;
        bench.settled().await;
        assert_eq!(bench.receivers.markers("shop"), ["first", "other"]);
        bench.advance_ms(60_000).await;
        assert_eq!(bench.receivers.markers("shop"), ["first", "other", "first", "second", "third"]);
        bench.stop().await;
    })
    .await;
}

#[tokio::test]
async fn receivers_may_ask_for_time() {
    on_both(|store| async move {
        let mut bench = Bench::new(store).await;
        bench.webhook("busy").await;
        bench.receivers.script("busy", &[Reply::Later(429, 120), Reply::Later(503, 1 << 40)]);
        bench.happens(0, "a").await;
        bench.settled().await;
        let mut count = 1;
        for wait_ms in [120_000, 3_600_000] {
            bench.advance_ms(wait_ms - 1).await;
            assert_eq!(bench.receivers.requests().len(), count);
            bench.advance_ms(1).await;
            count += 1;
            assert_eq!(bench.receivers.requests().len(), count);
        }
        bench.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_receiver_that_is_gone_hears_nothing_more() {
    on_both(|store| async move {
        let mut bench = Bench::new(store).await;
        let (id, other) = (bench.webhook("gone").await, bench.webhook("there").await);
        bench.receivers.script("gone", &[Reply::Status(410)]);
        bench.happens(0, "a").await;
        bench.settled().await;
        bench.happens(0, "b").await;
        bench.settled().await;
        assert_eq!(bench.receivers.markers("gone"), ["a"]);
        assert_eq!(bench.receivers.markers("there"), ["a", "b"]);
        let row = bench.store.webhook(bench.ground.workspace, id).await.unwrap().unwrap();
        assert_eq!((row.enabled, row.disabled_reason.is_some()), (0, true));
        assert_eq!(bench.deliveries(id).await[0].status, "failed");
        assert_eq!(bench.deliveries(other).await.len(), 2);
        bench.stop().await;
    })
    .await;
}

#[tokio::test]
async fn while_a_secret_is_rotated_both_sign() {
    on_both(|store| async move {
        let mut bench = Bench::new(store).await;
        let id = bench.webhook("up").await;
        let until_ms = bench.clock.now_ms() + 86_400_000;
        let sealed = bench.secrets.seal(id, &secret(2), Random).unwrap();
        let mut change = bench.store.change().await.unwrap();
        change.rotate_webhook_secret(bench.ground.workspace, id, &sealed, until_ms, 0).await.unwrap();
        change.commit().await.unwrap();
        for (wait_ms, with_old) in [(0, true), (86_399_999, true), (1, false)] {
            bench.advance_ms(wait_ms).await;
            bench.happens(0, "a").await;
            bench.settled().await;
            let request = bench.receivers.requests().pop().unwrap();
            let now_ms = bench.clock.now_ms();
            assert!(is_signed(&request, &secret(2), now_ms));
            let headers = as_texts(&request.headers);
            let old = verify_standard(&secret(1), &headers, &request.body, now_ms / 1000);
            assert_eq!(old.is_ok(), with_old);
        }
        bench.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_secret_of_another_installation_sends_nothing_and_says_why() {
    on_both(|store| async move {
        let mut bench = Bench::without_dispatcher(store).await;
        let id = bench.webhook("up").await;
        let elsewhere = tempfile::tempdir().unwrap();
        bench.secrets = Arc::new(Secrets::open(elsewhere.path(), Random).unwrap());
        bench.start();
        bench.happens(0, "a").await;
        bench.settled().await;
        assert!(bench.receivers.requests().is_empty());
        let row = bench.deliveries(id).await.remove(0);
        assert!(row.error_message.contains("rotate the secret"), "{row:?}");
        assert_eq!((row.status.as_str(), row.attempts), ("pending", 1));
        bench.stop().await;
    })
    .await;
}

#[tokio::test]
async fn what_a_process_left_under_way_is_recorded_as_interrupted_and_made_again() {
    on_both(|store| async move {
        let mut bench = Bench::new(store).await;
        let id = bench.webhook("slow").await;
        bench.receivers.script("slow", &[Reply::Hangs]);
        bench.happens(0, "a").await;
        while bench.receivers.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        bench.die().await;
        bench.clock.advance_ms(LEASE_MS);
        bench.start();
        bench.settled().await;
        let row = bench.deliveries(id).await.remove(0);
        assert_eq!(bench.outcomes(row.id).await, ["interrupted", "success"]);
        assert_eq!((row.status.as_str(), row.attempts), ("success", 1));
        assert_eq!(bench.receivers.requests().len(), 2);
        bench.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_stop_waits_for_what_is_under_way_and_begins_nothing() {
    on_both(|store| async move {
        let mut bench = Bench::new(store).await;
        let id = bench.webhook("slow").await;
        bench.receivers.script("slow", &[Reply::Hangs]);
        bench.happens(0, "a").await;
        while bench.receivers.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let dispatcher = bench.dispatcher.take().unwrap();
        let stopping = tokio::spawn(dispatcher.stop());
        tokio::task::yield_now().await;
        bench.happens(1, "b").await;
        assert!(!stopping.is_finished());
        bench.receivers.release();
        stopping.await.unwrap();
        let rows = bench.deliveries(id).await;
        assert_eq!(bench.outcomes(rows[0].id).await, ["failed"]);
        assert!(rows[0].error_message.starts_with("timed out"), "{:?}", rows[0]);
        assert!(bench.outcomes(rows[1].id).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn what_waits_for_approval_is_told_with_a_token_that_is_not_stored() {
    on_both(|store| async move {
        let mut bench = Bench::new(store).await;
        let id = bench.webhook("up").await;
        let kinds = Some(r#"["cvm.update.pending_approval"]"#);
        bench.update(id, WebhookChange { events: kinds, ..WebhookChange::default() }).await;
        let cvm = &bench.cvms[0];
        let emission = Emission {
            workspace_id: bench.ground.workspace,
            kind: EventKind::UpdatePendingApproval,
            subject: Subject::Cvm(cvm.id),
            operation: None,
            data: json!({ "prepared_change_id": 7, "cvm_id": cvm.vm_uuid }),
        };
        let mut change = bench.store.change().await.unwrap();
        emit(&mut change, Random, &emission, bench.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
        bench.settled().await;
        let data = bench.receivers.requests().remove(0).json()["data"].clone();
        assert_eq!(data["prepared_change_id"], json!(null));
        let (token, url) = (data["commit_token"].as_str().unwrap(), data["commit_url"].as_str().unwrap());
        assert!(url.starts_with("https://cloud.example.org/commit-update/") && url.ends_with(token));
        let stored = bench.store.events_after(bench.ground.workspace, 0, 9).await.unwrap().remove(0);
        assert!(!stored.data.contains(token));
        bench.stop().await;
    })
    .await;
}
