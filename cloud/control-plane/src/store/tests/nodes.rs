//! Nodes and invitations.

use super::*;

#[tokio::test]
async fn join_tokens_serve_one_node() {
    on_both(|store| async move {
        let mut change = store.change().await.unwrap();
        change.insert_join_token("hash", NOW + 10, NOW).await.unwrap();
        assert!(change.use_join_token("hash", "alpha", NOW).await.unwrap());
        assert!(change.use_join_token("hash", "alpha", NOW).await.unwrap(), "a lost answer is repeated");
        assert!(!change.use_join_token("hash", "beta", NOW).await.unwrap());
        assert!(!change.use_join_token("hash", "alpha", NOW + 10).await.unwrap());
        assert!(!change.use_join_token("other", "alpha", NOW).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_node_with_cvms_stays_and_its_name_returns_after_removal() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let row = cvm(&store, &ground, 1, "web-1").await;
        let mut change = store.change().await.unwrap();
        assert!(!change.delete_node(ground.node, NOW).await.unwrap());
        change.delete_cvm(&row, NOW).await.unwrap();
        assert!(change.delete_node(ground.node, NOW).await.unwrap());
        assert_ne!(change.insert_node("alpha", NOW).await.unwrap(), ground.node);
        change.commit().await.unwrap();
        assert!(store.node(ground.node).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_not_removed_while_a_cvm_comes_to_it() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let vm_uuid = Uuid::from_bytes([1; 16]);
        let new = NewCvm::of_provision(&provision(&ground, 1, "web-1"), ground.user, vm_uuid, None);
        let mut creating = store.change().await.unwrap();
        creating.lock_node(ground.node).await.unwrap();
        creating.insert_cvm(&new, NOW).await.unwrap();
        let (other, node) = (store.clone(), ground.node);
        let mut removing = tokio::spawn(async move {
            let mut change = other.change().await.unwrap();
            let removed = change.delete_node(node, NOW).await.unwrap();
            change.commit().await.unwrap();
            removed
        });
        let waits = tokio::time::timeout(Duration::from_millis(200), &mut removing).await;
        assert!(waits.is_err(), "the removal waits for the creation");
        creating.commit().await.unwrap();
        assert!(!removing.await.unwrap());
        assert!(store.node(node).await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn an_invitation_ends_with_the_node_that_used_it() {
    on_both(|store| async move {
        let mut change = store.change().await.unwrap();
        change.insert_join_token("hash", NOW + 10, NOW).await.unwrap();
        assert!(change.use_join_token("hash", "alpha", NOW).await.unwrap());
        let node = change.insert_node("alpha", NOW).await.unwrap();
        assert!(change.delete_node(node, NOW).await.unwrap());
        assert!(!change.use_join_token("hash", "alpha", NOW).await.unwrap());
        change.insert_node("alpha", NOW).await.unwrap();
        change.insert_join_token("other", NOW + 10, NOW).await.unwrap();
        assert!(!change.use_join_token("other", "alpha", NOW).await.unwrap(), "the name is another node's");
    })
    .await;
}
