//! Webhooks in the store: what only tests ask, and what the queue promises.

use super::*;

mod again;
mod locks;

impl Store {
    /// Deliveries that somebody has taken, or could take at this time.
    pub(crate) async fn deliveries_to_make(&self, now_ms: i64) -> i64 {
        let (count,): (i64,) = sqlx::query_as(
            "SELECT COUNT(*) FROM webhook_deliveries WHERE lease_until_ms IS NOT NULL OR due_at_ms <= $1",
        )
        .bind(now_ms)
        .fetch_one(&self.pool)
        .await
        .unwrap();
        count
    }

    /// When something is next to be tried.
    pub(crate) async fn next_delivery_ms(&self) -> Option<i64> {
        let (next,): (Option<i64>,) = sqlx::query_as("SELECT MIN(due_at_ms) FROM webhook_deliveries")
            .fetch_one(&self.pool)
            .await
            .unwrap();
        next
    }

    /// Lets a dispatcher look, after a manual clock was moved.
    pub(crate) fn wake_dispatcher(&self) {
        self.deliveries.notify_one();
    }

    /// All events that ends of operations were: operation, kind and data.
    pub(crate) async fn told_of_operations(&self) -> Vec<(String, String, String)> {
        sqlx::query_as(
            "SELECT correlation_id, event_type, data FROM webhook_events WHERE correlation_id IS NOT NULL \
             ORDER BY id",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap()
    }
}

pub(crate) async fn webhook(store: &Store, workspace_id: i64, events: &str) -> i64 {
    let mut change = store.change().await.unwrap();
    let id = change.next_webhook_id().await.unwrap();
    let new = NewWebhook {
        id,
        workspace_id,
        url: "https://example.org/hook",
        name: Some("hook"),
        events,
        sealed_secret: "sealed",
    };
    change.insert_webhook(&new, NOW).await.unwrap();
    change.commit().await.unwrap();
    id
}

fn event<'a>(workspace_id: i64, event_id: &'a str, ordering: &'a str) -> NewWebhookEvent<'a> {
    NewWebhookEvent {
        workspace_id,
        event_type: "cvm.started",
        event_id,
        cvm_id: None,
        ordering,
        correlation_id: None,
        recipient: Recipient::Subscribers,
        data: "{}",
    }
}

async fn happens(store: &Store, event: &NewWebhookEvent<'_>, now_ms: i64) -> i64 {
    let mut change = store.change().await.unwrap();
    let id = change.insert_webhook_event(event, now_ms).await.unwrap();
    change.commit().await.unwrap();
    id
}

fn stretch(now_ms: i64) -> Stretch<'static> {
    Stretch { after: 0, webhooks: 10, of_each: 10, without: &[], now_ms, lease_until_ms: now_ms + 100 }
}

async fn take_all(store: &Store, now_ms: i64) -> Vec<TakenDelivery> {
    let all = |candidates: &[Candidate]| candidates.iter().map(|candidate| candidate.id).collect();
    store.take_deliveries(&stretch(now_ms), all).await.unwrap().deliveries
}

fn result(taken: &TakenDelivery, status: &'static str) -> AttemptResult {
    AttemptResult {
        delivery: taken.id,
        number: taken.number,
        ended_at_ms: NOW + 1,
        outcome: if status == "success" { "success" } else { "failed" },
        status,
        due_at_ms: (status == "pending").then_some(NOW + 50),
        response_status: 500,
        error_message: "quote \" and \\ and \u{1f600}".to_owned(),
        duration_ms: 7,
        gone: None,
    }
}

const STARTED: &str = r#"["cvm.started"]"#;

