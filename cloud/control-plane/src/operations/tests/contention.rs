//! Many calls and many workers at the same moment, as several replicas make them.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const AT_ONCE: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creating_at_the_same_moment_gives_one_cvm() {
    on_both(|store| async move {
        let bench = Arc::new(Bench::new(store).await);
        let calls: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let bench = Arc::clone(&bench);
                tokio::spawn(async move { bench.create().await.unwrap().id })
            })
            .collect();
        let mut ids = Vec::new();
        for call in calls {
            ids.push(call.await.unwrap());
        }
        ids.dedup();
        assert_eq!(ids.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_at_the_same_moment_is_one_deletion() {
    on_both(|store| async move {
        let bench = Arc::new(Bench::new(store).await);
        bench.nodes.set_fault(Step::AwaitBoot, Fault::Hang);
        let cvm = bench.create().await.unwrap();
        let calls: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (bench, cvm) = (Arc::clone(&bench), cvm.clone());
                tokio::spawn(async move { bench.request(&cvm, OperationKind::Delete).await })
            })
            .collect();
        for call in calls {
            // Whoever comes when it is done finds nothing.
            assert!(matches!(call.await.unwrap(), Ok(_) | Err(RequestError::NotFound)));
        }
        bench.at_rest(&cvm).await;
        assert_eq!(bench.operations(&cvm).await.len(), 2, "the creation and one deletion");
    })
    .await;
}

#[tokio::test]
async fn a_cvm_that_is_being_removed_is_not_created_again() {
    on_both(|store| async move {
        let bench = Bench::without_workers(store).await;
        let cvm = bench.create().await.unwrap();
        bench.request(&cvm, OperationKind::Delete).await.unwrap();
        assert!(matches!(bench.create().await, Err(CreateError::BeingRemoved)));
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_lost_its_lease_does_not_go_on_beside_the_next_one() {
    on_both(|store| async move {
        let mut bench = Bench::without_workers(store).await;
        let waits = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&waits);
        let observer: Observer = Arc::new(move |_, step, boundary| {
            if (step, boundary) == (Step::AwaitBoot, Boundary::Before) {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        });
        bench.start_workers(Some(observer)).await;
        bench.nodes.set_fault(Step::AwaitBoot, Fault::Hang);
        let cvm = bench.create().await.unwrap();
        for takes in 1..=3 {
            while waits.load(Ordering::SeqCst) < takes {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            // The same process takes the operation up again while its first task still works on it.
            if takes < 3 {
                bench.store.expire_all_leases().await.unwrap();
                bench.wake.notify_one();
            }
        }
        bench.nodes.boot(cvm.vm_uuid);
        assert_eq!(bench.at_rest(&cvm).await.status, CvmStatus::Running);
        // What the others do now, they do before this has ended.
        bench.stop_workers().await;
        let events = bench.events(&bench.operations(&cvm).await[0]).await;
        assert_eq!(events.len(), 6, "no step is recorded twice: {events:?}");
    })
    .await;
}
