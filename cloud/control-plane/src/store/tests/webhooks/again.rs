//! What is sent again because somebody asks.

use super::*;

#[tokio::test]
async fn events_are_sent_again_at_once_under_a_new_id_that_names_the_first() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let id = webhook(&store, ground.workspace, STARTED).await;
        happens(&store, &event(ground.workspace, "evt_1", "cvm:1"), NOW).await;
        let mut change = store.change().await.unwrap();
        let resend = async |change: &mut Change, workspace, event_id, new| {
            change.resend(workspace, id, event_id, new, NOW).await.unwrap()
        };
        assert_eq!(resend(&mut change, ground.workspace + 1, "evt_1", "evt_2").await, Resent::Unknown);
        assert_eq!(resend(&mut change, ground.workspace, "evt_9", "evt_2").await, Resent::Unknown);
        for (event_id, new) in [("evt_1", "evt_2"), ("evt_2", "evt_3")] {
            let Resent::Sent(row) = resend(&mut change, ground.workspace, event_id, new).await else {
                panic!("{event_id}")
            };
            assert_eq!((row.event_id.as_str(), row.original_event_id.as_str()), (new, "evt_1"));
        }
        change.commit().await.unwrap();
        assert_eq!(take_all(&store, NOW).await.len(), 3, "it waits for nothing");
        let mut change = store.change().await.unwrap();
        assert_eq!(change.delete_old_webhook_events(NOW, 10).await.unwrap(), 1);
        assert_eq!(resend(&mut change, ground.workspace, "evt_1", "evt_4").await, Resent::Forgotten);
        let off = WebhookChange { enabled: Some(false), ..WebhookChange::default() };
        change.update_webhook(ground.workspace, id, &off, NOW).await.unwrap();
        assert_eq!(resend(&mut change, ground.workspace, "evt_1", "evt_4").await, Resent::Disabled);
    })
    .await;
}

#[tokio::test]
async fn a_test_is_told_to_one_webhook_and_did_not_happen() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let id = webhook(&store, ground.workspace, STARTED).await;
        webhook(&store, ground.workspace, STARTED).await;
        let mut change = store.change().await.unwrap();
        let test = ("cvm.started", "evt_t", r#"{"test":true}"#);
        assert!(change.send_test(ground.workspace + 1, id, test, NOW).await.unwrap().is_none());
        assert!(change.send_test(ground.workspace, id, test, NOW).await.unwrap().is_some());
        change.commit().await.unwrap();
        let taken = take_all(&store, NOW).await;
        assert_eq!((taken.len(), taken[0].webhook_id), (1, id));
        assert_eq!(taken[0].data.as_deref(), Some(test.2));
        assert!(store.events_after(ground.workspace, 0, 10).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn the_events_of_a_time_are_sent_again_in_their_order() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        for (number, ordering) in [(1, "cvm:1"), (2, "cvm:1"), (3, "cvm:2"), (4, "cvm:1")] {
            let id = format!("evt_{number}");
            happens(&store, &event(ground.workspace, &id, ordering), NOW + number).await;
        }
        let stopped =
            NewWebhookEvent { event_type: "cvm.stopped", ..event(ground.workspace, "evt_x", "cvm:x") };
        happens(&store, &stopped, NOW + 2).await;
        let id = webhook(&store, ground.workspace, STARTED).await;
        let range = ReplayRange { from_ms: NOW + 2, until_ms: NOW + 5, after: 0, only_failed: false };
        let mut change = store.change().await.unwrap();
        assert_eq!(change.replay(ground.workspace + 1, id, range, NOW).await.unwrap(), None);
        let replayed = change.replay(ground.workspace, id, range, NOW).await.unwrap().unwrap();
        change.commit().await.unwrap();
        assert_eq!((replayed.count, replayed.next_after), (3, None));
        let mut order = Vec::new();
        loop {
            let taken = take_all(&store, NOW).await;
            if taken.is_empty() {
                break;
            }
            order.extend(taken.iter().map(|row| row.event_id.clone()));
            let results: Vec<_> = taken.iter().map(|row| result(row, "success")).collect();
            store.record_attempts(&results, NOW).await.unwrap();
        }
        assert_eq!(order, ["evt_2", "evt_3", "evt_4"]);
        let rows = store.webhook_deliveries(id, 10, 0).await.unwrap();
        assert!(rows.iter().all(|row| row.original_event_id == row.event_id));
    })
    .await;
}
