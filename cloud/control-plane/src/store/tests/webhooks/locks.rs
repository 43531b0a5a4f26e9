//! Changes of webhooks and results of attempts at the same moment.

use super::*;

/// Waits until so many wait for what others hold. Only PostgreSQL has several writers.
async fn until_waiting(store: &Store, wanted: i64) {
    loop {
        let (count,): (i64,) = sqlx::query_as(
            "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .fetch_one(&store.pool)
        .await
        .unwrap();
        if count >= wanted {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_webhook_is_disabled_while_its_receiver_says_that_it_is_gone() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let id = webhook(&store, ground.workspace, STARTED).await;
        happens(&store, &event(ground.workspace, "evt_1", "cvm:1"), NOW).await;
        let taken = take_all(&store, NOW).await.remove(0);
        let mut change = store.change().await.unwrap();
        change.lock_webhook(ground.workspace, id).await.unwrap().unwrap();
        let recording = tokio::spawn({
            let (store, gone) = (store.clone(), AttemptResult { gone: Some(id), ..result(&taken, "failed") });
            async move { store.record_attempts(&[gone], NOW + 1).await }
        });
        if store.engine == Engine::Postgres {
            until_waiting(&store, 1).await;
        }
        let off = WebhookChange { enabled: Some(false), ..WebhookChange::default() };
        change.update_webhook(ground.workspace, id, &off, NOW).await.unwrap().unwrap();
        change.commit().await.unwrap();
        recording.await.unwrap().unwrap();
        let row = store.webhook(ground.workspace, id).await.unwrap().unwrap();
        assert_eq!((row.enabled, row.disabled_reason), (0, None));
        assert_eq!(store.webhook_backlog().await.unwrap().count, 0);
    })
    .await;
}

#[tokio::test]
async fn gone_is_said_of_the_address_that_was_asked() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let id = webhook(&store, ground.workspace, STARTED).await;
        happens(&store, &event(ground.workspace, "evt_1", "cvm:1"), NOW).await;
        happens(&store, &event(ground.workspace, "evt_2", "cvm:1"), NOW).await;
        let taken = take_all(&store, NOW).await.remove(0);
        let mut change = store.change().await.unwrap();
        let elsewhere = WebhookChange { url: Some("https://example.org/new"), ..WebhookChange::default() };
        change.update_webhook(ground.workspace, id, &elsewhere, NOW).await.unwrap().unwrap();
        change.commit().await.unwrap();
        let gone = AttemptResult { gone: Some(id), ..result(&taken, "failed") };
        store.record_attempts(&[gone], NOW + 1).await.unwrap();
        assert_eq!(store.webhook(ground.workspace, id).await.unwrap().unwrap().enabled, 1);
        let next = take_all(&store, NOW + 1).await.remove(0);
        assert_eq!((next.event_id.as_str(), next.url.as_str()), ("evt_2", "https://example.org/new"));
    })
    .await;
}

#[tokio::test]
async fn what_ends_and_what_happens_take_the_same_way() {
    on_both(|store| async move {
        if store.engine == Engine::Sqlite {
            return;
        }
        let ground = ground(&store).await;
        webhook(&store, ground.workspace, STARTED).await;
        let other = webhook(&store, ground.workspace, r#"["cvm.started","cvm.stopped"]"#).await;
        // The first webhook has one under way and one behind it; the last one of the other is younger than both.
        for id in ["evt_1", "evt_2"] {
            happens(&store, &event(ground.workspace, id, "cvm:1"), NOW).await;
        }
        let stopped =
            NewWebhookEvent { event_type: "cvm.stopped", ..event(ground.workspace, "evt_3", "cvm:1") };
        happens(&store, &stopped, NOW).await;
        let mut under_way = take_all(&store, NOW).await;
        for _ in 0..2 {
            let at = under_way.iter().position(|taken| taken.webhook_id == other).unwrap();
            let ended = under_way.remove(at);
            store.record_attempts(&[result(&ended, "success")], NOW).await.unwrap();
            under_way.extend(take_all(&store, NOW).await);
        }
        assert_eq!(under_way.len(), 2);
        let last = under_way.iter().map(|taken| taken.id).max().unwrap();
        let mut held = store.change().await.unwrap();
        sqlx::query("SELECT id FROM webhook_deliveries WHERE id = $1 FOR UPDATE")
            .bind(last)
            .fetch_one(&mut *held.transaction)
            .await
            .unwrap();
        let results: Vec<_> = under_way.iter().map(|taken| result(taken, "success")).collect();
        let recording = tokio::spawn({
            let store = store.clone();
            async move { store.record_attempts(&results, NOW + 1).await }
        });
        until_waiting(&store, 1).await;
        let mut change = store.change().await.unwrap();
        let telling = tokio::spawn(async move {
            let new = event(ground.workspace, "evt_4", "cvm:1");
            change.insert_webhook_event(&new, NOW + 1).await.unwrap();
            change.commit().await
        });
        until_waiting(&store, 2).await;
        drop(held);
        recording.await.unwrap().unwrap();
        telling.await.unwrap().unwrap();
    })
    .await;
}
