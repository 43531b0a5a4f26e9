//! The process dies at every moment of every round; the next round finishes the work exactly once.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::operations::Step;
use crate::operations::tests::fake_nodes::Fault;
use crate::store::tests::{embedded, on_both};

/// Ends the round at the moment with this number, counted over the whole rollout; how many there were.
fn die_at(number: usize) -> (Observer, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let observer: Observer = Arc::new(move |_, _| {
        let now = count.fetch_add(1, Ordering::SeqCst);
        assert!(now != number, "the process dies here");
    });
    (observer, seen)
}

/// Two CVMs, both changed; the second fails if wanted, and both go back. Whether the death was reached.
async fn update(store: Store, death: usize, fails: bool) -> bool {
    let (observer, seen) = die_at(death);
    let scene = Scene::watched(store, Some(observer)).await;
    let cvms = scene.replicas(2).await;
    let id = scene.begin(&cvms, OnFailure::RollBack).await;
    if fails {
        while scene.states(id).await[0] != MemberState::Updated {
            scene.clock.advance_ms(TICK_MS);
            scene.report().await;
            let driver = Arc::clone(&scene.driver);
            let _ = tokio::spawn(async move { driver.round().await }).await;
            scene.settle().await;
            if scene.states(id).await[0] == MemberState::Updating {
                // The first one has ended well; the next boot is the second one's.
                scene.nodes.set_fault(Step::AwaitBoot, Fault::BootErrorOnce("no"));
            }
        }
    }
    let (end, expected) = if fails { (RolloutState::RolledBack, 2) } else { (RolloutState::Completed, 1) };
    scene.until(id, end).await;
    for (cvm, operations) in cvms.iter().zip([expected, 1]) {
        let now = scene.row(cvm.id).await;
        let is_new = now.compose_hash == Scene::wanted(cvm).compose_hash;
        assert_eq!((now.status, is_new), (CvmStatus::Running, !fails), "death {death}");
        assert_eq!(scene.updates_of(cvm.id).await.len(), operations, "nothing is done twice: death {death}");
    }
    scene.end().await;
    seen.load(Ordering::SeqCst) > death
}

async fn on_file<F: Future<Output = bool>>(run: impl FnOnce(Store) -> F) -> bool {
    let dir = tempfile::tempdir().unwrap();
    run(embedded(dir.path()).await).await
}

#[tokio::test]
async fn an_update_survives_a_death_at_every_moment() {
    for fails in [false, true] {
        let mut death = 0;
        while on_file(|store| update(store, death, fails)).await {
            death += 1;
        }
        assert!(death >= 8, "three rounds have two moments each, and settle two members: {death}");
    }
}

#[tokio::test]
async fn deaths_on_both_engines() {
    for death in [0, 2, 4, 7] {
        on_both(|store| async move {
            assert!(update(store, death, false).await);
        })
        .await;
    }
}

/// A replica is moved. Whether the death was reached.
async fn drain(store: Store, death: usize) -> bool {
    let (observer, seen) = die_at(death);
    let mut scene = Scene::watched(store, Some(observer)).await;
    let beta = scene.add_node("beta").await;
    let old = scene.cvm(5, "web-0", scene.ground.node).await;
    scene.cvm(5, "web-1", beta).await;
    scene.rollouts.drain(scene.ground.node, scene.ground.user).await.unwrap();
    for _ in 0..MAX_TICKS {
        scene.tick().await;
        if scene.row(old.id).await.deleted_at_ms.is_some() {
            break;
        }
    }
    scene.tick().await;
    let left = scene.store.cvms_of_app(APP).await.unwrap();
    let nodes: Vec<_> = left.iter().map(|cvm| (cvm.node_id, cvm.status)).collect();
    assert_eq!(nodes, [(beta, CvmStatus::Running), (beta, CvmStatus::Running)], "death {death}");
    let drain = scene.store.drain_of_node(scene.ground.node).await.unwrap().unwrap();
    assert_eq!(scene.states(drain.id).await, [MemberState::Moved]);
    scene.end().await;
    seen.load(Ordering::SeqCst) > death
}

#[tokio::test]
async fn a_drain_survives_a_death_at_every_moment() {
    let mut death = 0;
    while on_file(|store| drain(store, death)).await {
        death += 1;
    }
    assert!(death >= 11, "four rounds, three of which settle something, and a replica: {death}");
}
