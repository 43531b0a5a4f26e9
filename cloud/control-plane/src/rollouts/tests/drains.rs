//! CVMs leave a node.

use cloister_node_api::ExitReason;

use super::*;
use crate::governance::Contracts;
use crate::governance::testing::{FakeContracts, KMS_CONTRACT};
use crate::kms::KmsConfig;
use crate::operations::RequestError;
use crate::operations::Step;
use crate::operations::tests::fake_nodes::Fault;
use crate::rollouts::drain::Obstacle;
use crate::store::tests::on_both;
use crate::store::tests::prepared_changes::put_under_kms;
use crate::store::{DeviceRow, ObservedVm};

async fn ready(scene: &Scene, app: u8) -> usize {
    let all = scene.store.cvms_of_app(AppId::from_bytes([app; 20])).await.unwrap();
    all.iter().filter(|cvm| cvm.status == CvmStatus::Running).count()
}

async fn drain_of(scene: &Scene, node: i64) -> RolloutRow {
    scene.store.drain_of_node(node).await.unwrap().unwrap()
}

/// An application's two CVMs on two nodes, and the one on the scene's own.
async fn two_apart(store: Store) -> (Scene, CvmRow) {
    let mut scene = Scene::new(store).await;
    let beta = scene.add_node("beta").await;
    let own = scene.cvm(5, "web-0", scene.ground.node).await;
    scene.cvm(5, "web-1", beta).await;
    (scene, own)
}

/// Has the scene's own node drained, and returns the rollout.
async fn begin(scene: &Scene) -> i64 {
    let node = scene.ground.node;
    scene.rollouts.drain(node, scene.ground.user).await.unwrap();
    drain_of(scene, node).await.id
}

