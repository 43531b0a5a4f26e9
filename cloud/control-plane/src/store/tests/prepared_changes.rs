//! Changes that wait for approval.

use super::*;

/// Gives a CVM the keys of a service, which it cannot get otherwise once it exists.
pub(crate) async fn put_under_kms(store: &Store, cvm: i64, kms: i64) {
    let mut change = store.change().await.unwrap();
    sqlx::query("UPDATE cvms SET kms_id = $2 WHERE id = $1")
        .bind(cvm)
        .bind(kms)
        .execute(&mut *change.transaction)
        .await
        .unwrap();
    change.commit().await.unwrap();
}

/// A CVM is deleted.
pub(crate) async fn vanish(store: &Store, cvm: i64) {
    let mut change = store.change().await.unwrap();
    sqlx::query("UPDATE cvms SET deleted_at_ms = 1, live_name = NULL, operation_id = NULL WHERE id = $1")
        .bind(cvm)
        .execute(&mut *change.transaction)
        .await
        .unwrap();
    change.commit().await.unwrap();
}

async fn kept(store: &Store, ground: &Ground, cvm: &CvmRow, kind: PreparedKind, request: &str) -> i64 {
    let mut change = store.change().await.unwrap();
    let id = change.next_prepared_change().await.unwrap();
    let new = NewPreparedChange {
        id,
        kind,
        cvm_id: cvm.id,
        workspace_id: ground.workspace,
        app_id: cvm.app_id,
        compose_hash: cvm.compose_hash,
        device_id: &"ab".repeat(32),
        request,
        user_id: ground.user,
        token_hash: &format!("hash-{id}"),
        expires_at_ms: NOW + 10,
    };
    change.insert_prepared_change(&new, NOW).await.unwrap();
    change.commit().await.unwrap();
    id
}

#[tokio::test]
async fn one_change_of_a_kind_waits_for_a_cvm() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let cvm = cvm(&store, &ground, 1, "web-1").await;
        let (update, replica) = (PreparedKind::Update, PreparedKind::Replica);
        let first = kept(&store, &ground, &cvm, update, "planted-words").await;
        let other = kept(&store, &ground, &cvm, replica, "{}").await;
        let row = store.pending_change(cvm.id, update, NOW).await.unwrap().unwrap();
        assert_eq!((row.id, row.request.as_str()), (first, "planted-words"));
        assert!(!format!("{row:?}").contains("planted"));
        assert!(store.pending_change(cvm.id, update, NOW + 10).await.unwrap().is_none());

        let mut change = store.change().await.unwrap();
        assert_eq!(change.count_pending_changes(ground.workspace, NOW).await.unwrap(), 2);
        change.supersede_prepared_changes(cvm.id, update, NOW).await.unwrap();
        assert_eq!(change.count_pending_changes(ground.workspace, NOW).await.unwrap(), 1);
        change.commit().await.unwrap();
        let ended = store.prepared_change_by_token(&format!("hash-{first}"), NOW).await.unwrap().unwrap();
        assert_eq!((ended.state, ended.request.as_str()), (PreparedState::Superseded, ""));
        // Only the last one whose place was taken is remembered.
        let next = kept(&store, &ground, &cvm, update, "{}").await;
        let mut change = store.change().await.unwrap();
        change.supersede_prepared_changes(cvm.id, update, NOW).await.unwrap();
        change.commit().await.unwrap();
        let known = async |id: i64| {
            store.prepared_change_by_token(&format!("hash-{id}"), NOW).await.unwrap().map(|row| row.state)
        };
        assert_eq!((known(first).await, known(next).await), (None, Some(PreparedState::Superseded)));
        let open = store.open_changes_of_app(cvm.app_id, ground.workspace, NOW, 10).await.unwrap();
        assert_eq!(open.iter().map(|row| (row.id, row.kind)).collect::<Vec<_>>(), [(other, replica)]);
        assert!(
            store.open_changes_of_app(cvm.app_id, ground.workspace + 1, NOW, 10).await.unwrap().is_empty()
        );
    })
    .await;
}