#[tokio::test]
async fn webhooks_belong_to_their_workspace_and_end_with_their_secrets() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let id = webhook(&store, ground.workspace, STARTED).await;
        assert!(store.webhook(ground.workspace + 1, id).await.unwrap().is_none());
        let mut change = store.change().await.unwrap();
        let other = WebhookChange { url: Some("https://example.org/other"), ..WebhookChange::default() };
        assert!(change.update_webhook(ground.workspace + 1, id, &other, NOW).await.unwrap().is_none());
        let row = change.update_webhook(ground.workspace, id, &other, NOW + 1).await.unwrap().unwrap();
        assert_eq!((row.url.as_str(), row.name.as_deref()), ("https://example.org/other", Some("hook")));
        assert!(!change.rotate_webhook_secret(ground.workspace + 1, id, "x", NOW, NOW).await.unwrap());
        assert!(change.rotate_webhook_secret(ground.workspace, id, "new", NOW + 9, NOW).await.unwrap());
        change.commit().await.unwrap();
        let row = store.webhooks(ground.workspace).await.unwrap().remove(0);
        assert_eq!(
            (row.sealed_secret.as_str(), row.previous_sealed_secret.as_deref()),
            ("new", Some("sealed"))
        );
        assert!(!format!("{row:?}").contains("example.org") && !format!("{row:?}").contains("new"));

        let mut change = store.change().await.unwrap();
        assert_eq!(change.forget_previous_secrets(NOW + 8, 10).await.unwrap(), 0);
        assert_eq!(change.forget_previous_secrets(NOW + 9, 10).await.unwrap(), 1);
        assert!(!change.delete_webhook(ground.workspace + 1, id, NOW).await.unwrap());
        assert!(change.delete_webhook(ground.workspace, id, NOW).await.unwrap());
        assert!(!change.delete_webhook(ground.workspace, id, NOW).await.unwrap());
        assert_eq!(change.count_webhooks(ground.workspace).await.unwrap(), 0);
        assert_eq!(change.delete_forgotten_webhooks(10).await.unwrap(), 1);
        change.commit().await.unwrap();
        assert!(store.webhook(ground.workspace, id).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn deliveries_of_one_order_come_one_after_the_other() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        webhook(&store, ground.workspace, STARTED).await;
        webhook(&store, ground.workspace, r#"["cvm.stopped"]"#).await;
        for (id, ordering) in [("evt_1", "cvm:1"), ("evt_2", "cvm:1"), ("evt_3", "cvm:2"), ("evt_4", "cvm:1")]
        {
            happens(&store, &event(ground.workspace, id, ordering), NOW).await;
        }
        let ids = |taken: &[TakenDelivery]| taken.iter().map(|row| row.event_id.clone()).collect::<Vec<_>>();
        let first = take_all(&store, NOW).await;
        assert_eq!(ids(&first), ["evt_1", "evt_3"]);
        assert!(take_all(&store, NOW).await.is_empty(), "taken once");
        let later = [result(&first[0], "pending"), result(&first[1], "success")];
        store.record_attempts(&later, NOW + 1).await.unwrap();
        assert!(take_all(&store, NOW + 49).await.is_empty(), "the first one comes before the others");
        let again = take_all(&store, NOW + 50).await;
        assert_eq!((ids(&again), again[0].number, again[0].attempts), (vec!["evt_1".to_owned()], 2, 2));
        store.record_attempts(&[result(&again[0], "failed")], NOW + 51).await.unwrap();
        let second = take_all(&store, NOW + 51).await;
        assert_eq!(ids(&second), ["evt_2"], "one that is given up makes way");
        store.record_attempts(&[result(&second[0], "success")], NOW + 52).await.unwrap();
        assert_eq!(ids(&take_all(&store, NOW + 52).await), ["evt_4"]);
        let rows = store.webhook_deliveries(first[0].webhook_id, 10, 0).await.unwrap();
        let statuses: Vec<_> = rows.iter().rev().map(|row| row.status.as_str()).collect();
        assert_eq!(statuses, ["failed", "success", "success", "pending"]);
        assert_eq!(rows[3].error_message, "quote \" and \\ and \u{1f600}");
        assert!(rows.is_sorted_by(|a, b| a.id > b.id) && rows[0].id < 1 << 53);
        let stats = store.webhook_stats(first[0].webhook_id).await.unwrap();
        assert_eq!((stats.total, stats.success_count, stats.failed_count), (4, 2, 1));
        assert_eq!((stats.avg_duration_ms, stats.max_duration_ms), (7, 7));
        assert_eq!(stats.last_delivery_at_ms, Some(NOW + 1));
        let backlog = store.webhook_backlog().await.unwrap();
        assert_eq!((backlog.count, backlog.oldest_ms), (1, Some(NOW)));
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_ran_out_leaves_an_interrupted_attempt_and_nobody_records_for_a_later_one() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        webhook(&store, ground.workspace, STARTED).await;
        happens(&store, &event(ground.workspace, "evt_1", "cvm:1"), NOW).await;
        let first = take_all(&store, NOW).await.remove(0);
        assert_eq!(store.interrupt_attempts(NOW + 99, 10, NOW + 99).await.unwrap(), 0);
        assert_eq!(store.interrupt_attempts(NOW + 100, 10, NOW + 100).await.unwrap(), 1);
        let second = take_all(&store, NOW + 100).await.remove(0);
        assert_eq!((second.number, second.attempts), (2, 1), "interrupted ones do not count");
        store.record_attempts(&[result(&first, "success")], NOW + 101).await.unwrap();
        let row = store.webhook_deliveries(first.webhook_id, 1, 0).await.unwrap().remove(0);
        assert_eq!((row.status.as_str(), row.attempts), ("pending", 1), "too late");
        store.record_attempts(&[result(&second, "success")], NOW + 101).await.unwrap();
        let attempts = store.webhook_attempts(first.id).await.unwrap();
        let outcomes: Vec<_> = attempts.iter().map(|row| row.outcome.as_deref().unwrap()).collect();
        assert_eq!(outcomes, ["interrupted", "success"]);
    })
    .await;
}