#[tokio::test]
async fn replicas_are_moved_and_single_instances_stay_with_a_reason() {
    on_both(|store| async move {
        let mut scene = Scene::new(store).await;
        let alpha = scene.ground.node;
        let beta = scene.add_node("beta").await;
        let gamma = scene.add_node("gamma").await;
        let (old, other) = (scene.cvm(5, "web-0", alpha).await, scene.cvm(5, "web-1", beta).await);
        let single = scene.cvm(6, "lonely", alpha).await;
        let stopped = scene.cvm(7, "asleep", alpha).await;
        let ends_ms = scene.clock.now_ms() + 86_400_000;
        let mut change = scene.store.change().await.unwrap();
        change.schedule_deletion(old.id, Some(ends_ms), scene.ground.user, 0).await.unwrap();
        change.commit().await.unwrap();
        scene.cvm(7, "awake", beta).await;
        scene.power(stopped.id, OperationKind::PowerOff).await;

        scene.rollouts.drain(alpha, scene.ground.user).await.unwrap();
        assert_eq!(scene.store.node(alpha).await.unwrap().unwrap().draining, 1);
        for _ in 0..40 {
            scene.tick().await;
            assert!(ready(&scene, 5).await >= 2, "never fewer than before");
            if scene.row(old.id).await.deleted_at_ms.is_some() {
                break;
            }
        }
        scene.tick().await;
        let left = scene.store.cvms_of_app(APP).await.unwrap();
        let new = left.iter().find(|cvm| cvm.id != other.id).unwrap();
        assert_eq!(left.len(), 2);
        assert_eq!((new.node_id, new.compose_hash), (gamma, old.compose_hash), "away from its sibling");
        assert_eq!(new.scheduled_delete_at_ms, Some(ends_ms), "the end that its owner set");
        let fresh = fresh_ms(scene.clock.now_ms());
        let reasons: Vec<_> = scene
            .store
            .placed_on(alpha, fresh)
            .await
            .unwrap()
            .iter()
            .map(|cvm| (cvm.id, obstacle(cvm, fresh)))
            .collect();
        let expected = [
            (single.id, Some(Obstacle::OnlyOne)),
            (stopped.id, Some(Obstacle::NotRunning(CvmStatus::Stopped))),
        ];
        assert_eq!(reasons, expected);

        // Its owner acts: now it can be moved, too.
        scene.cvm(6, "company", beta).await;
        for _ in 0..40 {
            scene.tick().await;
        }
        assert!(scene.row(single.id).await.deleted_at_ms.is_some());

        scene.rollouts.end_drain(alpha).await.unwrap();
        scene.tick().await;
        assert_eq!(drain_of(&scene, alpha).await.state, RolloutState::Aborted);
        assert_eq!(scene.store.node(alpha).await.unwrap().unwrap().draining, 0);
        assert!(scene.row(stopped.id).await.deleted_at_ms.is_none());
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_replacement_that_does_not_start_is_removed_and_tried_again_on_request() {
    let faults = [
        (Fault::BootErrorOnce("no such image"), "no such image"),
        (Fault::ExitOnce(Some(ExitReason::Silent)), "was killed on the node"),
    ];
    for (fault, reason) in faults {
        does_not_start(fault, reason).await;
    }
}

async fn does_not_start(fault: Fault, reason: &'static str) {
    let fault = &fault;
    on_both(|store| async move {
        let (scene, old) = two_apart(store).await;
        scene.nodes.set_fault(Step::AwaitBoot, fault.clone());
        let drain = begin(&scene).await;
        for _ in 0..20 {
            scene.tick().await;
        }
        let member = &scene.members(drain).await[0];
        assert_eq!(member.state, MemberState::Failed);
        let error = member.error.clone().unwrap();
        assert!(error.contains("did not become ready") && error.contains(reason), "{error}");
        assert_eq!(scene.row(old.id).await.status, CvmStatus::Running);
        assert_eq!(scene.store.cvms_of_app(APP).await.unwrap().len(), 2, "no leftover");

        begin(&scene).await;
        for _ in 0..20 {
            scene.tick().await;
        }
        assert_eq!(scene.states(drain).await, [MemberState::Moved]);
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_drain_that_is_ended_ends_the_move_it_began() {
    on_both(|store| async move {
        let mut scene = Scene::new(store).await;
        let alpha = scene.ground.node;
        let beta = scene.add_node("beta").await;
        let old = [scene.cvm(5, "web-0", alpha).await, scene.cvm(5, "web-1", alpha).await];
        scene.cvm(5, "web-2", beta).await;
        scene.rollouts.drain(alpha, scene.ground.user).await.unwrap();
        let drain = drain_of(&scene, alpha).await.id;
        assert!(scene.driver.round().await.unwrap());
        assert_eq!(scene.states(drain).await, [MemberState::Replicating]);
        let refused = scene.single_update(&old[0]).await;
        assert!(matches!(refused, Err(RequestError::InRollout(RolloutKind::Drain))), "{refused:?}");
        scene.rollouts.end_drain(alpha).await.unwrap();
        scene.until(drain, RolloutState::Aborted).await;
        assert_eq!(scene.states(drain).await, [MemberState::Moved]);
        assert!(scene.row(old[1].id).await.deleted_at_ms.is_none());
        scene.end().await;
    })
    .await;
}

/// The first replacement that a drain makes, once it has started.
async fn replacement(scene: &Scene, drain: i64) -> i64 {
    while scene.members(drain).await.first().is_none_or(|member| member.replacement_id.is_none()) {
        scene.clock.advance_ms(TICK_MS);
        scene.report().await;
        assert!(scene.driver.round().await.unwrap());
    }
    let new = scene.members(drain).await[0].replacement_id.unwrap();
    scene.at_rest(new).await;
    new
}

#[tokio::test]
async fn a_replacement_that_ends_once_it_has_started_is_given_up_with_its_nodes_reason() {
    on_both(|store| async move {
        let (scene, _) = two_apart(store).await;
        let drain = begin(&scene).await;
        let new = replacement(&scene, drain).await;
        let ended = ObservedVm { exit_reason: Some(ExitReason::Silent.to_string()), ..ObservedVm::default() };
        let mut change = scene.store.change().await.unwrap();
        change.observe_cvm(new, &ended, scene.clock.now_ms()).await.unwrap();
        change.set_cvm_status(new, CvmStatus::Stopped, scene.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
        for _ in 0..5 {
            scene.tick().await;
        }
        let member = &scene.members(drain).await[0];
        assert_eq!(member.state, MemberState::Failed);
        let error = member.error.as_deref().unwrap();
        assert!(error.contains("did not become ready: its process was killed on the node"), "{error}");
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_replacement_that_does_badly_for_long_is_given_up() {
    on_both(|store| async move {
        let (scene, old) = two_apart(store).await;
        let drain = begin(&scene).await;
        let new = replacement(&scene, drain).await;
        let sick = ObservedVm { health: Some("unhealthy".into()), ..ObservedVm::default() };
        let mut change = scene.store.change().await.unwrap();
        change.observe_cvm(new, &sick, scene.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
        for _ in 0..5 {
            scene.tick().await;
        }
        assert_eq!(scene.states(drain).await, [MemberState::Replicating], "it waits");
        scene.clock.advance_ms(301_000);
        for _ in 0..5 {
            scene.tick().await;
        }
        assert_eq!(scene.states(drain).await, [MemberState::Failed]);
        assert!(scene.row(new).await.deleted_at_ms.is_some());
        scene.single_update(&old).await.unwrap();
        scene.settle().await;
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_judged_ready_to_go_is_being_deleted_already() {
    on_both(|store| async move {
        let mut scene = Scene::new(store).await;
        let beta = scene.add_node("beta").await;
        let old = scene.cvm(5, "web-0", scene.ground.node).await;
        scene.cvm(5, "web-1", beta).await;
        scene.rollouts.drain(scene.ground.node, scene.ground.user).await.unwrap();
        let drain = drain_of(&scene, scene.ground.node).await.id;
        while scene.states(drain).await != [MemberState::Retiring] {
            scene.settle().await;
            scene.clock.advance_ms(TICK_MS);
            scene.report().await;
            assert!(scene.driver.round().await.unwrap());
        }
        assert!(scene.members(drain).await[0].correlation_id.is_some());
        assert!(scene.at_rest(old.id).await.deleted_at_ms.is_some(), "nothing is left to decide");
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn nothing_leaves_a_node_that_is_away() {
    on_both(|store| async move {
        let mut scene = Scene::new(store).await;
        let alpha = scene.ground.node;
        let beta = scene.add_node("beta").await;
        let old = scene.cvm(5, "web-0", alpha).await;
        scene.cvm(5, "web-1", beta).await;
        scene.reporting.remove(&alpha);
        scene.clock.advance_ms(30_000);
        scene.rollouts.drain(alpha, scene.ground.user).await.unwrap();
        for _ in 0..5 {
            scene.tick().await;
        }
        assert_eq!(scene.store.cvms_of_app(APP).await.unwrap().len(), 2);
        let fresh = fresh_ms(scene.clock.now_ms());
        let placed = scene.store.placed_on(alpha, fresh).await.unwrap();
        assert_eq!(obstacle(&placed[0], fresh), Some(Obstacle::NodeAway));
        assert_eq!(scene.row(old.id).await.status, CvmStatus::Running);
        scene.end().await;
    })
    .await;
}

/// A service whose contract is a table. Nobody runs it, so that nothing boots: where a replacement goes is decided
/// before.
async fn govern(scene: &mut Scene, cvms: &[i64]) -> Arc<FakeContracts> {
    let config = KmsConfig {
        slug: "chained".to_owned(),
        guest_url: "https://10.0.2.2:12001".parse().unwrap(),
        directory_url: "https://127.0.0.1:9".parse().unwrap(),
        ca_file: "/nonexistent/root-ca.pem".into(),
        admin_token_file: "/nonexistent/token".into(),
        contract: Some(KMS_CONTRACT),
    };
    let kmses = Arc::new(Kmses::open(vec![config], &scene.store, &scene.clock).await.unwrap());
    for cvm in cvms {
        put_under_kms(&scene.store, *cvm, kmses.all()[0].id()).await;
    }
    let contracts = Arc::<FakeContracts>::default();
    contracts.deploy(APP);
    let driver = Driver::new(scene.store.clone(), scene.lifecycle.clone(), scene.clock.clone(), None);
    let asked: Arc<dyn Contracts> = Arc::<FakeContracts>::clone(&contracts);
    scene.driver = Arc::new(driver.under(kmses, asked));
    contracts
}

async fn prove(scene: &Scene, node_id: i64, device: [u8; 32]) {
    let device = DeviceRow {
        node_id,
        device_id: hex::encode(device),
        ppid: "00".repeat(16),
        fmspc: "00".repeat(6),
        trust_root: "test".into(),
        tcb_status: "UpToDate".into(),
        first_verified_at_ms: 0,
        last_verified_at_ms: 0,
    };
    let mut change = scene.store.change().await.unwrap();
    change.put_device(&device).await.unwrap();
    change.commit().await.unwrap();
}

#[tokio::test]
async fn a_cvm_whose_service_is_gone_stays_where_it_is() {
    on_both(|store| async move {
        let mut scene = Scene::new(store).await;
        let alpha = scene.ground.node;
        let beta = scene.add_node("beta").await;
        let (old, other) = (scene.cvm(5, "web-0", alpha).await, scene.cvm(5, "web-1", beta).await);
        let contracts = govern(&mut scene, &[old.id, other.id]).await;
        let driver = Driver::new(scene.store.clone(), scene.lifecycle.clone(), scene.clock.clone(), None);
        scene.driver = Arc::new(driver.under(Arc::default(), contracts));
        scene.rollouts.drain(alpha, scene.ground.user).await.unwrap();
        let drain = drain_of(&scene, alpha).await.id;
        for _ in 0..3 {
            scene.tick().await;
        }
        let member = scene.members(drain).await.remove(0);
        assert_eq!(member.state, MemberState::Failed);
        let error = member.error.unwrap();
        assert!(error.contains("not part of this installation any more"), "{error}");
        assert_eq!(scene.store.cvms_of_app(APP).await.unwrap().len(), 2, "nothing that would get no keys");
        scene.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_cvm_of_a_contract_moves_only_to_a_device_that_it_allows() {
    on_both(|store| async move {
        let mut scene = Scene::new(store).await;
        let alpha = scene.ground.node;
        let (beta, gamma) = (scene.add_node("beta").await, scene.add_node("gamma").await);
        let unproved = scene.add_node("delta").await;
        let (old, other) = (scene.cvm(5, "web-0", alpha).await, scene.cvm(5, "web-1", beta).await);
        let contracts = govern(&mut scene, &[old.id, other.id]).await;
        for (node, device) in [(alpha, 1), (beta, 2), (gamma, 3)] {
            prove(&scene, node, [device; 32]).await;
        }
        scene.rollouts.drain(alpha, scene.ground.user).await.unwrap();
        let drain = drain_of(&scene, alpha).await.id;
        contracts.set_down(Some("away"));
        for _ in 0..3 {
            scene.tick().await;
        }
        assert_eq!(scene.states(drain).await, [MemberState::Replicating], "it waits for the chain");
        assert_eq!(scene.store.cvms_of_app(APP).await.unwrap().len(), 2);

        // No device is allowed: nothing is made that would get no keys.
        contracts.set_down(None);
        scene.tick().await;
        let member = scene.members(drain).await.remove(0);
        assert_eq!(member.state, MemberState::Failed);
        let error = member.error.unwrap();
        assert!(
            error.contains("3 of 3") && error.contains("does not allow; its owner can add it"),
            "{error}"
        );

        // The one with a CVM of the application already is the only one that is allowed.
        contracts.add_device(APP, [2; 32]);
        let asked = contracts.round_trips();
        scene.rollouts.drain(alpha, scene.ground.user).await.unwrap();
        let new = loop {
            scene.tick().await;
            let cvms = scene.store.cvms_of_app(APP).await.unwrap();
            if let Some(new) = cvms.into_iter().find(|cvm| ![old.id, other.id].contains(&cvm.id)) {
                break new;
            }
        };
        assert_eq!(new.node_id, beta, "not {gamma} or {unproved}");
        assert!(contracts.round_trips() > asked);
        scene.end().await;
    })
    .await;
}
