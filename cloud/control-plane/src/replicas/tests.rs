//! Replicas on both engines, without workers: what is accepted and what is refused, and why.

use std::sync::Arc;

use cloister_app_compose::{AppId, ComposeHash};
use cloister_node_api::NodeReport;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::clock::{Clock, Random};
use crate::fleet::Refusal;
use crate::store::CvmFilter;
use crate::store::tests::{Ground, ground, on_both, provision};

const NOW: &str = "2026-01-21T10:00:00Z";

struct Fleet {
    store: Store,
    lifecycle: Lifecycle,
    clock: Clock,
    ground: Ground,
}

fn gpus(count: usize) -> Value {
    let gpu = |number: usize| {
        json!({"slot": format!("0000:4{number}:00.0"), "product_id": "10de:2335", "product_name": "H200",
               "confidential_computing": "on", "assignable": true})
    };
    (0..count).map(gpu).collect()
}

fn report(slots: u32, gpus: Value) -> NodeReport {
    let mut report = json!({
        "version": "0.1.0", "region": "local", "endpoint": "localhost:1", "ingress_url_template": "",
        "ingress_domain": "", "platform": "emulation", "maintenance": false,
        "capacity": {"cvm_slots": slots, "vcpu": 64, "memory_mb": 65536, "disk_gb": 1000},
        "images": [{"name": "cloister-0.1.0", "version": "0.1.0", "is_dev": false,
                    "os_image_hash": "01".repeat(32), "supports_gpu": true}],
        "vms": [],
    });
    report["gpus"] = gpus;
    serde_json::from_value(report).unwrap()
}

impl Fleet {
    async fn new(store: Store) -> Self {
        let clock = Clock::manual(NOW.parse().unwrap());
        let ground = ground(&store).await;
        let lifecycle = Lifecycle::new(store.clone(), clock.clone(), Random, Arc::new(Notify::new()));
        let fleet = Self { store, lifecycle, clock, ground };
        fleet.report(fleet.ground.node, &report(8, gpus(0))).await;
        fleet
    }

