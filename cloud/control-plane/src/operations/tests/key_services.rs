//! Starts that need a key management service.

use super::*;
use crate::governance::LOOKS;
use crate::governance::testing::KMS_CONTRACT;
use crate::kms::KmsConfig;
use crate::replicas::{Place, ReplicaRequest, replicate};
use crate::store::DeviceRow;
use crate::store::tests::prepared_changes::put_under_kms;

const OTHER_HASH: ComposeHash = ComposeHash::from_bytes([6; 32]);

/// A service that nobody runs.
fn absent() -> KmsConfig {
    KmsConfig {
        slug: "local".to_owned(),
        guest_url: "https://10.0.2.2:12001".parse().unwrap(),
        directory_url: "https://127.0.0.1:9".parse().unwrap(),
        ca_file: "/nonexistent/root-ca.pem".into(),
        admin_token_file: "/nonexistent/token".into(),
        contract: None,
    }
}

/// What a node was seen to be.
fn device_of(node_id: i64) -> DeviceRow {
    DeviceRow {
        node_id,
        device_id: "d1".repeat(32),
        ppid: "00".repeat(16),
        fmspc: "00".repeat(6),
        trust_root: "test".into(),
        tcb_status: "UpToDate".into(),
        first_verified_at_ms: 0,
        last_verified_at_ms: 0,
    }
}

#[tokio::test]
async fn a_key_service_that_is_away_fails_the_operation_with_its_name_and_leaves_no_vm() {
    on_both(|store| async move {
        let clock = Clock::manual(jiff::Timestamp::from_second(1_790_000_000).unwrap());
        let mut bench = Bench::at(clock, store).await;
        bench.kmses = Arc::new(Kmses::open(vec![absent()], &bench.store, &bench.clock).await.unwrap());
        let mut row = provision(&bench.ground, 5, "web-1");
        row.expires_at_ms = bench.clock.now_ms() + 600_000;
        row.kms_id = Some(bench.kmses.all()[0].id());
        let mut change = bench.store.change().await.unwrap();
        change.put_provision(&row).await.unwrap();
        change.commit().await.unwrap();
        bench.start_workers(None).await;
        let cvm = bench.create().await.unwrap();
        bench.outlast(&cvm).await;
        let row = bench.at_rest(&cvm).await;
        assert_eq!(row.status, CvmStatus::Error);
        let reason = "KMS local cannot be called: its certificate or the token is missing; was it \
                      bootstrapped? (gave up after 60 s)";
        assert_eq!(row.boot_error.as_deref(), Some(reason));
        assert_eq!((bench.nodes.vm_count(), bench.nodes.power_ons()), (0, 0));

        // A service that nobody configured any more: trying again does not help.
        bench.stop_workers().await;
        bench.kmses = Arc::default();
        bench.start_workers(None).await;
        bench.request(&cvm, OperationKind::PowerOn).await.unwrap();
        let row = bench.at_rest(&cvm).await;
        let reason = "the KMS that the CVM was made with is not part of this installation any more";
        assert_eq!((row.status, row.boot_error.as_deref()), (CvmStatus::Error, Some(reason)));
    })
    .await;
}

