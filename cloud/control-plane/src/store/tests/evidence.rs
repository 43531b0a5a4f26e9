//! Quotes, platforms, and the lists of registered ones.

use super::*;

fn quote(checksum: &str, uploaded_at_ms: i64, verified: i64) -> QuoteRow {
    QuoteRow {
        checksum: checksum.to_owned(),
        quote: "AAAA".to_owned(),
        uploaded_at_ms,
        verified_at_ms: uploaded_at_ms,
        verified,
        verdict: "{}".to_owned(),
        collateral_digest: None,
    }
}

#[tokio::test]
async fn a_quote_keeps_its_upload_and_takes_new_verdicts() {
    on_both(|store| async move {
        let mut change = store.change().await.unwrap();
        change.put_collateral("c1", "{}").await.unwrap();
        let first = change.put_quote(&quote("q1", NOW, 0)).await.unwrap();
        let again = QuoteRow { collateral_digest: Some("c1".to_owned()), ..quote("q1", NOW + 5, 1) };
        let second = change.put_quote(&again).await.unwrap();
        change.commit().await.unwrap();
        assert_eq!(first, quote("q1", NOW, 0));
        assert_eq!(second, QuoteRow { uploaded_at_ms: NOW, ..again });
        assert_eq!(store.quote("q1").await.unwrap(), Some(second));
        assert_eq!(store.collateral("c1").await.unwrap().as_deref(), Some("{}"));
        assert_eq!(store.quote("q2").await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn only_the_newest_quotes_and_the_collateral_in_use_are_kept() {
    on_both(|store| async move {
        let mut change = store.change().await.unwrap();
        for (index, digest) in ["c0", "c1", "c2", "c3"].into_iter().enumerate() {
            change.put_collateral(digest, "{}").await.unwrap();
            let at_ms = NOW + i64::try_from(index).unwrap();
            let row = QuoteRow {
                collateral_digest: Some(digest.to_owned()),
                ..quote(&format!("q{index}"), at_ms, 1)
            };
            change.put_quote(&row).await.unwrap();
        }
        assert_eq!(change.delete_old_quotes(2, 1).await.unwrap(), 1, "no more than the limit");
        assert_eq!(change.delete_old_quotes(2, 100).await.unwrap(), 1);
        assert_eq!(change.delete_old_quotes(2, 100).await.unwrap(), 0);
        assert_eq!(change.delete_unused_collaterals(100).await.unwrap(), 2);
        change.commit().await.unwrap();
        let listed = store.recent_quotes(10, 0).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|row| row.checksum.as_str()).collect();
        assert_eq!(listed, ["q3", "q2"]);
        assert_eq!(store.recent_quotes(1, 1).await.unwrap()[0].checksum, "q2");
        assert!(store.collateral("c0").await.unwrap().is_none());
        assert!(store.collateral("c3").await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn the_platforms_of_a_node_are_remembered() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let device = |id: &str, at_ms| DeviceRow {
            node_id: ground.node,
            device_id: id.to_owned(),
            ppid: format!("p{id}"),
            fmspc: "f".to_owned(),
            trust_root: "root".to_owned(),
            tcb_status: "UpToDate".to_owned(),
            first_verified_at_ms: at_ms,
            last_verified_at_ms: at_ms,
        };
        assert_eq!(store.device_of_node(ground.node).await.unwrap(), None);
        let mut change = store.change().await.unwrap();
        change.put_device(&device("b", NOW)).await.unwrap();
        change.put_device(&device("a", NOW + 1)).await.unwrap();
        change.put_device(&device("b", NOW + 2)).await.unwrap();
        change.commit().await.unwrap();
        let current = store.device_of_node(ground.node).await.unwrap().unwrap();
        assert_eq!((current.device_id.as_str(), current.first_verified_at_ms), ("b", NOW));
        let all: Vec<_> = store.devices().await.unwrap().into_iter().map(|row| row.device_id).collect();
        assert_eq!(all, ["a", "b"]);
        let mut change = store.change().await.unwrap();
        assert!(change.delete_node(ground.node, NOW).await.unwrap());
        change.commit().await.unwrap();
        assert!(store.devices().await.unwrap().is_empty(), "those of removed nodes are not listed");
    })
    .await;
}

#[tokio::test]
async fn a_certificate_says_less_than_evidence() {
    on_both(|store| async move {
        let ground = ground(&store).await;
        let device = |id: &str, status: &str, at_ms| DeviceRow {
            node_id: ground.node,
            device_id: id.to_owned(),
            ppid: "p".to_owned(),
            fmspc: "f".to_owned(),
            trust_root: "root".to_owned(),
            tcb_status: status.to_owned(),
            first_verified_at_ms: at_ms,
            last_verified_at_ms: at_ms,
        };
        let certified = |id: &str, at_ms| device(id, "certified", at_ms);
        let note = async |row: DeviceRow| {
            let mut change = store.change().await.unwrap();
            change.note_certified_device(&row).await.unwrap();
            change.commit().await.unwrap();
        };
        note(certified("a", NOW)).await;
        note(certified("a", NOW + 1)).await;
        assert_eq!(store.devices().await.unwrap(), [certified("a", NOW)], "the first one stays");
        let mut change = store.change().await.unwrap();
        change.put_device(&device("a", "UpToDate", NOW + 2)).await.unwrap();
        change.commit().await.unwrap();
        note(certified("a", NOW + 3)).await;
        let seen = DeviceRow { first_verified_at_ms: NOW, ..device("a", "UpToDate", NOW + 2) };
        assert_eq!(store.device_of_node(ground.node).await.unwrap(), Some(seen));
        note(certified("b", NOW + 4)).await;
        assert_eq!(store.devices().await.unwrap().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn no_older_list_of_platforms_follows_a_newer_one() {
    on_both(|store| async move {
        let mut change = store.change().await.unwrap();
        assert!(change.accept_platform_list("key", 5, NOW).await.unwrap());
        assert!(change.accept_platform_list("key", 5, NOW).await.unwrap());
        assert!(!change.accept_platform_list("key", 4, NOW).await.unwrap());
        assert!(change.accept_platform_list("key", 6, NOW).await.unwrap());
        assert!(change.accept_platform_list("other", 1, NOW).await.unwrap());
        change.commit().await.unwrap();
        assert_eq!(store.platform_list_serial("key").await.unwrap(), Some(6));
        assert_eq!(store.platform_list_serial("none").await.unwrap(), None);
    })
    .await;
}
