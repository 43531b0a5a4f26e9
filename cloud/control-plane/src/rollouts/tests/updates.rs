//! One change over several CVMs.

use super::*;
use crate::operations::tests::fake_nodes::Fault;
use crate::operations::{MapPortsError, OperationStatus, RequestError, Step};
use crate::store::ObservedVm;
use crate::store::tests::{on_both, set_policy};

use MemberState::{Failed, Gone, Pending, Restored, Updated, Updating};

async fn has_new(scene: &Scene, cvm: &CvmRow) -> bool {
    scene.row(cvm.id).await.compose_hash == Scene::wanted(cvm).compose_hash
}

#[tokio::test]
async fn every_replica_gets_the_change_one_after_the_other() {
    on_both(|store| async move {
        let scene = Scene::new(store).await;
        let cvms = scene.replicas(3).await;
        let power_ons = scene.nodes.power_ons();
        let id = scene.begin(&cvms, OnFailure::RollBack).await;
        for cvm in &cvms {
            assert!(!has_new(&scene, cvm).await, "nothing begins with the answer");
        }
        scene.until(id, RolloutState::Completed).await;
        for cvm in &cvms {
            assert!(has_new(&scene, cvm).await);
            assert_eq!(scene.row(cvm.id).await.status, CvmStatus::Running);
        }
        assert_eq!(scene.nodes.power_ons(), power_ons + 3);
        // No operation began before the one before it had ended.
        let mut spans = Vec::new();
        for cvm in &cvms {
            let operations = scene.updates_of(cvm.id).await;
            assert_eq!(operations.len(), 1, "one operation each");
            spans.push((operations[0].started_at_ms, operations[0].completed_at_ms.unwrap()));
        }
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");
        let mut change = scene.store.change().await.unwrap();
        assert!(change.member_configuration(id, 0).await.unwrap().is_none(), "what is done is forgotten");
        drop(change);
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn no_more_than_wanted_are_changed_at_once() {
    on_both(|store| async move {
        let scene = Scene::new(store).await;
        let cvms = scene.replicas(3).await;
        scene.nodes.set_fault(Step::AwaitBoot, Fault::Hang);
        let new = NewUpdate { max_unavailable: 2, ..scene.update(&cvms, OnFailure::RollBack) };
        let id = scene.rollouts.update(&new).await.unwrap();
        for _ in 0..4 {
            scene.clock.advance_ms(TICK_MS);
            scene.report().await;
            while scene.driver.round().await.unwrap() {}
        }
        assert_eq!(scene.states(id).await, [Updating, Updating, Pending]);
        scene.nodes.clear_faults();
        for _ in 0..4000 {
            // A guest that hung comes up whenever its VM is started.
            for cvm in &cvms {
                scene.nodes.boot(cvm.vm_uuid);
            }
            if scene.row(cvms[0].id).await.operation_id.is_none()
                && scene.row(cvms[1].id).await.operation_id.is_none()
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        scene.until(id, RolloutState::Completed).await;
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn one_that_is_off_gets_the_change_and_stays_off() {
    on_both(|store| async move {
        let scene = Scene::new(store).await;
        let cvms = scene.replicas(2).await;
        scene.power(cvms[0].id, OperationKind::PowerOff).await;
        let power_ons = scene.nodes.power_ons();
        let id = scene.begin(&cvms, OnFailure::RollBack).await;
        scene.until(id, RolloutState::Completed).await;
        assert_eq!(scene.row(cvms[0].id).await.status, CvmStatus::Stopped);
        assert!(has_new(&scene, &cvms[0]).await && has_new(&scene, &cvms[1]).await);
        assert_eq!(scene.nodes.power_ons(), power_ons + 1);
        scene.end().await;
    })
    .await;
}

/// Brings a rollout over three replicas to the point where the second one fails.
async fn failing_at_the_second(scene: &Scene, on_failure: OnFailure) -> (Vec<CvmRow>, i64) {
    let cvms = scene.replicas(3).await;
    let id = scene.begin(&cvms, on_failure).await;
    while scene.states(id).await[0] != MemberState::Updating {
        assert!(scene.driver.round().await.unwrap());
    }
    scene.settle().await;
    scene.nodes.set_fault(Step::AwaitBoot, Fault::BootErrorOnce("no such image"));
    (cvms, id)
}

#[tokio::test]
async fn a_failure_takes_the_others_back() {
    on_both(|store| async move {
        let scene = Scene::new(store).await;
        let (cvms, id) = failing_at_the_second(&scene, OnFailure::RollBack).await;
        let row = scene.until(id, RolloutState::RolledBack).await;
        let reason = "web-1 could not be changed: the application did not start: no such image";
        assert_eq!(row.reason.as_deref(), Some(reason));
        assert_eq!(scene.states(id).await, [Restored, Failed, Pending]);
        for cvm in &cvms {
            let now = scene.row(cvm.id).await;
            assert_eq!(
                (now.status, now.compose_hash),
                (CvmStatus::Running, cvm.compose_hash),
                "{}",
                cvm.name
            );
        }
        assert!(scene.updates_of(cvms[2].id).await.is_empty(), "the third one never noticed");
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn one_that_kept_what_failed_goes_back_also_after_a_pause() {
    on_both(|store| async move {
        let scene = Scene::new(store).await;
        let (cvms, id) = failing_at_the_second(&scene, OnFailure::RollBack).await;
        set_policy(&scene.store, cvms[1].id, false).await;
        while scene.rollout(id).await.state != RolloutState::RollingBack {
            scene.clock.advance_ms(TICK_MS);
            scene.report().await;
            scene.driver.round().await.unwrap();
            scene.settle().await;
        }
        assert!(has_new(&scene, &cvms[1]).await, "it keeps what failed");
        assert_eq!(scene.steer(id, RolloutEvent::Pause).await, RolloutState::RollbackPaused);
        assert_eq!(scene.steer(id, RolloutEvent::Resume).await, RolloutState::RollingBack);
        scene.until(id, RolloutState::RolledBack).await;
        assert_eq!(scene.states(id).await, [Restored, Restored, Pending]);
        for cvm in &cvms {
            let now = scene.row(cvm.id).await;
            assert_eq!((now.status, now.compose_hash), (CvmStatus::Running, cvm.compose_hash));
        }
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn or_the_rollout_waits_and_tries_again() {
    on_both(|store| async move {
        let scene = Scene::new(store).await;
        let (cvms, id) = failing_at_the_second(&scene, OnFailure::Pause).await;
        scene.until(id, RolloutState::Paused).await;
        assert!(has_new(&scene, &cvms[0]).await, "what was changed stays");
        assert_eq!(scene.row(cvms[1].id).await.compose_hash, cvms[1].compose_hash, "it took itself back");
        assert_eq!(scene.steer(id, RolloutEvent::Resume).await, RolloutState::Running);
        let row = scene.until(id, RolloutState::Completed).await;
        assert_eq!(row.reason, None);
        assert!(has_new(&scene, &cvms[1]).await && has_new(&scene, &cvms[2]).await);
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn people_pause_resume_and_end_it() {
    on_both(|store| async move {
        let scene = Scene::new(store).await;
        let cvms = scene.replicas(3).await;
        let id = scene.begin(&cvms, OnFailure::RollBack).await;
        assert_eq!(scene.steer(id, RolloutEvent::Pause).await, RolloutState::Paused);
        for _ in 0..3 {
            scene.tick().await;
        }
        assert!(scene.updates_of(cvms[0].id).await.is_empty(), "nothing begins while it is paused");
        assert_eq!(scene.steer(id, RolloutEvent::Resume).await, RolloutState::Running);
        while scene.states(id).await[0] != MemberState::Updating {
            assert!(scene.driver.round().await.unwrap());
        }
        assert_eq!(scene.steer(id, RolloutEvent::Abort).await, RolloutState::Aborting);
        scene.until(id, RolloutState::Aborted).await;
        assert!(has_new(&scene, &cvms[0]).await, "what was begun ended");
        assert!(!has_new(&scene, &cvms[1]).await);
        let refused = scene.rollouts.steer(id, RolloutEvent::Resume, None).await;
        assert_eq!(refused.unwrap_err().to_string(), "a rollout that is aborted cannot resume");

        // Another one, ended the other way.
        let cvms = vec![scene.row(cvms[1].id).await, scene.row(cvms[2].id).await];
        let id = scene.begin(&cvms, OnFailure::Pause).await;
        while !has_new(&scene, &cvms[0]).await {
            scene.tick().await;
            if scene.rollout(id).await.completed_at_ms.is_some() {
                break;
            }
        }
        if scene.rollout(id).await.completed_at_ms.is_none() {
            assert_eq!(scene.steer(id, RolloutEvent::AbortAndRollBack).await, RolloutState::RollingBack);
            scene.until(id, RolloutState::RolledBack).await;
            assert!(!has_new(&scene, &cvms[0]).await && !has_new(&scene, &cvms[1]).await);
        }
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_lost_node_pauses_it_until_it_is_back() {
    on_both(|store| async move {
        let mut scene = Scene::new(store).await;
        let beta = scene.add_node("beta").await;
        let cvms = vec![scene.cvm(5, "web-0", beta).await, scene.cvm(5, "web-1", scene.ground.node).await];
        let id = scene.begin(&cvms, OnFailure::RollBack).await;
        while scene.states(id).await[0] != MemberState::Updating {
            assert!(scene.driver.round().await.unwrap());
        }
        scene.settle().await;
        scene.reporting.remove(&beta);
        scene.clock.advance_ms(30_000);
        let row = scene.until(id, RolloutState::Paused).await;
        assert_eq!(row.reason.as_deref(), Some("node beta of web-0 is offline; resume when it is back"));
        assert!(!has_new(&scene, &cvms[1]).await);
        // Resuming too early changes nothing.
        scene.steer(id, RolloutEvent::Resume).await;
        scene.until(id, RolloutState::Paused).await;
        scene.reporting.insert(beta);
        scene.report().await;
        scene.steer(id, RolloutEvent::Resume).await;
        scene.until(id, RolloutState::Completed).await;
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_member_on_a_lost_node_is_not_begun() {
    on_both(|store| async move {
        let mut scene = Scene::new(store).await;
        let beta = scene.add_node("beta").await;
        let cvms = vec![scene.cvm(5, "web-0", beta).await, scene.cvm(5, "web-1", beta).await];
        let id = scene.begin(&cvms, OnFailure::RollBack).await;
        scene.reporting.remove(&beta);
        scene.clock.advance_ms(30_000);
        let reason = scene.until(id, RolloutState::Paused).await.reason.unwrap();
        assert!(reason.contains("web-0 does not take the change: node beta is offline"), "{reason}");
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_changed_member_that_does_badly_holds_it_up() {
    on_both(|store| async move {
        let scene = Scene::new(store).await;
        let cvms = scene.replicas(2).await;
        let id = scene.begin(&cvms, OnFailure::RollBack).await;
        while scene.states(id).await[0] != MemberState::Updating {
            assert!(scene.driver.round().await.unwrap());
        }
        scene.settle().await;
        let sick = ObservedVm {
            health: Some("unhealthy".into()),
            health_detail: Some("web: exited with 1".into()),
            ..ObservedVm::default()
        };
        let mut change = scene.store.change().await.unwrap();
        change.observe_cvm(cvms[0].id, &sick, scene.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
        for _ in 0..5 {
            scene.tick().await;
        }
        assert_eq!(scene.rollout(id).await.state, RolloutState::Running, "it waits");
        assert!(!has_new(&scene, &cvms[1]).await);
        scene.clock.advance_ms(301_000);
        let reason = scene.until(id, RolloutState::Paused).await.reason;
        assert_eq!(reason.as_deref(), Some("web-0 was changed and is not ready: web: exited with 1"));
        let mut change = scene.store.change().await.unwrap();
        change.observe_cvm(cvms[0].id, &ObservedVm::default(), scene.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
        scene.steer(id, RolloutEvent::Resume).await;
        scene.until(id, RolloutState::Completed).await;
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_member_that_was_deleted_is_left_out() {
    on_both(|store| async move {
        let scene = Scene::new(store).await;
        let cvms = scene.replicas(3).await;
        let id = scene.begin(&cvms, OnFailure::RollBack).await;
        scene.power(cvms[1].id, OperationKind::Delete).await;
        scene.until(id, RolloutState::Completed).await;
        assert_eq!(scene.states(id).await, [Updated, Gone, Updated]);
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn others_keep_their_hands_off_while_it_runs() {
    on_both(|store| async move {
        let scene = Scene::new(store).await;
        let cvms = scene.replicas(2).await;
        let too_many = NewUpdate { max_unavailable: 2, ..scene.update(&cvms, OnFailure::Pause) };
        let refused = scene.rollouts.update(&too_many).await;
        assert!(matches!(refused, Err(RolloutRequestError::MaxUnavailable(1))));
        let id = scene.begin(&cvms, OnFailure::Pause).await;
        let again = scene.rollouts.update(&scene.update(&cvms, OnFailure::Pause)).await;
        assert!(matches!(again, Err(RolloutRequestError::UnderWay(_))));
        let single = scene.single_update(&cvms[1]).await;
        assert!(matches!(single, Err(RequestError::InRollout(RolloutKind::Update))), "{single:?}");
        let user = scene.ground.user;
        let (cvm, base) = (cvms[1].id, cvms[1].revision_id);
        let configured = scene.lifecycle.configure(cvm, base, Some("{}".to_owned()), user).await;
        assert!(matches!(configured, Err(RequestError::InRollout(RolloutKind::Update))), "{configured:?}");
        let addressed = scene.lifecycle.set_addresses(cvm, Some("[]"), None).await;
        assert!(matches!(addressed, Err(RequestError::InRollout(RolloutKind::Update))), "{addressed:?}");
        let mapped = scene.lifecycle.map_ports(cvm, &[], user).await;
        assert!(
            matches!(mapped, Err(MapPortsError::Request(RequestError::InRollout(RolloutKind::Update)))),
            "{mapped:?}"
        );
        // Power is nobody's but the owner's.
        scene.power(cvms[1].id, OperationKind::Restart).await;
        scene.until(id, RolloutState::Completed).await;

        let stale = scene.rollouts.update(&scene.update(&cvms, OnFailure::Pause)).await;
        assert!(matches!(stale, Err(RolloutRequestError::ChangedMeanwhile)));
        let now = vec![scene.row(cvms[0].id).await, scene.row(cvms[1].id).await];
        let same = scene.rollouts.update(&scene.update(&now, OnFailure::Pause)).await;
        assert!(matches!(same, Err(RolloutRequestError::NothingToChange)));
        scene.single_update(&now[0]).await.unwrap();
        let operation = &scene.updates_of(now[0].id).await[0];
        assert_ne!(operation.status, OperationStatus::Failed);
        scene.settle().await;
        scene.end().await;
    })
    .await;
}