/// The owner may have taken back what was allowed when a rollout or a drain began; the CVM that runs goes on.
#[tokio::test]
async fn what_a_contract_does_not_allow_any_more_does_not_replace_what_runs() {
    on_both(|store| async move {
        let mut bench = Bench::new(store).await;
        let cvm = bench.create().await.unwrap();
        bench.at_rest(&cvm).await;
        bench.stop_workers().await;
        let governed = KmsConfig { contract: Some(KMS_CONTRACT), ..absent() };
        bench.kmses = Arc::new(Kmses::open(vec![governed], &bench.store, &bench.clock).await.unwrap());
        put_under_kms(&bench.store, cvm.id, bench.kmses.all()[0].id()).await;
        let mut change = bench.store.change().await.unwrap();
        change.put_device(&device_of(cvm.node_id)).await.unwrap();
        change.commit().await.unwrap();
        bench.contracts.deploy(APP);
        bench.contracts.add_hash(APP, HASH);
        bench.contracts.add_device(APP, [0xd1; 32]);
        bench.start_workers(None).await;
        let update = async |hash: ComposeHash| {
            let accepted = bench.update(&cvm, |wanted| wanted.compose_hash = hash).await.unwrap();
            let row = bench.at_rest(&cvm).await;
            let operation = bench.store.operation(accepted.correlation_id).await.unwrap().unwrap();
            assert_eq!((row.status, row.compose_hash), (CvmStatus::Running, HASH));
            assert_eq!(bench.nodes.power_ons(), 1);
            operation.failure.unwrap()
        };
        let failure = update(OTHER_HASH).await;
        assert!(failure.contains("does not allow compose hash 0606"), "{failure}");
        assert_eq!(bench.contracts.round_trips(), LOOKS);
        // The device counts as much as the document.
        bench.contracts.add_hash(APP, OTHER_HASH);
        bench.contracts.remove_device(APP, [0xd1; 32]);
        let failure = update(OTHER_HASH).await;
        assert!(failure.contains("does not allow compose hash 0606"), "{failure}");
        // So it is with another CVM like this one, as a drain makes it.
        let another = ReplicaRequest {
            source: cvm.id,
            place: Place::BesideSource,
            compose_hash: None,
            encrypted_env: None,
            changes: Vec::new(),
            name: None,
            user_id: bench.ground.user,
        };
        let replica = replicate(&bench.store, &bench.lifecycle, &another, None).await.unwrap();
        let row = bench.at_rest(&replica).await;
        assert_eq!((row.status, bench.nodes.power_ons()), (CvmStatus::Error, 1));
        assert!(row.boot_error.unwrap().contains("does not allow compose hash 0505"));
    })
    .await;
}

/// Nobody is asked when a CVM that is off gets another document; its next start asks.
#[tokio::test]
async fn a_cvm_that_was_changed_while_it_was_off_starts_only_with_what_is_allowed() {
    on_both(|store| async move {
        let mut bench = Bench::new(store).await;
        let cvm = bench.create().await.unwrap();
        bench.at_rest(&cvm).await;
        bench.request(&cvm, OperationKind::PowerOff).await.unwrap();
        bench.at_rest(&cvm).await;
        bench.stop_workers().await;
        let governed = KmsConfig { contract: Some(KMS_CONTRACT), ..absent() };
        bench.kmses = Arc::new(Kmses::open(vec![governed], &bench.store, &bench.clock).await.unwrap());
        put_under_kms(&bench.store, cvm.id, bench.kmses.all()[0].id()).await;
        let mut change = bench.store.change().await.unwrap();
        change.put_device(&device_of(cvm.node_id)).await.unwrap();
        change.commit().await.unwrap();
        bench.contracts.deploy(APP);
        bench.contracts.add_hash(APP, HASH);
        bench.contracts.add_device(APP, [0xd1; 32]);
        bench.start_workers(None).await;
        bench.update(&cvm, |wanted| wanted.compose_hash = OTHER_HASH).await.unwrap();
        let row = bench.at_rest(&cvm).await;
        assert_eq!((row.status, row.compose_hash), (CvmStatus::Stopped, OTHER_HASH));
        assert_eq!(bench.contracts.round_trips(), 0);
        bench.request(&cvm, OperationKind::PowerOn).await.unwrap();
        let row = bench.at_rest(&cvm).await;
        assert_eq!((row.status, bench.nodes.power_ons()), (CvmStatus::Error, 1), "it was up once, before");
        assert!(row.boot_error.unwrap().contains("does not allow compose hash 0606"));
        assert_eq!(bench.contracts.round_trips(), LOOKS);
    })
    .await;
}

#[tokio::test]
async fn what_was_found_about_one_provision_says_nothing_about_the_next() {
    on_both(|store| async move {
        let bench = Bench::without_workers(store).await;
        let seen = bench.store.provision(bench.ground.workspace, HASH, 0).await.unwrap().unwrap();
        let kmses = Kmses::open(vec![absent()], &bench.store, &bench.clock).await.unwrap();
        let mut anew = seen.clone();
        anew.kms_id = Some(kmses.all()[0].id());
        let mut change = bench.store.change().await.unwrap();
        change.put_provision(&anew).await.unwrap();
        change.commit().await.unwrap();
        let create = async |seen| {
            let request = CreateRequest {
                compose_hash: HASH,
                app_id: APP,
                is_allowed_by_contract: true,
                encrypted_env: None,
                scheduled_delete_at_ms: None,
            };
            bench.lifecycle.create_from(&bench.caller(), request, Some(seen)).await
        };
        assert!(matches!(create(&seen).await, Err(CreateError::ProvisionChanged)));
        assert!(bench.store.cvms_of_app(APP).await.unwrap().is_empty());
        create(&anew).await.unwrap();
    })
    .await;
}