#[tokio::test]
async fn what_ends_every_process_is_given_up() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        webhook(&store, ground.workspace, STARTED).await;
        for id in ["evt_1", "evt_2"] {
            happens(&store, &event(ground.workspace, id, "cvm:1"), NOW).await;
        }
        let mut now_ms = NOW;
        loop {
            let taken = take_all(&store, now_ms).await.remove(0);
            if taken.event_id == "evt_2" {
                break;
            }
            now_ms += 100;
            assert!(taken.number <= 32);
            store.interrupt_attempts(now_ms, 10, now_ms).await.unwrap();
        }
        assert_eq!(now_ms, NOW + 3200);
    })
    .await;
}

#[tokio::test]
async fn a_webhook_that_is_disabled_or_deleted_is_told_nothing_more() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let disabled = webhook(&store, ground.workspace, STARTED).await;
        let deleted = webhook(&store, ground.workspace, STARTED).await;
        for id in ["evt_1", "evt_2"] {
            happens(&store, &event(ground.workspace, id, "cvm:1"), NOW).await;
        }
        let under_way = take_all(&store, NOW).await;
        let mut change = store.change().await.unwrap();
        let off = WebhookChange { enabled: Some(false), ..WebhookChange::default() };
        change.update_webhook(ground.workspace, disabled, &off, NOW).await.unwrap();
        change.delete_webhook(ground.workspace, deleted, NOW).await.unwrap();
        change.commit().await.unwrap();
        happens(&store, &event(ground.workspace, "evt_3", "cvm:1"), NOW).await;
        assert_eq!(store.webhook_backlog().await.unwrap().count, 0);
        // What was under way and arrived did arrive; what did not is not tried again.
        store
            .record_attempts(&[result(&under_way[0], "success"), result(&under_way[1], "pending")], NOW + 1)
            .await
            .unwrap();
        assert!(take_all(&store, NOW + 9999).await.is_empty());
        let statuses = async |id| {
            let rows = store.webhook_deliveries(id, 10, 0).await.unwrap();
            rows.into_iter().rev().map(|row| row.status).collect::<Vec<_>>()
        };
        assert_eq!(statuses(under_way[0].webhook_id).await, ["success", "failed"]);
        assert_eq!(statuses(under_way[1].webhook_id).await, ["failed", "failed"]);
    })
    .await;
}