    async fn report(&self, node: i64, report: &NodeReport) {
        let mut change = self.store.change().await.unwrap();
        let text = serde_json::to_string(report).unwrap();
        change.put_node_report(node, &text, self.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
    }

    async fn node(&self, name: &str, report: &NodeReport) -> i64 {
        let mut change = self.store.change().await.unwrap();
        let node = change.insert_node(name, self.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
        self.report(node, report).await;
        node
    }

    /// A CVM of application 5 at rest.
    async fn cvm(&self, seed: u8, name: &str, gpus: &[&str]) -> CvmRow {
        let mut row = provision(&self.ground, seed, name);
        row.app_id = AppId::from_bytes([5; 20]);
        row.gpus = GpuSlots(gpus.iter().map(ToString::to_string).collect());
        let new = NewCvm::of_provision(&row, self.ground.user, self.lifecycle.new_uuid().unwrap(), None);
        let mut change = self.store.change().await.unwrap();
        let cvm = self.lifecycle.insert(&mut change, &new, OperationKind::Create).await.unwrap();
        let operation = cvm.operation_id.as_deref().unwrap().parse().unwrap();
        change.release_cvm(cvm.id, operation).await.unwrap();
        change.set_cvm_status(cvm.id, CvmStatus::Running, self.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
        self.store.cvm(cvm.id).await.unwrap().unwrap()
    }

    async fn set_status(&self, cvm: &CvmRow, status: CvmStatus) {
        let mut change = self.store.change().await.unwrap();
        change.set_cvm_status(cvm.id, status, self.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
    }

    async fn replicate(&self, request: &ReplicaRequest) -> Result<CvmRow, ReplicaError> {
        replicate(&self.store, &self.lifecycle, request, None).await
    }
}

fn of(source: &CvmRow, place: Place) -> ReplicaRequest {
    ReplicaRequest {
        source: source.id,
        place,
        compose_hash: None,
        encrypted_env: None,
        changes: Vec::new(),
        name: None,
        user_id: source.user_id,
    }
}

#[tokio::test]
async fn a_replica_is_its_source_again() {
    on_both(|store| async move {
        let fleet = Fleet::new(store).await;
        let source = fleet.cvm(5, "my-app", &[]).await;
        let replica = fleet.replicate(&of(&source, Place::BesideSource)).await.unwrap();
        assert_eq!(replica.configuration(), source.configuration());
        assert_eq!((replica.app_id, replica.node_id), (source.app_id, source.node_id));
        assert_eq!((replica.name.as_str(), replica.status), ("my-app-r2", CvmStatus::Creating));
        assert!(replica.vm_uuid != source.vm_uuid && replica.instance_id.is_none());
        let operation = replica.operation_id.as_deref().unwrap().parse().unwrap();
        let operation = fleet.store.operation(operation).await.unwrap().unwrap();
        assert_eq!(operation.kind, OperationKind::Replicate);
        let again = fleet.replicate(&of(&replica, Place::BesideSource)).await.unwrap();
        assert_eq!(again.name, "my-app-r3");
        let node = fleet.store.node(source.node_id).await.unwrap().unwrap();
        assert_eq!((node.usage.cvms, node.usage.vcpu), (3, 3 * source.vcpu));
    })
    .await;
}

#[tokio::test]
async fn settings_go_with_it() {
    on_both(|store| async move {
        let fleet = Fleet::new(store).await;
        let source = fleet.cvm(5, "my-app", &[]).await;
        let mut request = of(&source, Place::BesideSource);
        request.changes = vec![("docker_compose_file", "services:\n  other:\n    image: nginx:2\n".into())];
        // The document of the fixture is none.
        assert!(matches!(fleet.replicate(&request).await, Err(ReplicaError::Document(_))));
        let replica = fleet.replicate(&of(&source, Place::BesideSource)).await.unwrap();
        let replica = fleet.store.cvm(replica.id).await.unwrap().unwrap();
        assert_eq!(replica.health_timeout_s, source.health_timeout_s);
        assert_eq!((replica.listed, replica.ports.as_str()), (source.listed, "[]"));
    })
    .await;
}

#[tokio::test]
async fn which_configuration_must_be_clear() {
    on_both(|store| async move {
        let fleet = Fleet::new(store).await;
        let first = fleet.cvm(5, "my-app", &[]).await;
        let second = fleet.cvm(6, "my-app-b", &[]).await;
        let refused = fleet.replicate(&of(&first, Place::BesideSource)).await.unwrap_err();
        assert!(matches!(&refused, ReplicaError::HashNeeded(hashes) if hashes.len() == 2), "{refused}");
        let mut request = of(&first, Place::BesideSource);
        request.compose_hash = Some(second.compose_hash);
        let replica = fleet.replicate(&request).await.unwrap();
        assert_eq!((replica.compose_hash, replica.name.as_str()), (second.compose_hash, "my-app-r2"));
        request.compose_hash = Some(ComposeHash::from_bytes([9; 32]));
        let refused = fleet.replicate(&request).await.unwrap_err();
        assert!(matches!(refused, ReplicaError::HashUnknown(_)), "{refused}");

        // What failed is nobody's example.
        let mut change = fleet.store.change().await.unwrap();
        for id in [second.id, replica.id] {
            change.set_cvm_status(id, CvmStatus::Error, 0).await.unwrap();
        }
        change.commit().await.unwrap();
        let replica = fleet.replicate(&of(&first, Place::BesideSource)).await.unwrap();
        assert_eq!(replica.compose_hash, first.compose_hash);
        request.compose_hash = Some(second.compose_hash);
        let refused = fleet.replicate(&request).await.unwrap_err();
        assert!(matches!(refused, ReplicaError::HashUnknown(_)), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_replicated() {
    on_both(|store| async move {
        let fleet = Fleet::new(store).await;
        let source = fleet.cvm(5, "my-app", &[]).await;
        for (status, text) in [
            (CvmStatus::Error, "a CVM that is error cannot be replicated"),
            (CvmStatus::Removing, "a CVM that is removing cannot be replicated"),
            (CvmStatus::Updating, "the source CVM is being changed"),
        ] {
            fleet.set_status(&source, status).await;
            let refused = fleet.replicate(&of(&source, Place::BesideSource)).await.unwrap_err();
            assert!(refused.to_string().starts_with(text), "{refused}");
        }
        fleet.set_status(&source, CvmStatus::Stopped).await;
        let mut request = of(&source, Place::BesideSource);
        request.encrypted_env = Some("ab".repeat(61).parse().unwrap());
        let refused = fleet.replicate(&request).await.unwrap_err();
        assert!(matches!(refused, ReplicaError::NothingOpensEnv), "{refused}");
        request.encrypted_env = None;
        request.name = Some("MY-APP".to_owned());
        let refused = fleet.replicate(&request).await.unwrap_err();
        assert!(matches!(refused, ReplicaError::NameTaken(_)), "{refused}");
        request.source = 77;
        let refused = fleet.replicate(&request).await.unwrap_err();
        assert!(matches!(refused, ReplicaError::SourceGone), "{refused}");
        // Nothing of all this left a trace.
        assert_eq!(fleet.store.list_cvms(&CvmFilter::default(), 10, 0).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn nodes_that_take_none() {
    on_both(|store| async move {
        let fleet = Fleet::new(store).await;
        let source = fleet.cvm(5, "my-app", &[]).await;
        let mut other_image = report(8, gpus(0));
        other_image.images[0].os_image_hash = "02".repeat(32).parse().unwrap();
        let without_image = fleet.node("beta", &other_image).await;
        let mut resting = report(8, gpus(0));
        resting.maintenance = true;
        let resting = fleet.node("gamma", &resting).await;
        let full = fleet.node("delta", &report(0, gpus(0))).await;
        let refused = async |node| fleet.replicate(&of(&source, Place::Node(node))).await.unwrap_err();
        assert!(matches!(refused(77).await, ReplicaError::NodeUnknown(77)));
        assert!(matches!(refused(without_image).await, ReplicaError::ImageMissing { .. }));
        for (node, expected) in [(resting, Refusal::Maintenance), (full, Refusal::Slots)] {
            match refused(node).await {
                ReplicaError::Placement(PlacementError::Refused { reason, .. }) => {
                    assert_eq!(reason, expected);
                }
                other => panic!("{other}"),
            }
        }
        // None but the source's own node would do.
        let but = Some(source.node_id);
        let refused = fleet.replicate(&of(&source, Place::Anywhere { but })).await.unwrap_err();
        let text = refused.to_string();
        for part in [
            "1 of 3 is under maintenance",
            "1 of 3 has no free CVM slot",
            "1 of 3 does not have this OS image",
        ] {
            assert!(text.contains(part), "{text}");
        }
    })
    .await;
}

#[tokio::test]
async fn siblings_are_kept_apart() {
    on_both(|store| async move {
        let fleet = Fleet::new(store).await;
        let source = fleet.cvm(5, "my-app", &[]).await;
        // Far less room than on the source's node.
        let beta = fleet.node("beta", &report(3, gpus(0))).await;
        let gamma = fleet.node("gamma", &report(2, gpus(0))).await;
        let mut nodes = Vec::new();
        for _ in 0..4 {
            let request = of(&source, Place::Anywhere { but: None });
            nodes.push(fleet.replicate(&request).await.unwrap().node_id);
        }
        assert_eq!(nodes, [beta, gamma, source.node_id, beta]);
    })
    .await;
}

#[tokio::test]
async fn racing_replicas_never_overfill_a_node_nor_share_a_gpu() {
    on_both(|store| async move {
        let fleet = Fleet::new(store).await;
        fleet.report(fleet.ground.node, &report(8, gpus(2))).await;
        let source = fleet.cvm(5, "my-app", &["0000:40:00.0"]).await;
        let beta = fleet.node("beta", &report(2, gpus(4))).await;
        let request = of(&source, Place::Anywhere { but: None });
        let outcomes = join_all((0..6).map(|_| fleet.replicate(&request))).await;
        let made: Vec<_> = outcomes.into_iter().filter_map(Result::ok).collect();
        // One GPU is left beside the source, and beta has two slots.
        assert_eq!(made.len(), 3);
        assert_eq!(made.iter().filter(|cvm| cvm.node_id == beta).count(), 2);
        let mut taken: Vec<_> = made.iter().map(|cvm| (cvm.node_id, cvm.gpus.0.clone())).collect();
        taken.push((source.node_id, source.gpus.0.clone()));
        taken.sort();
        taken.dedup();
        assert!(taken.len() == 4 && taken.iter().all(|(_, slots)| slots.len() == 1), "{taken:?}");
        let in_use = fleet.store.gpus_in_use().await.unwrap();
        assert_eq!(in_use.values().map(std::collections::BTreeSet::len).sum::<usize>(), 4);

        // What is deleted gives its GPU back.
        let mut change = fleet.store.change().await.unwrap();
        let victim = change.lock_cvm(made[0].id).await.unwrap().unwrap();
        change.delete_cvm(&victim, fleet.clock.now_ms()).await.unwrap();
        change.commit().await.unwrap();
        assert!(fleet.replicate(&of(&source, Place::Node(victim.node_id))).await.is_ok());
    })
    .await;
}
