//! Changes at the same time, and clocks that do not agree.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_changes_make_one_chain() {
    const WRITERS: u8 = 8;
    const EACH: usize = 6;
    on_both(|store| async move {
        let (ground, clock) = (ground(&store).await, clock());
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let cvm = cvm(&store, &ground, writer + 1, &format!("writer-{writer}")).await;
            let (store, scope) = (store.clone(), scope(&ground, "rename_cvm", &clock));
            let work = async move {
                for round in 0..EACH {
                    rename(&store, cvm.id, &format!("writer-{writer}-{round}")).await;
                }
            };
            tasks.spawn(audit::within(scope, work));
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        let found = records(&store, ground.workspace).await;
        assert_eq!(found.len(), usize::from(WRITERS) * EACH);
        let end = checked(&found).unwrap();
        assert_eq!(store.audit_head(ground.workspace).await.unwrap(), (end.sequence, end.hash));
    })
    .await;
}

#[tokio::test]
async fn time_never_goes_back_along_a_chain() {
    on_both(|store| async move {
        let (ground, clock) = (ground(&store).await, clock());
        let cvm = cvm(&store, &ground, 1, "a-name").await;
        for (name, by_ms) in [("b-name", -5_000), ("c-name", 9_000), ("d-name", 0)] {
            audit::within(scope(&ground, "rename_cvm", &clock), rename(&store, cvm.id, name)).await;
            clock.advance_ms(by_ms);
        }
        let found = records(&store, ground.workspace).await;
        let times: Vec<_> = found.iter().map(|record| record.time.as_millisecond() - NOW).collect();
        assert_eq!(times, [0, 0, 4_000]);
        assert!(checked(&found).is_ok());
    })
    .await;
}

/// What a record says was there before is what the record before left, whoever was faster.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_waits_for_another_change_begins_with_what_that_one_left() {
    const WRITERS: usize = 6;
    const EACH: usize = 5;
    on_both(|store| async move {
        let (ground, clock) = (ground(&store).await, clock());
        let cvm = cvm(&store, &ground, 1, "a-name").await;
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let renaming = scope(&ground, "rename_cvm", &clock);
            let (switched, node, clock) = (store.clone(), ground.node, clock.clone());
            tasks.spawn(async move {
                for round in 0..EACH {
                    let on = (writer + round) % 2 == 0;
                    let switch = async {
                        let mut change = switched.change().await.unwrap();
                        change.set_node_maintenance(node, on).await.unwrap();
                        change.commit().await.unwrap();
                    };
                    let operation = ("admin_set_node_maintenance", "node");
                    audit::as_system(System::Operator, operation, INSTALLATION, &clock, switch).await;
                }
            });
            let (store, id) = (store.clone(), cvm.id);
            tasks.spawn(audit::within(renaming, async move {
                for round in 0..EACH {
                    rename(&store, id, &format!("writer-{writer}-{round}")).await;
                }
            }));
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        let renamed = records(&store, ground.workspace).await;
        assert_eq!(renamed.len(), WRITERS * EACH);
        for chain in [renamed, records(&store, INSTALLATION).await] {
            assert!(!chain.is_empty());
            for (earlier, later) in chain.iter().zip(chain.iter().skip(1)) {
                assert_eq!(earlier.after, later.before, "{} of {}", later.sequence, later.operation);
                assert_ne!(later.before, later.after, "{} of {}", later.sequence, later.operation);
            }
        }
    })
    .await;
}

/// What was only locked does not hide what was changed.
#[tokio::test]
async fn a_record_is_rather_about_what_was_meant_than_about_what_was_locked() {
    on_both(|store| async move {
        let (ground, clock) = (ground(&store).await, clock());
        let cvm = cvm(&store, &ground, 1, "a-name").await;
        let work = async {
            let mut change = store.change().await.unwrap();
            change.lock_cvm(cvm.id).await.unwrap().unwrap();
            change.set_node_maintenance(ground.node, true).await.unwrap();
            change.commit().await.unwrap();
        };
        audit::within(scope(&ground, "patch_cvm", &clock), work).await;
        let found = records(&store, ground.workspace).await;
        assert_eq!((found.len(), found[0].target.kind.as_str()), (1, "node"));
        assert_ne!(found[0].before, found[0].after);
    })
    .await;
}