#[tokio::test]
async fn gone_is_the_end_of_everything_that_waits() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let id = webhook(&store, ground.workspace, STARTED).await;
        for (event_id, ordering) in [("evt_1", "cvm:1"), ("evt_2", "cvm:1"), ("evt_3", "cvm:2")] {
            happens(&store, &event(ground.workspace, event_id, ordering), NOW).await;
        }
        let taken = take_all(&store, NOW).await;
        let gone = AttemptResult { gone: Some(id), ..result(&taken[0], "failed") };
        store.record_attempts(&[gone, result(&taken[1], "pending")], NOW + 1).await.unwrap();
        let row = store.webhook(ground.workspace, id).await.unwrap().unwrap();
        assert_eq!(
            (row.enabled, row.disabled_reason.as_deref()),
            (0, Some("its receiver answered 410 Gone"))
        );
        assert!(take_all(&store, NOW + 9999).await.is_empty());
        let rows = store.webhook_deliveries(id, 10, 0).await.unwrap();
        assert!(rows.iter().all(|row| row.status == "failed"), "{rows:?}");
        let mut change = store.change().await.unwrap();
        let on = WebhookChange { enabled: Some(true), ..WebhookChange::default() };
        let row = change.update_webhook(ground.workspace, id, &on, NOW).await.unwrap().unwrap();
        change.commit().await.unwrap();
        assert_eq!((row.enabled, row.disabled_reason), (1, None));
        happens(&store, &event(ground.workspace, "evt_4", "cvm:1"), NOW).await;
        assert_eq!(take_all(&store, NOW).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_dead_webhook_with_a_long_queue_costs_others_nothing() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let (dead, alive) = (
            webhook(&store, ground.workspace, STARTED).await,
            webhook(&store, ground.workspace, r#"["cvm.stopped"]"#).await,
        );
        for number in 0..40 {
            let (id, ordering) = (format!("evt_{number}"), format!("cvm:{number}"));
            happens(&store, &event(ground.workspace, &id, &ordering), NOW).await;
        }
        let stopped =
            NewWebhookEvent { event_type: "cvm.stopped", ..event(ground.workspace, "evt_x", "cvm:x") };
        happens(&store, &stopped, NOW + 1).await;
        let seen = async |stretch: Stretch<'_>| {
            let mut seen = Vec::new();
            let taken = store.take_deliveries(&stretch, |candidates| {
                seen = candidates.iter().map(|candidate| candidate.webhook_id).collect();
                Vec::new()
            });
            let next = taken.await.unwrap().next_after;
            (seen, next)
        };
        let base = stretch(NOW + 1);
        let (webhooks, next) = seen(base).await;
        assert_eq!(
            (webhooks.iter().filter(|id| **id == dead).count(), webhooks.contains(&alive)),
            (10, true)
        );
        assert_eq!(next, None);
        assert_eq!(seen(Stretch { without: &[dead], ..base }).await.0, [alive]);
        assert_eq!(seen(Stretch { webhooks: 1, ..base }).await.1, Some(dead));
        assert_eq!(seen(Stretch { after: dead, ..base }).await.0, [alive]);
        assert!(seen(stretch(NOW - 1)).await.0.is_empty(), "nothing is due yet");
    })
    .await;
}

#[tokio::test]
async fn what_is_old_or_too_much_is_forgotten_oldest_first() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let id = webhook(&store, ground.workspace, STARTED).await;
        for number in 0..5 {
            let event_id = format!("evt_{number}");
            happens(&store, &event(ground.workspace, &event_id, &event_id), NOW + number).await;
        }
        let beyond = store.events_beyond(3).await.unwrap();
        assert_eq!(beyond.len(), 1);
        let mut change = store.change().await.unwrap();
        let (workspace, last) = beyond[0];
        assert_eq!(change.delete_webhook_events_up_to(workspace, last, 1).await.unwrap(), 1);
        assert_eq!(change.delete_webhook_events_up_to(workspace, last, 9).await.unwrap(), 1);
        change.commit().await.unwrap();
        assert!(store.events_beyond(3).await.unwrap().is_empty());
        let left: Vec<_> = store.events_after(ground.workspace, 0, 9).await.unwrap();
        assert_eq!(left.first().map(|event| event.event_id.as_str()), Some("evt_2"));

        // What nobody can tell any more ends without a request.
        let taken = take_all(&store, NOW + 9).await;
        assert_eq!(taken.len(), 3);
        let ended = store.webhook_deliveries(id, 9, 3).await.unwrap();
        assert!(ended.iter().all(|row| row.status == "failed" && row.attempts == 0), "{ended:?}");

        let mut change = store.change().await.unwrap();
        assert_eq!(change.delete_old_deliveries(NOW + 99, 9).await.unwrap(), 2, "what is under way stays");
        change.commit().await.unwrap();
        let results: Vec<_> = taken.iter().map(|row| result(row, "success")).collect();
        store.record_attempts(&results, NOW).await.unwrap();
        let mut change = store.change().await.unwrap();
        assert_eq!(change.delete_old_deliveries(NOW, 9).await.unwrap(), 0);
        assert_eq!(change.delete_old_deliveries(NOW + 99, 9).await.unwrap(), 3);
        change.commit().await.unwrap();
        assert!(store.webhook_attempts(taken[0].id).await.unwrap().is_empty());
    })
    .await;
}
