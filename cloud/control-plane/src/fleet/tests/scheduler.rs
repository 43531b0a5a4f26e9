//! The scheduler beside others who change the same database behind its back, on both engines.

use futures_util::future::join_all;
use serde_json::json;
use uuid::Uuid;

use crate::fleet::{
    Choice, Demand, GpuNeed, MAX_AGE_MS, NoNodeFits, NodeStanding, PlaceError, PlacementError, Refusal,
    Reports, Requirements, Scheduler,
};
use crate::store::tests::{Ground, ground, on_both, provision};
use crate::store::{CvmRow, GpuSlots, NewCvm, Store};

const NOW_MS: i64 = 1_790_000_000_000;
const GPU: &str = "0000:40:00.0";

/// Nodes `alpha` and `beta`; of two that are equally free a scheduler prefers `alpha`.
struct Cloud {
    store: Store,
    ground: Ground,
    scheduler: Scheduler,
    alpha: i64,
    beta: i64,
}

impl Cloud {
    async fn new(store: Store, alpha_slots: u32, beta_slots: u32) -> Self {
        let ground = ground(&store).await;
        let alpha = ground.node;
        let cloud = Self { store, ground, scheduler: Scheduler::default(), alpha, beta: 0 };
        cloud.report(alpha, alpha_slots, 0, NOW_MS).await;
        let beta = cloud.node("beta", beta_slots).await;
        Self { beta, ..cloud }
    }

    async fn node(&self, name: &str, slots: u32) -> i64 {
        let mut change = self.store.change().await.unwrap();
        let node = change.insert_node(name, NOW_MS).await.unwrap();
        change.commit().await.unwrap();
        self.report(node, slots, 0, NOW_MS).await;
        node
    }

    async fn report(&self, node: i64, slots: u32, gpus: usize, at_ms: i64) {
        let gpu = json!({"slot": GPU, "product_id": "10de:2335", "product_name": "H200",
                         "confidential_computing": "on", "assignable": true});
        let report = json!({
            "version": "0.1.0", "region": "local", "endpoint": "localhost:1", "ingress_url_template": "",
            "ingress_domain": "", "platform": "emulation", "maintenance": false,
            "capacity": {"cvm_slots": slots, "vcpu": 1000, "memory_mb": 1_000_000, "disk_gb": 100_000},
            "images": [{"name": "cloister-0.1.0", "version": "0.1.0", "is_dev": false,
                        "os_image_hash": "01".repeat(32), "supports_gpu": true}],
            "vms": [], "gpus": vec![gpu; gpus],
        });
        let mut change = self.store.change().await.unwrap();
        change.put_node_report(node, &report.to_string(), at_ms).await.unwrap();
        change.commit().await.unwrap();
    }

    async fn place(&self, demand: &Demand) -> Result<Choice, PlaceError> {
        self.scheduler.place(&self.store, demand, NOW_MS).await
    }

    async fn placed(&self) -> i64 {
        self.place(&small()).await.unwrap().node_id
    }

    async fn refused(&self) -> NoNodeFits {
        match self.place(&small()).await.unwrap_err() {
            PlaceError::NoNodeFits(none) => none,
            PlaceError::Store(error) => panic!("{error}"),
        }
    }

    /// What a creation does once its node is chosen: looks again under the lock, and writes.
    async fn create(&self, seed: u8, node: i64, gpus: &[&str]) -> Result<CvmRow, PlacementError> {
        let mut row = provision(&self.ground, seed, &format!("web-{seed}"));
        row.node_id = node;
        row.gpus = GpuSlots(gpus.iter().map(ToString::to_string).collect());
        let mut change = self.store.change().await.unwrap();
        let standing = NodeStanding::locked(&mut change, node, NOW_MS).await.unwrap();
        standing.ok_or(PlacementError::NodeGone)?.accept(&Requirements::from(&row))?;
        let vm_uuid = Uuid::from_bytes([seed; 16]);
        let new = NewCvm::of_provision(&row, self.ground.user, vm_uuid, None);
        let id = change.insert_cvm(&new, NOW_MS).await.unwrap();
        change.commit().await.unwrap();
        Ok(self.store.cvm(id).await.unwrap().unwrap())
    }