#[tokio::test]
async fn a_change_is_committed_once_and_in_its_time() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let cvm = cvm(&store, &ground, 1, "web-1").await;
        let id = kept(&store, &ground, &cvm, PreparedKind::Update, "{}").await;
        let operation = Uuid::from_bytes([7; 16]);
        let mut change = store.change().await.unwrap();
        assert!(!change.commit_prepared_change(id, None, operation, NOW + 10).await.unwrap());
        assert!(change.commit_prepared_change(id, Some("0xab"), operation, NOW + 9).await.unwrap());
        assert!(!change.commit_prepared_change(id, None, operation, NOW + 9).await.unwrap());
        change.commit().await.unwrap();
        let row = store.prepared_change_by_token(&format!("hash-{id}"), NOW).await.unwrap().unwrap();
        assert_eq!((row.state, row.transaction_hash.as_deref()), (PreparedState::Committed, Some("0xab")));
        assert_eq!((row.correlation_id, row.request.as_str()), (Some(operation.to_string()), ""));

        // Another way to the same document ends what waits for it; so does the end of the CVM.
        let again = kept(&store, &ground, &cvm, PreparedKind::Update, "{}").await;
        let mut change = store.change().await.unwrap();
        change.end_prepared_updates(cvm.id, cvm.compose_hash, operation, NOW).await.unwrap();
        change.commit().await.unwrap();
        let row = store.prepared_change_by_token(&format!("hash-{again}"), NOW).await.unwrap().unwrap();
        assert_eq!(row.state, PreparedState::Committed);
        let mut change = store.change().await.unwrap();
        assert_eq!(change.delete_expired_prepared_changes(NOW + 9, 10).await.unwrap(), 0);
        assert_eq!(change.delete_expired_prepared_changes(NOW + 10, 1).await.unwrap(), 1);
        change.delete_cvm(&cvm, NOW).await.unwrap();
        assert_eq!(change.delete_expired_prepared_changes(NOW + 10, 10).await.unwrap(), 0);
        change.commit().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn events_are_told_in_their_order_and_to_their_workspace() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let cvm = cvm(&store, &ground, 1, "web-1").await;
        let mut change = store.change().await.unwrap();
        let event = |event_type, cvm_id| NewWebhookEvent {
            workspace_id: ground.workspace,
            event_type,
            event_id: "evt_0000000000000001",
            cvm_id,
            ordering: "cvm:1",
            correlation_id: None,
            recipient: Recipient::Subscribers,
            data: "{}",
        };
        let first = change.insert_webhook_event(&event("a", Some(cvm.id)), NOW).await.unwrap();
        let second = change.insert_webhook_event(&event("b", None), NOW).await.unwrap();
        change.commit().await.unwrap();
        let kinds = async |workspace, after| {
            let events = store.events_after(workspace, after, 10).await.unwrap();
            events.into_iter().map(|event| event.event_type).collect::<Vec<_>>()
        };
        assert_eq!(kinds(ground.workspace, 0).await, ["a", "b"]);
        assert_eq!(kinds(ground.workspace, first).await, ["b"]);
        assert!(kinds(ground.workspace, second).await.is_empty() && kinds(99, 0).await.is_empty());
        let mut change = store.change().await.unwrap();
        assert_eq!(change.delete_old_webhook_events(NOW - 1, 10).await.unwrap(), 0);
        assert_eq!(change.delete_old_webhook_events(NOW, 1).await.unwrap(), 1);
        change.commit().await.unwrap();
        assert_eq!(kinds(ground.workspace, 0).await, ["b"]);
    })
    .await;
}

/// Forgets which devices a node was.
pub(crate) async fn forget_devices(store: &Store, node: i64) {
    let mut change = store.change().await.unwrap();
    sqlx::query("DELETE FROM node_devices WHERE node_id = $1")
        .bind(node)
        .execute(&mut *change.transaction)
        .await
        .unwrap();
    change.commit().await.unwrap();
}

/// Lets so many changes wait in the workspace of a CVM. Which CVMs they are about does not matter: the database
/// keeps one of each kind for each, so that they get kinds of their own.
pub(crate) async fn fill(store: &Store, cvm: &CvmRow, count: i64) {
    let mut change = store.change().await.unwrap();
    for number in 0..count {
        sqlx::query(
            "INSERT INTO prepared_changes (id, kind, cvm_id, workspace_id, app_id, compose_hash, device_id, \
             request, state, user_id, created_at_ms, expires_at_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, '', '', 'pending', $7, 0, $8)",
        )
        .bind(1_000 + number)
        .bind(format!("kind-{number}"))
        .bind(cvm.id)
        .bind(cvm.workspace_id)
        .bind(cvm.app_id.to_string())
        .bind(cvm.compose_hash.to_string())
        .bind(cvm.user_id)
        .bind(i64::MAX)
        .execute(&mut *change.transaction)
        .await
        .unwrap();
    }
    change.commit().await.unwrap();
}