    async fn delete(&self, cvm: &CvmRow) {
        let mut change = self.store.change().await.unwrap();
        change.delete_cvm(cvm, NOW_MS).await.unwrap();
        change.commit().await.unwrap();
    }
}

fn small() -> Demand {
    let needs = Requirements { vcpu: 2, memory_mb: 1024, disk_gb: 20, ..Requirements::default() };
    Demand { needs, ..Demand::default() }
}

fn reason(error: PlacementError) -> Refusal {
    match error {
        PlacementError::Refused { reason, .. } => reason,
        PlacementError::NodeGone => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_node_that_filled_up_refuses_under_its_lock_and_is_not_chosen_again() {
    on_both(|store| async move {
        let cloud = Cloud::new(store, 1, 8).await;
        // So alpha, which is empty, is roomier.
        for seed in 10..15 {
            cloud.create(seed, cloud.beta, &[]).await.unwrap();
        }
        let chosen = cloud.placed().await;
        assert_eq!(chosen, cloud.alpha);
        // Somebody else takes the last slot behind the scheduler's back.
        cloud.create(1, cloud.alpha, &[]).await.unwrap();
        assert_eq!(reason(cloud.create(2, chosen, &[]).await.unwrap_err()), Refusal::Slots);
        let next = cloud.placed().await;
        assert_eq!(next, cloud.beta);
        cloud.create(2, next, &[]).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_who_race_for_the_last_slot_one_gets_it_and_the_others_hear_why() {
    on_both(|store| async move {
        let cloud = Cloud::new(store, 1, 0).await;
        // Each with a memory of its own, as on several machines.
        let schedulers: Vec<_> = (0..4).map(|_| Scheduler::default()).collect();
        let choices = schedulers.iter().map(|scheduler| async {
            scheduler.place(&cloud.store, &small(), NOW_MS).await.unwrap().node_id
        });
        let choices = join_all(choices).await;
        assert_eq!(choices, [cloud.alpha; 4]);
        let created = join_all((1..).zip(&choices).map(|(seed, node)| cloud.create(seed, *node, &[]))).await;
        let refused: Vec<_> = created.into_iter().filter_map(Result::err).map(reason).collect();
        assert_eq!(refused, [const { Refusal::Slots }; 3]);
        for scheduler in &schedulers {
            let error = scheduler.place(&cloud.store, &small(), NOW_MS).await.unwrap_err();
            assert_eq!(error.to_string(), "2 of 2 has no free CVM slot");
        }
    })
    .await;
}

#[tokio::test]
async fn nodes_that_close_or_go_are_not_chosen_from_memory() {
    on_both(|store| async move {
        let cloud = Cloud::new(store, 64, 8).await;
        assert_eq!(cloud.placed().await, cloud.alpha);
        let mut change = cloud.store.change().await.unwrap();
        change.set_node_draining(cloud.alpha, true).await.unwrap();
        change.commit().await.unwrap();
        assert_eq!(cloud.placed().await, cloud.beta, "alpha is drained");
        assert_eq!(reason(cloud.create(1, cloud.alpha, &[]).await.unwrap_err()), Refusal::Draining);

        let mut change = cloud.store.change().await.unwrap();
        change.set_node_maintenance(cloud.beta, true).await.unwrap();
        change.set_node_draining(cloud.alpha, false).await.unwrap();
        change.commit().await.unwrap();
        assert_eq!(cloud.placed().await, cloud.alpha, "beta rests, and alpha is remembered as drained");

        let mut change = cloud.store.change().await.unwrap();
        assert!(change.delete_node(cloud.alpha, NOW_MS).await.unwrap());
        change.commit().await.unwrap();
        let none = cloud.refused().await;
        assert!(none.summary().starts_with("1 of 1 is under maintenance"), "{none}: alpha is gone");
        assert_eq!(cloud.create(1, cloud.alpha, &[]).await.unwrap_err(), PlacementError::NodeGone);
        let named = Demand { node: Some(cloud.alpha), ..small() };
        assert!(
            matches!(cloud.place(&named).await, Err(PlaceError::NoNodeFits(none)) if none.rejected.is_empty())
        );
    })
    .await;
}

#[tokio::test]
async fn a_node_that_fell_silent_is_not_chosen_from_memory() {
    on_both(|store| async move {
        let cloud = Cloud::new(store, 64, 8).await;
        assert_eq!(cloud.placed().await, cloud.alpha);
        cloud.report(cloud.alpha, 64, 0, NOW_MS - 60_000).await;
        assert_eq!(cloud.placed().await, cloud.beta);
    })
    .await;
}

#[tokio::test]
async fn nobody_is_refused_by_what_is_remembered() {
    on_both(|store| async move {
        let cloud = Cloud::new(store, 1, 0).await;
        let cvm = cloud.create(1, cloud.placed().await, &[]).await.unwrap();
        assert_eq!(cloud.refused().await.summary(), "2 of 2 has no free CVM slot");
        cloud.delete(&cvm).await;
        assert_eq!(cloud.placed().await, cloud.alpha, "it has room again");
        cloud.create(2, cloud.alpha, &[]).await.unwrap();
        let gamma = cloud.node("gamma", 1).await;
        assert_eq!(cloud.placed().await, gamma, "the only one that fits is new");
    })
    .await;
}

#[tokio::test]
async fn a_better_node_is_known_after_a_second() {
    on_both(|store| async move {
        let cloud = Cloud::new(store, 4, 2).await;
        for seed in [1, 2] {
            cloud.create(seed, cloud.placed().await, &[]).await.unwrap();
        }
        let gamma = cloud.node("gamma", 64).await;
        let age = i64::try_from(MAX_AGE_MS).unwrap();
        let at = async |now_ms| cloud.scheduler.place(&cloud.store, &small(), now_ms).await.unwrap().node_id;
        assert_eq!(at(NOW_MS + age).await, gamma);
        // Nor does a clock that was set back make what is remembered last longer.
        let delta = cloud.node("delta", 640).await;
        cloud.create(3, gamma, &[]).await.unwrap();
        assert_eq!(at(NOW_MS).await, delta);
    })
    .await;
}

#[tokio::test]
async fn gpus_that_were_given_away_are_not_promised_again() {
    on_both(|store| async move {
        let cloud = Cloud::new(store, 4, 4).await;
        for node in [cloud.alpha, cloud.beta] {
            cloud.report(node, 4, 1, NOW_MS).await;
        }
        let mut wanted = small();
        wanted.needs.gpus = GpuNeed::Count { count: 1, product: None };
        let first = cloud.place(&wanted).await.unwrap();
        assert_eq!((first.node_id, first.gpus.as_slice()), (cloud.alpha, &[GPU.to_owned()][..]));
        cloud.create(1, cloud.alpha, &[GPU]).await.unwrap();
        let taken = Refusal::GpuTaken(GPU.to_owned());
        assert_eq!(reason(cloud.create(2, cloud.alpha, &[GPU]).await.unwrap_err()), taken);
        assert_eq!(cloud.place(&wanted).await.unwrap().node_id, cloud.beta);
        cloud.create(2, cloud.beta, &[GPU]).await.unwrap();
        let error = cloud.place(&wanted).await.unwrap_err();
        assert!(error.to_string().contains("too few free GPUs"), "{error}");
    })
    .await;
}

/// What many change at once, the scheduler of each chooses as if it had read everything.
#[tokio::test]
async fn a_choice_always_fits_what_is_so_now() {
    on_both(|store| async move {
        let cloud = Cloud::new(store, 3, 4).await;
        for (name, slots) in [("gamma", 2), ("delta", 3), ("epsilon", 1)] {
            cloud.node(name, slots).await;
        }
        let schedulers = [Scheduler::default(), Scheduler::default(), Scheduler::default()];
        let mut living: Vec<CvmRow> = Vec::new();
        for turn in 1..=60u8 {
            let scheduler = &schedulers[usize::from(turn) % schedulers.len()];
            let fresh = Reports::default().standings(&cloud.store, NOW_MS).await.unwrap();
            match scheduler.place(&cloud.store, &small(), NOW_MS).await {
                Ok(choice) => living.push(cloud.create(turn, choice.node_id, &[]).await.unwrap()),
                Err(_) => assert!(small().place(&fresh).is_err(), "turn {turn}: a node fits"),
            }
            // A few at once, wherever they are.
            if turn % 16 == 0 {
                for cvm in living.drain(..7) {
                    cloud.delete(&cvm).await;
                }
            }
        }
    })
    .await;
}
